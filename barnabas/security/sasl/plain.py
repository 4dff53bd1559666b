"""PLAIN (RFC 4616): user and password in one message.

    message = [authorization id] NUL user NUL password

Source: PlainSaslServer, PlainServerCallbackHandler, PlainSaslClient of the JDK (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from barnabas.common import digests
from barnabas.security.principal import user as user_principal
from barnabas.security.sasl.mechanism import AuthenticationError, Identity

#: Whether a user has this password.
CheckPassword = Callable[[str, str], bool]

USER_OPTION: Final = "user_"  # a server's JAAS options `user_NAME` hold the passwords
_TOKENS: Final = 3


def passwords_of(options: Mapping[str, str]) -> CheckPassword:
    """Return a check against the `user_…` options of a JAAS entry."""
    passwords = {name.removeprefix(USER_OPTION): text for name, text in options.items() if name.startswith(USER_OPTION)}

    def check(user: str, password: str) -> bool:
        expected = passwords.get(user)
        # Why compared anyway: an unknown user must take as long as a known one.
        is_equal = digests.is_equal(password.encode(), ("" if expected is None else expected).encode())
        return is_equal and expected is not None

    return check


class PlainServer:
    """The server's side; see ServerMechanism."""

    def __init__(self, check: CheckPassword) -> None:
        self._check = check
        self.identity: Identity | None = None

    def evaluate(self, response: bytes) -> bytes:
        """Check the only message of a client."""
        tokens = response.decode("utf-8", "replace").split("\0", _TOKENS)
        if len(tokens) != _TOKENS:
            raise AuthenticationError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(tokens)}")
        authorization_id, user, password = tokens
        if not user:
            raise AuthenticationError("Authentication failed: username not specified")
        if not password:
            raise AuthenticationError("Authentication failed: password not specified")
        try:
            is_right = self._check(user, password)
        except Exception as error:
            raise AuthenticationError("Authentication failed: credentials for user could not be verified") from error
        if not is_right:
            raise AuthenticationError("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.identity = Identity(user_principal(user))
        return b""


class PlainClient:
    """The client's side; see ClientMechanism."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password
        self.is_complete = False

    def first(self) -> bytes:
        """Return the only message."""
        self.is_complete = True
        return f"\0{self._user}\0{self._password}".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Take the server's empty message."""
        if challenge:
            raise AuthenticationError("the server sent a challenge, which PLAIN does not have")
        return None
