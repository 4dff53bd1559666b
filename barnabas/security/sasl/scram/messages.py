"""SCRAM's four messages, as text.

    client first   n,[a=authorization id],n=user,r=nonce[,extensions]
    server first   r=nonce,s=salt,i=iterations
    client final   c=channel binding,r=nonce[,extensions],p=proof
    server final   v=signature, or e=error

Rules
1. A user's name has `=2C` for a comma and `=3D` for an equals sign.
2. Anybody may send half a megabyte, so a message must cost little before it is refused. Quantifiers are possessive:
   nothing is tried twice. No pattern loops over single characters, and extensions are bounded in number.
3. What is signed are the bytes that were received, not what was understood of them.

Source: RFC 5802 section 7; ScramMessages (Kafka 4.3).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.security.sasl.mechanism import InvalidCredentialsError

TOKEN_AUTH: Final = "tokenauth"

NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]++|=2C|=3D)++"
EXTENSIONS_MAX: Final = 64  # in a message
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]++"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]++"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*+(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?+"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]++={_VALUE}){{0,{EXTENSIONS_MAX}}}"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>{NAME}))?,)(?P<bare>(?:m={_VALUE},)?n=(?P<user>{NAME}),"
    rf"r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(
    rf"(?:e=(?P<error>[\x01-\x2b\x2d-\x3c\x3e-\x7f]+))|(?:v=(?P<signature>{_BASE64}){_EXTENSIONS})"
)


class ClientFirst(NamedTuple):
    """The client's first message; `bare` is the part that is signed."""

    user: str
    nonce: str
    bare: str
    authorization_id: str
    extensions: Mapping[str, str]

    @property
    def is_token(self) -> bool:
        """Whether the user is the id of a delegation token."""
        return self.extensions.get(TOKEN_AUTH, "").lower() == "true"


class ServerFirst(NamedTuple):
    """The server's first message."""

    nonce: str
    salt: bytes
    iterations: int

    @property
    def text(self) -> str:
        """The message as it is sent."""
        return f"r={self.nonce},s={base64.b64encode(self.salt).decode()},i={self.iterations}"


class ClientFinal(NamedTuple):
    """The client's last message; `without_proof` is the part that is signed."""

    channel_binding: bytes
    nonce: str
    without_proof: str
    proof: bytes


def parse_client_first(data: bytes) -> ClientFirst:
    """Read a client's first message; raises InvalidCredentialsError."""
    match = _match(_CLIENT_FIRST, data, "client first")
    pairs = (pair.partition("=")[::2] for pair in match["extensions"].split(",")[1:])
    return ClientFirst(
        unescape(match["user"]),
        match["nonce"],
        match["bare"],
        match["authzid"] or "",
        dict(pairs),
    )


def client_first_bare(user: str, nonce: str, extensions: Mapping[str, str]) -> str:
    """Write a client's first message without what precedes the signed part."""
    shown = "".join(f",{name}={value}" for name, value in extensions.items())
    return f"n={escape(user)},r={nonce}{shown}"


def parse_server_first(data: bytes) -> tuple[ServerFirst, str]:
    """Read a server's first message; return it, and its text. Raises InvalidCredentialsError."""
    match = _match(_SERVER_FIRST, data, "server first")
    iterations = int(match["iterations"])
    if iterations <= 0:
        raise InvalidCredentialsError("Invalid SCRAM server first message format: invalid iterations")
    return ServerFirst(match["nonce"], _decoded(match["salt"]), iterations), match[0]


def parse_client_final(data: bytes) -> ClientFinal:
    """Read a client's last message; raises InvalidCredentialsError."""
    match = _match(_CLIENT_FINAL, data, "client final")
    return ClientFinal(_decoded(match["channel"]), match["nonce"], match["without_proof"], _decoded(match["proof"]))


def parse_server_final(data: bytes) -> tuple[bytes, str | None]:
    """Read a server's last message; return its signature, or the error. Raises InvalidCredentialsError."""
    match = _match(_SERVER_FINAL, data, "server final")
    return _decoded(match["signature"] or ""), match["error"]


def escape(user: str) -> str:
    """Write a user's name (rule 1)."""
    return user.replace("=", "=3D").replace(",", "=2C")


def unescape(name: str) -> str:
    """Read a user's name (rule 1)."""
    return name.replace("=2C", ",").replace("=3D", "=")


def auth_message(client_first_bare: str, server_first: str, client_final_without_proof: str) -> bytes:
    """Return what both sides sign."""
    return f"{client_first_bare},{server_first},{client_final_without_proof}".encode()


def _match(pattern: re.Pattern[str], data: bytes, name: str) -> re.Match[str]:
    match = pattern.fullmatch(data.decode("utf-8", "replace"))
    if match is None:
        raise InvalidCredentialsError(f"Invalid SCRAM {name} message format")
    return match


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise InvalidCredentialsError("Invalid base64 in a SCRAM message") from error
