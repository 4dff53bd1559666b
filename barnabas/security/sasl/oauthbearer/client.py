"""The client's side of OAUTHBEARER.

Source: OAuthBearerSaslClient (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.security.sasl.mechanism import AuthenticationError
from barnabas.security.sasl.oauthbearer.messages import CONTROL_A, client_first


class OAuthBearerClient:
    """See the module and ClientMechanism. `token` returns a token that is valid now."""

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        self._is_refused = False
        self.is_complete = False

    def first(self) -> bytes:
        """Return the only message of a login that succeeds."""
        self.is_complete = True
        return client_first(self._token(), self._extensions)

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Take the server's message: empty, or an error, which is acknowledged once."""
        if not challenge:
            return None
        if self._is_refused:
            raise AuthenticationError("the server refused the token")
        self._is_refused = True
        self.is_complete = False
        return CONTROL_A
