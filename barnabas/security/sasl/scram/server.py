"""The server's side of SCRAM, with users' passwords and with delegation tokens.

Rules
1. A user without a credential goes the same way as one with it, to the same failure at the end: with a salt that
   depends on the name and a secret, iterations that users have, and a proof that no client has. The cost is the same.
2. The extension `tokenauth=true` makes the user the id of a delegation token. The principal is then the token's owner,
   and the login ends with the token.
3. A client that asks for another authorization id than its own is refused before its proof is checked, as in Kafka.

Source: ScramSaslServer, ScramServerCallbackHandler (Kafka 4.3). Different: Kafka refuses an unknown user in answer to
the first message.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from barnabas.common import digests
from barnabas.security.principal import user as user_principal
from barnabas.security.sasl.mechanism import AuthenticationError, Identity, InvalidCredentialsError
from barnabas.security.sasl.scram.formulas import Looks, digest, fake_looks, false_salt, mac, random_text, xor
from barnabas.security.sasl.scram.messages import (
    ClientFirst,
    ServerFirst,
    auth_message,
    parse_client_final,
    parse_client_first,
)
from barnabas.security.values import SCRAM_MIN_ITERATIONS, ScramCredential, ScramMechanism


class TokenLogin(NamedTuple):
    """A delegation token, as a login needs it."""

    owner: str  # a principal
    expires_ms: int  # of the machine's clock, by which sessions end
    credential: ScramCredential


#: Stands for the login of a token that does not exist.
NO_LOGIN: Final = TokenLogin("", 0, ScramCredential(b"", b"", b"", 0))


class ScramLookup(Protocol):
    """Where credentials are found; called by network threads, so it must not wait."""

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """Return a user's credential."""

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """Return a delegation token that is not expired."""

    def looks(self, mechanism: ScramMechanism) -> Mapping[Looks, int]:
        """Return how many users' credentials have which looks; those of some will do."""


class ScramServer:
    """See the module and ServerMechanism. `secret` is the key of the salts of users that do not exist."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        lookup: ScramLookup,
        secret: bytes,
        nonce: Callable[[], str] = random_text,
    ) -> None:
        self._mechanism = mechanism
        self._lookup = lookup
        self._secret = secret
        self._nonce = nonce
        self.identity: Identity | None = None
        self._granted: Identity | None = None  # the identity after the right proof; None: no proof is right
        self._credential: ScramCredential | None = None  # None before the first message and after the last
        self._client_first: ClientFirst | None = None
        self._server_first: ServerFirst | None = None

    def evaluate(self, response: bytes) -> bytes:
        """Take the client's first or last message."""
        if self._credential is None:
            return self._first(response)
        credential, self._credential = self._credential, None
        return self._final(response, credential)

    def _first(self, response: bytes) -> bytes:
        if self._client_first is not None:
            raise InvalidCredentialsError("Unexpected message after the last one")
        first = self._client_first = parse_client_first(response)
        # Also for known users (rule 1).
        looks = fake_looks(self._secret, first.user, self._lookup.looks(self._mechanism))
        no_key = bytes(len(digest(self._mechanism, b"")))
        false = ScramCredential(false_salt(self._secret, first.user, looks), no_key, no_key, looks.iterations)
        self._granted, credential = self._find(first)
        if first.authorization_id and first.authorization_id != first.user:
            raise AuthenticationError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if credential is not None and credential.iterations < SCRAM_MIN_ITERATIONS:
            raise InvalidCredentialsError(
                f"Iterations {credential.iterations} is less than the minimum {SCRAM_MIN_ITERATIONS} for "
                f"{self._mechanism.mechanism_name}"
            )
        credential = self._credential = false if credential is None else credential
        self._server_first = ServerFirst(first.nonce + self._nonce(), credential.salt, credential.iterations)
        return self._server_first.text.encode()

    def _find(self, first: ClientFirst) -> tuple[Identity | None, ScramCredential | None]:
        if first.is_token:
            token = self._lookup.token(self._mechanism, first.user)
            shown = NO_LOGIN if token is None else token
            identity = Identity(shown.owner, shown.expires_ms, is_token=True)
            return (None, None) if token is None else (identity, shown.credential)
        credential = self._lookup.credential(self._mechanism, first.user)
        identity = Identity(user_principal(first.user))
        return (None if credential is None else identity), credential

    def _final(self, response: bytes, credential: ScramCredential) -> bytes:
        assert self._client_first is not None
        assert self._server_first is not None
        final = parse_client_final(response)
        if not digests.is_equal(final.nonce.encode(), self._server_first.nonce.encode()):
            raise InvalidCredentialsError("Invalid client nonce in the final client message.")
        signed = auth_message(self._client_first.bare, self._server_first.text, final.without_proof)
        signature = mac(self._mechanism, credential.stored_key, signed)
        if len(final.proof) != len(signature):
            raise InvalidCredentialsError("Invalid client credentials")
        found = digest(self._mechanism, xor(signature, final.proof))
        if not digests.is_equal(found, credential.stored_key) or self._granted is None:
            raise InvalidCredentialsError("Invalid client credentials")
        self.identity = self._granted
        return b"v=" + base64.b64encode(mac(self._mechanism, credential.server_key, signed))
