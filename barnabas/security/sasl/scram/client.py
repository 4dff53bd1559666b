"""The client's side of SCRAM.

Source: ScramSaslClient (Kafka 4.3).
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Final

from barnabas.common import digests
from barnabas.security.sasl.mechanism import AuthenticationError
from barnabas.security.sasl.scram.formulas import (
    client_key,
    digest,
    mac,
    random_text,
    salted_password,
    server_key,
    xor,
)
from barnabas.security.sasl.scram.messages import (
    TOKEN_AUTH,
    auth_message,
    client_first_bare,
    parse_server_final,
    parse_server_first,
)
from barnabas.security.values import SCRAM_MIN_ITERATIONS, ScramMechanism

_GS2: Final = "n,,"
ITERATIONS_MAX: Final = 1_000_000  # Why: a false server could keep the client busy for hours


class ScramClient:
    """See the module and ClientMechanism. `is_token`: `user` is the id of a delegation token."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        *,
        is_token: bool = False,
        nonce: Callable[[], str] = random_text,
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce()
        self._bare = client_first_bare(user, self._nonce, {TOKEN_AUTH: "true"} if is_token else {})
        self._signature: bytes | None = None  # what the server must present; None before its first message
        self.is_complete = False

    def first(self) -> bytes:
        """Return the first message."""
        return (_GS2 + self._bare).encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        """Take the server's first or last message."""
        if self._signature is None:
            return self._prove(challenge)
        signature, error = parse_server_final(challenge)
        if error is not None:
            raise AuthenticationError(f"Sasl authentication using {self._mechanism.mechanism_name} failed with {error}")
        if not digests.is_equal(signature, self._signature):
            raise AuthenticationError("Invalid server signature in server final message")
        self.is_complete = True
        return None

    def _prove(self, challenge: bytes) -> bytes:
        mechanism = self._mechanism
        server_first, text = parse_server_first(challenge)
        if not server_first.nonce.startswith(self._nonce):
            raise AuthenticationError("Invalid server nonce: does not start with client nonce")
        if not SCRAM_MIN_ITERATIONS <= server_first.iterations <= ITERATIONS_MAX:
            raise AuthenticationError(
                f"Requested iterations {server_first.iterations} are not between {SCRAM_MIN_ITERATIONS} and "
                f"{ITERATIONS_MAX} for {mechanism.mechanism_name}"
            )
        salted = salted_password(mechanism, self._password, server_first.salt, server_first.iterations)
        key = client_key(mechanism, salted)
        final = f"c={base64.b64encode(_GS2.encode()).decode()},r={server_first.nonce}"
        signed = auth_message(self._bare, text, final)
        proof = xor(key, mac(mechanism, digest(mechanism, key), signed))
        self._signature = mac(mechanism, server_key(mechanism, salted), signed)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()
