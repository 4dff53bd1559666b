"""OAUTHBEARER's messages.

    client first   n,[a=authorization id],^Aauth=Bearer TOKEN^A[name=value^A]^A
    server         empty, or an error as JSON, which the client answers with ^A

Source: RFC 7628; OAuthBearerClientInitialResponse (Kafka 4.3).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.security.sasl.mechanism import InvalidCredentialsError
from barnabas.security.sasl.scram.messages import EXTENSIONS_MAX, NAME

CONTROL_A: Final = b"\x01"

# As in SCRAM's messages: what is refused costs little, and extensions are kept as long as the connection.
_KEY: Final = r"[A-Za-z]++"
_VALUE: Final = r"[\x21-\x7e \t\r\n]++"
_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{NAME}))?,\x01(?P<pairs>(?:{_KEY}={_VALUE}\x01){{0,{EXTENSIONS_MAX}}}+)\x01"
)
_AUTH: Final = re.compile(r"(?P<scheme>\w++) ++(?P<token>[-_~+/.a-zA-Z0-9]++=*+)", re.ASCII)


class ClientFirst(NamedTuple):
    """The client's first message. Its repr hides the token."""

    token: str
    authorization_id: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        return f"ClientFirst(authorization_id={self.authorization_id!r}, extensions={sorted(self.extensions)})"


def parse_client_first(data: bytes) -> ClientFirst:
    """Read a client's first message; raises InvalidCredentialsError."""
    match = _FIRST.fullmatch(data.decode("utf-8", "replace"))
    if match is None:
        raise InvalidCredentialsError("Invalid OAUTHBEARER client first message")
    pairs: dict[str, str] = {}
    for pair in match["pairs"].split("\x01")[:-1]:
        name, _, value = pair.partition("=")
        pairs[name] = value
    auth = pairs.pop("auth", None)
    if auth is None:
        raise InvalidCredentialsError("Invalid OAUTHBEARER client first message: 'auth' not specified")
    found = _AUTH.fullmatch(auth)
    if found is None:
        raise InvalidCredentialsError("Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if found["scheme"].lower() != "bearer":
        raise InvalidCredentialsError("Invalid scheme in OAUTHBEARER client first message")
    return ClientFirst(found["token"], match["authzid"] or "", pairs)


def client_first(token: str, extensions: Mapping[str, str]) -> bytes:
    """Write a client's first message."""
    shown = "".join(f"\x01{name}={value}" for name, value in extensions.items())
    return f"n,,\x01auth=Bearer {token}{shown}\x01\x01".encode()
