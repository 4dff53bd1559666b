"""The secrets of a cluster that others run, such as containers: a directory for each kind of process.

    DIR/authority/           ca.pem, ca-key.pem: who has the key can be anybody; no running process needs it
    DIR/nodes/               NAME.pem: key and certificate of a node; NAME.properties: how it connects to other nodes;
                             ca.pem, pages_token; token_key: delegation.token.secret.key
    DIR/users/ca.pem         what clients trust
    DIR/users/NAME/          a user's password, and its settings for clients; the administrator also has pages_token
    DIR/pages/               ca.pem, pages_token: for a scraper of the pages

Rules
1. A later run keeps the authority, the passwords, the token and the key. Certificates are issued again; a running node
   takes the new one.
2. Files are for their owner alone. DIR/pages is also for the owner's group, since Prometheus runs as a user of its own.
3. The first user is the administrator.

Threads: none; writes files.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.cluster.security.authority import Authority, write_private
from barnabas.cluster.security.client_settings import Login, files, java, properties_text
from barnabas.common.pages.page_access import TOKEN_FILE

CA_FILE: Final = "ca.pem"
PASSWORD_FILE: Final = "password"
KEY_FILE: Final = "token_key"
_SECRET_BYTES: Final = 18
_FOR_OWNER: Final = 0o700
_FOR_GROUP: Final = 0o750
_GROUP_READS: Final = 0o640


class SecretFiles:
    """See the module."""

    def __init__(self, directory: Path, now_ms: int) -> None:
        self._nodes = _made(directory / "nodes", _FOR_OWNER)
        self._users = _made(directory / "users", _FOR_OWNER)
        self._pages = _made(directory / "pages", _FOR_GROUP)
        self._authority = Authority(directory / "authority", now_ms)
        self._ca = self._authority.certificate_file.read_bytes()
        self._token = _kept(self._nodes / TOKEN_FILE)
        _kept(self._nodes / KEY_FILE)

    def write(
        self, nodes: Mapping[str, Sequence[str]], users: Sequence[str], bootstrap: str, users_path: str = ""
    ) -> None:
        """Write the files of all nodes, by the names and addresses at which each is reached, and of all users.

        `bootstrap` is the address for users. `users_path` is where they will have DIR/users; "": there.
        """
        for where in (self._nodes, self._users):
            write_private(where / CA_FILE, self._ca)
        for name, data in ((CA_FILE, self._ca), (TOKEN_FILE, self._token.encode())):
            write_private(self._pages / name, data, _GROUP_READS)
        for name, hosts in nodes.items():
            self._write_node(name, hosts)
        for name in users:
            self._write_user(name, bootstrap, users_path or str(self._users))
        for name in users[:1]:
            write_private(self._users / name / TOKEN_FILE, self._token.encode())

    def _write_node(self, name: str, hosts: Sequence[str]) -> None:
        key_file = self._authority.issue(str(self._nodes / f"{name}.pem"), name, hosts)
        ca_file = str(self._nodes / CA_FILE)
        login = Login("SSL", name, "", ca_file=ca_file, key_file=str(key_file), is_key_encrypted=False)
        write_private(self._nodes / f"{name}.properties", properties_text(java(login)).encode())

    def _write_user(self, name: str, bootstrap: str, users_path: str) -> None:
        own = _made(self._users / name, _FOR_OWNER)
        password = _kept(own / PASSWORD_FILE)
        login = Login("SASL_SSL", name, password, ca_file=f"{users_path}/{CA_FILE}", ca_pem=self._ca.decode())
        for file, text in files(login, bootstrap).items():
            write_private(own / file, text.encode())


def _made(directory: Path, mode: int) -> Path:
    """Create a directory, unless it is there: a volume has the mode that its image gave it."""
    directory.mkdir(mode, parents=True, exist_ok=True)
    return directory


def _kept(path: Path) -> str:
    """Return the secret in a file, which gets a new one if it has none (rule 1)."""
    found = path.read_text().strip() if path.exists() else ""
    if not found:
        found = secrets.token_urlsafe(_SECRET_BYTES)
        write_private(path, found.encode())
    return found
