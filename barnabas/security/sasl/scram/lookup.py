"""SecurityLookup: SCRAM credentials and delegation tokens, found in the security metadata.

A token's credential is derived from its password, which takes a millisecond. So the last ones are kept. The same is
done for a token that does not exist, since the time of a failed login must not show that.

Threads: any; the kept credentials are immutable, and two threads may derive the same one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import Clock, MovedClock
from barnabas.config.config import Config
from barnabas.security.sasl.scram.formulas import Looks, looks_of, make_credential
from barnabas.security.sasl.scram.server import TokenLogin
from barnabas.security.tokens import token_password
from barnabas.security.values import ScramCredential, ScramKey, ScramMechanism, TokenInformation

if TYPE_CHECKING:
    from barnabas.security.image import SecurityImage

KEPT_MAX: Final = 1024
#: Credentials whose looks are counted, and different looks. Why bounded: a login counts after each change of a user.
COUNTED_MAX: Final = 4096
LOOKS_MAX: Final = 16
#: Stands for a token that does not exist.
NO_TOKEN: Final = TokenInformation("", "", "", (), 0, (1 << 63) - 1, (1 << 63) - 1)


class SecurityLookup:
    """See the module and ScramLookup. `image` returns the newest metadata."""

    def __init__(self, image: Callable[[], SecurityImage], config: Config, clock: Clock) -> None:
        # Fixed before start.
        self._image = image
        self._config = config
        self._clock = clock
        self._derive = lru_cache(KEPT_MAX)(_derive)
        # Why apart: ids that clients invent must not displace the credentials of tokens.
        self._derive_false = lru_cache(KEPT_MAX)(_derive_false)
        # What was counted, and the result; replaced whole.
        self._looks: tuple[Mapping[ScramKey, ScramCredential], dict[ScramMechanism, dict[Looks, int]]] = ({}, {})

    def credential(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """See ScramLookup."""
        return self._image().credentials.get(ScramKey(user, mechanism))

    def token(self, mechanism: ScramMechanism, token_id: str) -> TokenLogin | None:
        """See ScramLookup."""
        secret = self._config.delegation_token_secret_key
        if secret is None:
            return None
        # Why one way for all: see above.
        token = self._image().tokens.get(token_id, NO_TOKEN)
        is_known = not token.is_expired(self._clock.wall_ms()) and token is not NO_TOKEN
        derive = self._derive if is_known else self._derive_false
        # Why: the session ends by the machine's clock, and a token by one that may be ahead of it on purpose.
        expires_ms = token.expiry_timestamp_ms - (self._clock.offset_ms if isinstance(self._clock, MovedClock) else 0)
        login = TokenLogin(token.owner, expires_ms, derive(mechanism, secret.value, token_id))
        return login if is_known else None

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


def _derive_false(mechanism: ScramMechanism, _secret: str, token_id: str) -> ScramCredential:
    return make_credential(mechanism, token_id)
