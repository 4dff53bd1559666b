"""The client's side of GSSAPI (RFC 4752), with Kerberos: how a node or a command logs in.

The server must prove its identity as well. The client offers no authorization id: its principal is its identity.

Threads: the thread of the connection, which may wait for the KDC.
Source: SaslClientAuthenticator (Kafka 4.3), GssKrb5Client of the JDK.
"""

from __future__ import annotations

from collections.abc import Callable

from barnabas.security.sasl.gssapi.errors import GssError
from barnabas.security.sasl.gssapi.layers import NO_LAYERS, has_no_layer
from barnabas.security.sasl.gssapi.library import Context
from barnabas.security.sasl.mechanism import AuthenticationError


class GssapiClient:
    """See the module and ClientMechanism. `begin` gets a ticket and returns the context; raises GssError."""

    def __init__(self, begin: Callable[[], Context]) -> None:
        self._begin = begin
        self._context: Context | None = None  # set by `first`
        self.is_complete = False

    def first(self) -> bytes:
        """Return the first token."""
        try:
            self._context = self._begin()
            return self._context.step(None)
        except GssError as error:
            raise AuthenticationError(str(error)) from error

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Take a token, or the server's offer of layers."""
        context = self._context
        assert context is not None
        if self.is_complete:
            if challenge:
                raise AuthenticationError("the server sent a message after the last one")
            return None
        try:
            if not context.is_established:
                return context.step(challenge)
            if not has_no_layer(context.unwrap(challenge)):
                raise AuthenticationError("the server asks for a security layer, which Kafka's protocol has not")
            answer = context.wrap(NO_LAYERS)
        except GssError as error:
            raise AuthenticationError(str(error)) from error
        self.is_complete = True
        return answer
