"""How clients ask for the pages: the scheme, and credentials in the form that a request carries.

A credential is the value of an `Authorization` header. A token makes two: `Bearer TOKEN`, and for browsers, which can
only ask for a name and a password, `Basic` with the name `token`. `barnabas.pages.auth.users` has pairs NAME:PASSWORD.

A local cluster whose pages ask for credentials, or whose nodes can be changed by requests, has them in `pages.json`,
which only its user can read. A secured one (`barnabas up --security`) also has the token alone in a file, as Prometheus
reads it, and one that is open for readers has the token for changes alone, in `CHANGE_FILE`.

Threads: none; values, and one small file.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = "pages.json"
TOKEN_FILE: Final = "pages_token"  # in the directory `security` of a secured cluster
CHANGE_FILE: Final = "change_token"
TOKEN_KEY: Final = "barnabas.pages.auth.token"
USERS_KEY: Final = "barnabas.pages.auth.users"
CHANGE_KEY: Final = "barnabas.pages.change.token"
PAGE_KEYS: Final = (TOKEN_KEY, USERS_KEY, CHANGE_KEY)
TLS_PREFIX: Final = "barnabas.pages.ssl."
#: The variables that give commands the same values as they give the server processes.
TOKEN_VARIABLE: Final = "BARNABAS_PAGES_AUTH_TOKEN"
USERS_VARIABLE: Final = "BARNABAS_PAGES_AUTH_USERS"
CHANGE_VARIABLE: Final = "BARNABAS_PAGES_CHANGE_TOKEN"
#: The variable with the token of the cluster of `barnabas up --ephemeral`. No key: other clusters have their own token.
FAULTS_TOKEN_VARIABLE: Final = "BARNABAS_FAULTS_TOKEN"
#: The name with which a browser presents the token as a password.
TOKEN_USER: Final = "token"
BEARER: Final = "Bearer "
_NEW_BYTES: Final = 24
_TOKEN: Final = r"[A-Za-z0-9\-._~+/]+=*"  # token68 of RFC 9110


def credentials(token: str | None, users: str | None, key: str = TOKEN_KEY) -> tuple[str, ...]:
    """Return what a request may carry, for a token and `NAME:PASSWORD,...`. Raises ValueError, without a value.

    `key` is the token's, for the error.
    """
    accepted = []
    if token:
        if not re.fullmatch(_TOKEN, token):
            raise ValueError(f"{key}: a token has only letters, digits and the characters - . _ ~ + / =")
        accepted += [BEARER + token, basic(TOKEN_USER, token)]
    for pair in (users or "").split(","):
        name, separator, password = pair.strip().partition(":")
        if pair.strip() and not (separator and name and password):
            raise ValueError(f"{USERS_KEY}: expected NAME:PASSWORD,...")
        if name:
            accepted.append(basic(name, password))
    return tuple(accepted)


class Credentials(NamedTuple):
    """What requests may carry."""

    readers: tuple[str, ...]  # empty: everybody may read
    changers: tuple[str, ...]  # empty: nothing can be changed


#: Pages that everybody may read, and nobody change.
NO_CREDENTIALS: Final = Credentials((), ())


def credentials_of(token: str | None, users: str | None, change_token: str | None) -> Credentials:
    """Return the credentials of pages with these values of the three keys. Raises ValueError, without a value."""
    readers, changers = credentials(token, users), credentials(change_token, None, CHANGE_KEY)
    if not changers:
        return Credentials(readers, readers)
    return Credentials((*readers, *changers) if readers else (), changers)


def basic(name: str, password: str) -> str:
    """Return the credential of a user (RFC 7617)."""
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"


def of_text(text: str) -> str:
    """Return the credential in a text: a token, or NAME:PASSWORD. Raises ValueError, without the text."""
    text = text.strip()
    name, separator, password = text.partition(":")
    if separator and name and password:
        return basic(name, password)
    if not text or separator:
        raise ValueError("expected a token, or NAME:PASSWORD")
    return credentials(text, None)[0]


def new_token() -> str:
    """Return a random token."""
    # Why not `secrets`: it loads OpenSSL, which most clusters do not need.
    return base64.urlsafe_b64encode(os.urandom(_NEW_BYTES)).decode()


class Access(NamedTuple):
    """How a client asks for pages: by which scheme, with which credential ("": none)."""

    credential: str = ""
    scheme: str = "http"
    ca: str = ""  # for https: the file with the authorities to trust; "": the system's, or $SSL_CERT_FILE

    def __repr__(self) -> str:
        return f"Access(scheme={self.scheme!r}, ca={self.ca!r})"


#: Pages that ask for nothing.
OPEN: Final = Access()


def access_of(properties: Mapping[str, str], credential: str = "") -> Access:
    """Return the access to the pages of processes with these properties; a PEM trust store is trusted here as well."""
    has_tls = any(properties.get(f"{TLS_PREFIX}keystore.{what}") for what in ("location", "key"))
    if not has_tls:
        return Access(credential)
    is_pem = properties.get(f"{TLS_PREFIX}truststore.type") == "PEM"
    return Access(credential, "https", properties.get(f"{TLS_PREFIX}truststore.location", "") if is_pem else "")


def of_environment(environment: Mapping[str, str] = os.environ, *, can_change: bool = False) -> Access:
    """Return the access that the environment gives to commands, which read or also change. Raises ValueError."""
    found = credentials(environment.get(TOKEN_VARIABLE), environment.get(USERS_VARIABLE))
    if can_change:
        token = environment.get(FAULTS_TOKEN_VARIABLE) or environment.get(CHANGE_VARIABLE)
        found = (*credentials(token, None, CHANGE_KEY), *found)
    return Access(found[0] if found else "")


def write_access(directory: Path, access: Access, change_token: str = "") -> None:
    """Write the files of a local cluster, readable by its user alone; for open pages, remove them."""
    _write_private(directory / FILE, "" if access == OPEN else json.dumps(access._asdict()))
    _write_private(directory / CHANGE_FILE, change_token)


def _write_private(path: Path, line: str) -> None:
    """Replace a file; remove it for an empty line."""
    path.unlink(missing_ok=True)
    if not line:
        return
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)  # Why first: the content must never be readable by others
    temporary.write_text(f"{line}\n")
    temporary.replace(path)


def of_directory(directory: Path) -> Access:
    """Return the access to the pages of the local cluster in a directory."""
    try:
        return Access(**json.loads((directory / FILE).read_text()))
    except (OSError, ValueError, TypeError):
        return OPEN
