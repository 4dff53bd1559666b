"""A token that was checked, and how a check fails.

Source: OAuthBearerToken, ClaimValidationUtils, OAuthBearerUnsecuredJws, OAuthBearerValidationUtils (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"
#: Why a bound: a token's time of expiry becomes a number of nanoseconds.
_SECONDS_MAX: Final = 1 << 40


class InvalidTokenError(Exception):
    """A token was refused. The client sees `status` and `scope`; the text is for the server's log."""

    def __init__(self, reason: str, status: str = INVALID_TOKEN, scope: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


@dataclass(frozen=True, slots=True)
class OAuthToken:
    """What a checked token says."""

    user: str
    expires_ms: int
    scope: frozenset[str] = frozenset()


def numeric(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a claim that is a number of seconds; None if it is missing."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _SECONDS_MAX:
        raise InvalidTokenError(f"the claim {name} is not a time in seconds")
    return value


def text(claims: Mapping[str, Any], name: str) -> str:
    """Return a claim that is a text of more than spaces."""
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidTokenError(f"the claim {name} is not a text, or empty")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # JSON can escape half a character; no message, log or page could show it
        raise InvalidTokenError(f"the claim {name} has half a character") from error
    return value.strip()


def scopes(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """Return a claim that is a text or a list of texts."""
    value = claims.get(name)
    items = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    if not all(isinstance(item, str) and item.strip() for item in items):
        raise InvalidTokenError(f"the claim {name} has an empty scope")
    return frozenset(item.strip() for item in items)


def check_times(claims: Mapping[str, Any], now_ms: int, skew_ms: int) -> float:
    """Check exp, nbf and iat against the clock and each other; return exp in seconds."""
    expires, not_before, issued = numeric(claims, "exp"), numeric(claims, "nbf"), numeric(claims, "iat")
    if expires is None:
        raise InvalidTokenError("the claim exp is missing")
    if now_ms >= expires * 1000 + skew_ms:
        raise InvalidTokenError("the token is expired")
    if not_before is not None and now_ms + skew_ms < not_before * 1000:
        raise InvalidTokenError("the token is not valid yet")
    if issued is not None and expires <= issued:
        raise InvalidTokenError("the token expires before it is issued")
    return expires
