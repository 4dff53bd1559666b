"""The server's side of GSSAPI (RFC 4752), with Kerberos.

States and their transitions
    CONTEXT ---- token --------------> CONTEXT, while libkrb5 needs more of them
    CONTEXT ---- last token ---------> ESTABLISHED if that has an answer; else OFFERED, and the offer is the answer
    ESTABLISHED  empty message ------> OFFERED: the answer is the offer of layers
    OFFERED ---- choice of a layer --> COMPLETE: no answer

Rules
1. The principal of the ticket is the client. Any authorization id is accepted, and has no effect.
2. The end of the ticket does not end the session: only `connections.max.reauth.ms` does.
3. A client whose principal has no user name fails its login. Kafka lets it in, and closes the connection at its first
   request.

Threads: the processor that owns the connection. No call waits for the KDC.
Source: SaslServerAuthenticator, SaslServerCallbackHandler, DefaultKafkaPrincipalBuilder (Kafka 4.3), GssKrb5Server of
the JDK.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from barnabas.security.principal import user as user_principal
from barnabas.security.sasl.gssapi.errors import GssError, shown
from barnabas.security.sasl.gssapi.layers import NO_LAYERS, has_no_layer
from barnabas.security.sasl.gssapi.library import Context
from barnabas.security.sasl.gssapi.names import KerberosNameError
from barnabas.security.sasl.mechanism import Identity, InvalidCredentialsError, TransientError


class State(Enum):
    """See the module."""

    CONTEXT = 0
    ESTABLISHED = 1
    OFFERED = 2
    COMPLETE = 3


class GssapiServer:
    """See the module and ServerMechanism. `short_name` turns a principal into a user; raises KerberosNameError."""

    def __init__(self, context: Context, short_name: Callable[[str], str]) -> None:
        self._context = context
        self._short_name = short_name
        self._state = State.CONTEXT
        self.identity: Identity | None = None

    def evaluate(self, response: bytes) -> bytes | None:
        """Take a message of the client."""
        try:
            if self._state is State.CONTEXT:
                return self._take_token(response)
            if self._state is State.ESTABLISHED:
                return self._offer(response)
            if self._state is State.OFFERED:
                self._conclude(response)
                return None
        except GssError as error:
            if error.is_transient:
                raise TransientError(f"GSSAPI: {error}") from error
            raise InvalidCredentialsError(str(error)) from error
        except KerberosNameError as unnamed:
            raise InvalidCredentialsError(shown(str(unnamed))) from unnamed
        raise InvalidCredentialsError("a message after the last one")

    def _take_token(self, token: bytes) -> bytes:
        answer = self._context.step(token)
        if not self._context.is_established:
            return answer
        self._state = State.ESTABLISHED
        return answer or self._offer(b"")

    def _offer(self, response: bytes) -> bytes:
        if response:
            raise InvalidCredentialsError("a message of the client's before it was offered layers")
        self._state = State.OFFERED
        return self._context.wrap(NO_LAYERS)

    def _conclude(self, response: bytes) -> None:
        if not has_no_layer(self._context.unwrap(response)):
            raise InvalidCredentialsError("the client asks for a security layer, which Kafka's protocol has not")
        self.identity = Identity(user_principal(self._short_name(self._context.initiator())))
        self._state = State.COMPLETE
