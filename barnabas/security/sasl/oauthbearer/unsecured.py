"""Tokens without a signature, for development: everybody can write them.

A server checks them only if its settings ask for that by name (settings.py). The JAAS options are Kafka's:
`unsecuredValidatorPrincipalClaimName`, `…ScopeClaimName`, `…RequiredScope`, `…AllowableClockSkewMs` of the server, and
`unsecuredLoginStringClaim_NAME`, `…NumberClaim_NAME`, `…ListClaim_NAME`, `unsecuredLoginPrincipalClaimName`,
`…LifetimeSeconds` of the client.

Source: OAuthBearerUnsecuredValidatorCallbackHandler, OAuthBearerUnsecuredLoginCallbackHandler (Kafka 4.3).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.security.sasl.oauthbearer.server import Validate
from barnabas.security.sasl.oauthbearer.token import (
    INSUFFICIENT_SCOPE,
    InvalidTokenError,
    OAuthToken,
    check_times,
    scopes,
    text,
)

PREFIX: Final = "unsecured"
_VALIDATOR: Final = "unsecuredValidator"
_LOGIN: Final = "unsecuredLogin"
_LIFETIME_S: Final = "3600"


def make_validator(options: Mapping[str, str], now_ms: Callable[[], int]) -> Validate:
    """Return a check of unsigned tokens by a JAAS entry's options; raises ValueError for invalid options."""
    principal_claim = options.get(f"{_VALIDATOR}PrincipalClaimName", "").strip() or "sub"
    scope_claim = options.get(f"{_VALIDATOR}ScopeClaimName", "").strip() or "scope"
    required = options.get(f"{_VALIDATOR}RequiredScope", "").split()
    skew_ms = int(options.get(f"{_VALIDATOR}AllowableClockSkewMs", "").strip() or 0)
    if skew_ms < 0:
        raise ValueError(f"{_VALIDATOR}AllowableClockSkewMs must not be negative")

    def validate(token: str) -> OAuthToken:
        claims = _claims(token)
        user, has = text(claims, principal_claim), scopes(claims, scope_claim)
        expires = check_times(claims, now_ms(), skew_ms)
        missing = [scope for scope in required if scope not in has]
        if missing:
            raise InvalidTokenError(f"the scope {missing[0]} is missing", INSUFFICIENT_SCOPE, " ".join(required))
        return OAuthToken(user, round(expires * 1000), has)

    return validate


def make_token(options: Mapping[str, str], now_ms: int) -> str:
    """Return a client's unsigned token by its JAAS entry's options; raises ValueError for invalid options."""
    claims: dict[str, Any] = {}
    for name, value in options.items():
        if name.startswith(f"{_LOGIN}StringClaim_"):
            claims[name.partition("_")[2]] = value
        elif name.startswith(f"{_LOGIN}NumberClaim_"):
            claims[name.partition("_")[2]] = float(value)
        elif name.startswith(f"{_LOGIN}ListClaim_") and value:
            claims[name.partition("_")[2]] = value[1:].split(value[0])
    principal_claim = options.get(f"{_LOGIN}PrincipalClaimName", "").strip() or "sub"
    text(claims, principal_claim)
    claims["iat"] = now_ms / 1000
    claims["exp"] = now_ms / 1000 + float(options.get(f"{_LOGIN}LifetimeSeconds", "").strip() or _LIFETIME_S)
    return f"{_encoded({'alg': 'none'})}.{_encoded(claims)}."


def _claims(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        raise InvalidTokenError("an unsigned token has three parts")
    if _decoded(parts[0]).get("alg") != "none":
        raise InvalidTokenError("the algorithm of an unsigned token must be none")
    if parts[2]:
        raise InvalidTokenError("an unsigned token has no signature")
    return _decoded(parts[1])


def _decoded(part: str) -> dict[str, Any]:
    try:
        value = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise InvalidTokenError("a part of the token is not JSON in base64") from error
    if not isinstance(value, dict):
        raise InvalidTokenError("a part of the token is not a JSON object")
    return value


def _encoded(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
