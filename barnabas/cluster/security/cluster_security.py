"""ClusterSecurity: how every connection of a local cluster is secured.

| protocol for clients | clients log in by | between nodes, and to the controller |
|---|---|---|
| SSL | a certificate, of which the common name is the user | SSL, certificates on both ends |
| SASL_SSL | SCRAM or PLAIN | SSL, certificates on both ends |
| SASL_PLAINTEXT | SCRAM or PLAIN | SASL_PLAINTEXT, by PLAIN |

Rules
1. The nodes and the user `admin` are super users. Others need ACLs (`barnabas acl add`).
2. Everything is in DIR/security, readable by its user alone: the authority, the nodes' keys, the users' passwords, and
   for each user the settings for clients. A later start in DIR uses the same authority and passwords.
3. Users get SCRAM credentials when the cluster is first ready. From then on `barnabas user` changes and deletes them,
   and a later start leaves them alone, unless it gives a user a new password. PLAIN knows exactly these users.
4. Where users log in by SCRAM, nodes have a `delegation.token.secret.key`, made at the first start: it is what the
   salts of users that do not exist are made from, and lets users create delegation tokens. The cluster's configuration
   can replace it.
5. The pages ask for the token in DIR/security/pages_token, and have TLS where the listeners have it. A token, users or
   a key store for pages in the cluster's configuration replace these.

Threads: none; writes files.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.security.authority import Authority, write_private
from barnabas.cluster.security.client_settings import CLIENT_PROPERTIES, MODULES, PLAIN, SCRAM, Login, files, quoted
from barnabas.common.pages.page_access import TLS_PREFIX, TOKEN_FILE, TOKEN_KEY, USERS_KEY

if TYPE_CHECKING:
    from barnabas.cluster.node import Node

SSL, SASL_PLAINTEXT, SASL_SSL = "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PROTOCOLS: Final = (SSL, SASL_PLAINTEXT, SASL_SSL)
ADMIN: Final = "admin"
DIRECTORY: Final = "security"
USERS_FILE: Final = "users.json"
MECHANISMS: Final = (SCRAM, "SCRAM-SHA-256", PLAIN)
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
#: A certificate's principal is its common name.
MAPPING_RULES: Final = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
TOKEN_KEY_SETTING: Final = "delegation.token.secret.key"
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
_NODE_USER: Final = "node"  # logs in to other nodes where they have no certificates
_SUPERVISOR: Final = "supervisor"  # serves the control page
_PASSWORD_BYTES: Final = 18
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_.\-]{0,63}"
_NODE_NAME: Final = r"node|(?:broker|controller)-\d+"  # super users by rule 1


class ClusterSecurity:
    """See the module."""

    def __init__(self, directory: Path, protocol: str, users: Mapping[str, str], now_ms: int) -> None:
        """Read or create what the cluster's directory has; raises ClusterError for a name that cannot be a user's."""
        if protocol not in PROTOCOLS:
            raise ClusterError(f"{protocol} is no security protocol: it can be {', '.join(PROTOCOLS)}")
        for name in users:
            check_name(name)
        self.directory = directory / DIRECTORY
        self.protocol = protocol
        self.is_encrypted = protocol != SASL_PLAINTEXT
        self.node_protocol = SSL if self.is_encrypted else SASL_PLAINTEXT
        self._authority = Authority(self.directory, now_ms)
        self._issued_ms = now_ms  # no certificate in use is older
        self._node_password, self._token_key, self.users, self._created = self._remembered(users)
        self._write_users()
        self._page_token = self._remembered_token()

    @property
    def client_listener(self) -> str:
        """The name of the listener for clients."""
        return self.protocol

    def prepare(self, nodes: Iterable[Node], bootstrap: str) -> None:
        """Write the nodes' keys and the users' settings."""
        if self.is_encrypted:
            for node in nodes:
                self.issue(node)
            self._authority.issue(f"{ADMIN}.pem", ADMIN)
            self._authority.issue(f"{_SUPERVISOR}.pem", _SUPERVISOR, LOCAL_HOSTS)
        for user in self.users:
            self._write_settings(user, bootstrap)

    def renew(self, nodes: Iterable[Node], bootstrap: str, now_ms: int) -> bool:
        """Issue all certificates again if they expire soon; return whether they do.

        Running processes find the new files. The former certificates are valid until their end. After an OSError all
        are still due.
        """
        if not self.is_encrypted or not self._authority.is_renewal_due(now_ms):
            return False
        self._authority.issue_from(now_ms)
        try:
            self.prepare(nodes, bootstrap)
        except OSError:
            self._authority.issue_from(self._issued_ms)
            raise
        self._issued_ms = now_ms
        return True

    def issue(self, node: Node, file: str = "") -> Path:
        """Write a new key and certificate of a node; return the file, by default the one that the node reads."""
        return self._authority.issue(file or f"{node.name}.pem", node.name, (node.host, *LOCAL_HOSTS))

    def properties(self, node: Node, node_names: Iterable[str], internal: str) -> dict[str, str]:
        """Return the server properties of a node; `internal` is the name of the listener between brokers.

        `node_names` are those of all nodes.
        """
        supers = [ADMIN, *node_names] if self.is_encrypted else [ADMIN, _NODE_USER]
        properties = {
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}"
                for name, protocol in (
                    ("CONTROLLER", self.node_protocol),
                    (self.client_listener, self.protocol),
                    (internal, self.node_protocol),
                )
            ),
            "inter.broker.listener.name": internal,  # the controller's `recover` command needs it, too
            "authorizer.class.name": AUTHORIZER,
            "super.users": ";".join(f"User:{name}" for name in supers),
        }
        if self.is_encrypted:
            properties |= self._tls_properties(node, internal)
        else:
            properties |= self._sasl_between_nodes(node, internal)
        if self.protocol != SSL:
            properties[TOKEN_KEY_SETTING] = self._token_key
            if node.role == "broker":
                properties |= self._sasl_for_clients()
        return properties

    def page_properties(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """Return the properties that protect the pages of the node `name`, but not what `config` replaces (rule 5)."""
        properties = {}
        if not {TOKEN_KEY, USERS_KEY} & config.keys():
            properties[TOKEN_KEY] = self._page_token
        if self.is_encrypted and not any(key.startswith(f"{TLS_PREFIX}keystore.") for key in config):
            properties |= {f"{TLS_PREFIX}{key}": text for key, text in self._stores(name).items()}
        return properties

    def control_certificate(self) -> Path | None:
        """Return the file with the key and certificate of the control page; None where it has no TLS."""
        return self.directory / f"{_SUPERVISOR}.pem" if self.is_encrypted else None

    def login(self, user: str) -> Login:
        """Return how a user connects to the listener for clients."""
        key_file = None if self.protocol != SSL else str(self._directory_of(user) / f"{user}.pem")
        ca_file = str(self._authority.certificate_file) if self.is_encrypted else None
        return Login(self.protocol, user, self.users[user], ca_file=ca_file, key_file=key_file)

    def node_login(self) -> Login:
        """Return how the supervisor connects to the listeners between nodes, as a super user."""
        if self.is_encrypted:
            key_file = str(self.directory / f"{ADMIN}.pem")
            ca_file = str(self._authority.certificate_file)
            return Login(SSL, ADMIN, "", ca_file=ca_file, key_file=key_file, is_key_encrypted=False)
        return Login(SASL_PLAINTEXT, _NODE_USER, self._node_password, PLAIN)

    def settings_file(self, user: str = ADMIN) -> Path:
        """Return the file of a user's settings for the Java client and for --command-config."""
        return self._directory_of(user) / CLIENT_PROPERTIES

    def _directory_of(self, user: str) -> Path:
        return self.directory / "users" / user

    def users_to_create(self) -> dict[str, str]:
        """Return the users whose SCRAM credentials must be set, with their passwords (rule 3)."""
        return {name: password for name, password in self.users.items() if self._created.get(name) != password}

    def users_created(self) -> None:
        """Remember that all users have their credentials."""
        self._created = dict(self.users)
        self._write_users()

    def _remembered(self, users: Mapping[str, str]) -> tuple[str, str, dict[str, str], dict[str, str]]:
        """Return the nodes' password and key of tokens, the users' passwords, and those created.

        The users are those of before, changed by the given ones.
        """
        path = self.directory / USERS_FILE
        try:
            known: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
        except ValueError as error:  # a crash of the machine can leave it empty
            raise ClusterError(f"{path} cannot be read ({error}): remove it, and users get new passwords") from None
        of_nodes = known.get("nodes", {})
        node_password = of_nodes.get(_NODE_USER) or secrets.token_urlsafe(_PASSWORD_BYTES)
        token_key = of_nodes.get(TOKEN_KEY_SETTING) or secrets.token_urlsafe(_PASSWORD_BYTES)
        everyone = {ADMIN: secrets.token_urlsafe(_PASSWORD_BYTES), **known.get("users", {}), **users}
        return node_password, token_key, everyone, known.get("created", {})

    def _write_users(self) -> None:
        of_nodes = {_NODE_USER: self._node_password, TOKEN_KEY_SETTING: self._token_key}
        content = {"nodes": of_nodes, "users": self.users, "created": self._created}
        write_private(self.directory / USERS_FILE, (json.dumps(content, indent=1) + "\n").encode())

    def _remembered_token(self) -> str:
        """Return the token of the pages: that of before, else a new one, which is written."""
        path = self.directory / TOKEN_FILE
        token = path.read_text().strip() if path.exists() else ""
        if not token:  # a crash of the machine can leave it empty
            token = secrets.token_urlsafe(_PASSWORD_BYTES)
            write_private(path, token.encode())
        return token

    def _stores(self, name: str) -> dict[str, str]:
        """Return what a node shows and what it trusts, as `keystore.…` and `truststore.…`."""
        return {
            "keystore.type": "PEM",
            "keystore.location": str(self.directory / f"{name}.pem"),
            "truststore.type": "PEM",
            "truststore.location": str(self._authority.certificate_file),
        }

    def _tls_properties(self, node: Node, internal: str) -> dict[str, str]:
        properties = {
            **{f"ssl.{key}": text for key, text in self._stores(node.name).items()},
            "ssl.principal.mapping.rules": MAPPING_RULES,
        }
        with_certificates = _node_listeners(node, internal)
        if node.role == "broker" and self.protocol == SSL:
            with_certificates.append(SSL.lower())
        return properties | {f"listener.name.{name}.ssl.client.auth": "required" for name in with_certificates}

    def _sasl_between_nodes(self, node: Node, internal: str) -> dict[str, str]:
        password = quoted(self._node_password)
        jaas = f'{MODULES[PLAIN]} required username="{_NODE_USER}" password={password} user_{_NODE_USER}={password};'
        properties = {
            "sasl.mechanism.inter.broker.protocol": PLAIN,
            "sasl.mechanism.controller.protocol": PLAIN,
            **{f"listener.name.{name}.sasl.enabled.mechanisms": PLAIN for name in _node_listeners(node, internal)},
        }
        for listener in ("controller", internal.lower()):  # what a node does not accept on, it connects to
            properties[f"listener.name.{listener}.plain.sasl.jaas.config"] = jaas
        return properties

    def _sasl_for_clients(self) -> dict[str, str]:
        prefix = f"listener.name.{self.client_listener.lower()}"
        users = " ".join(f"user_{name}={quoted(password)}" for name, password in self.users.items())
        properties = {f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS)}
        for mechanism in MECHANISMS:
            module, options = (MODULES[PLAIN], f" {users}") if mechanism == PLAIN else (MODULES[SCRAM], "")
            properties[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{module} required{options};"
        return properties

    def _write_settings(self, user: str, bootstrap: str) -> None:
        directory = self._directory_of(user)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        login = self.login(user)
        if login.key_file is not None:
            self._authority.issue(f"users/{user}/{user}.pem", user, password=login.password)
        for name, text in files(login, bootstrap).items():
            write_private(directory / name, text.encode())


def _node_listeners(node: Node, internal: str) -> list[str]:
    """Return the listeners, in lower case, on which a node accepts other nodes."""
    of_controller = ["controller"] if node.is_controller else []
    return of_controller if node.role == "controller" else [internal.lower(), *of_controller]


def check_name(name: str) -> None:
    """Raise ClusterError for a name that cannot be a user's: it becomes a directory and part of a JAAS entry."""
    if not re.fullmatch(_NAME, name):
        raise ClusterError(f"{name!r} cannot be a user here: use letters, digits, _ . and -")
    if re.fullmatch(_NODE_NAME, name):
        raise ClusterError(f"{name!r} cannot be a user here: it is a node's name")


def parse_users(text: str) -> dict[str, str]:
    """Return the users of `alice:secret,bob:word`; raises ClusterError without naming a password."""
    users: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, password = part.partition(":")
        if not colon or not password:
            raise ClusterError(f"--users: {name} has no password: write NAME:PASSWORD,...")
        check_name(name)
        users[name] = password
    return users
