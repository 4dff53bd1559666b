"""SecurityLookup: SCRAM credentials and delegation tokens, found in the security metadata.

A token's credential is derived from its password, which takes a millisecond. So the last ones are kept.

Threads: any; the kept credentials are immutable, and two threads may derive the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock
from barnabas.config.config import Config
from barnabas.security.sasl.scram.formulas import Looks, looks_of, make_credential
from barnabas.security.sasl.scram.server import TokenLogin
from barnabas.security.tokens import token_password
from barnabas.security.values import ScramCredential, ScramKey, ScramMechanism

if TYPE_CHECKING:
    from barnabas.security.image import SecurityImage

KEPT_MAX: Final = 1024
#: Credentials whose looks are counted, and different looks. Why bounded: a login counts after each change of a user.
COUNTED_MAX: Final = 4096
LOOKS_MAX: Final = 16


class SecurityLookup:
    """See the module and ScramLookup. `image` returns the newest metadata."""

    def __init__(self, image: Callable[[], SecurityImage], config: Config, clock: Clock) -> None:
        # Fixed before start.
        self._image = image
        self._config = config
        self._clock = clock
        self._derive = lru_cache(KEPT_MAX)(_derive)
        # What was counted, and the result; replaced whole.
        self._looks: tuple[Mapping[ScramKey, ScramCredential], dict[ScramMechanism, dict[Looks, int]]] = ({}, {})

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """See ScramLookup."""
        return self._image().credentials.get(ScramKey(user, mechanism))

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """See ScramLookup."""
        secret = self._config.delegation_token_secret_key
        token = self._image().tokens.get(token_id)
        if secret is None or token is None or token.is_expired(self._clock.wall_ms()):
            return None
        return TokenLogin(token.owner, token.expiry_timestamp_ms, self._derive(mechanism, secret.value, token_id))

    def looks(self, mechanism: ScramMechanism) -> Mapping[Looks, int]:
        """See ScramLookup."""
        credentials = self._image().credentials
        counted, looks = self._looks
        if counted is not credentials:
            looks = _count_looks(credentials)
            self._looks = credentials, looks
        return looks.get(mechanism, {})


def _count_looks(credentials: Mapping[ScramKey, ScramCredential]) -> dict[ScramMechanism, dict[Looks, int]]:
    found: dict[ScramMechanism, Counter[Looks]] = {}
    for key, credential in islice(credentials.items(), COUNTED_MAX):
        found.setdefault(key.mechanism, Counter())[looks_of(credential)] += 1
    return {mechanism: dict(counts.most_common(LOOKS_MAX)) for mechanism, counts in found.items()}


def _derive(mechanism: ScramMechanism, secret: str, token_id: str) -> ScramCredential:
    return make_credential(mechanism, token_password(secret, token_id))
