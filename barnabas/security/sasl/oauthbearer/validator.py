"""Checks signed JSON web tokens: the signature by a key of the provider, then the claims.

Rules
1. Only algorithms with a public key are accepted, each with keys of its kind: RS and PS with RSA, ES with the curve of
   its name, EdDSA with Ed25519 and Ed448. Not `none`, and no shared secrets.
2. exp and iat are required. aud must name one of the expected audiences; a token with aud is refused if none is
   expected. iss must be the expected issuer, if one is configured.
3. A token without a key id is tried with at most `KEYS_TRIED_MAX` keys.

Source: DefaultJwtValidator, BrokerJwtValidator, ClaimValidationUtils (Kafka 4.3), VerificationJwkSelector of jose4j.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import jwt

from barnabas.security.sasl.oauthbearer.token import (
    InvalidTokenError,
    OAuthToken,
    check_times,
    numeric,
    scopes,
    text,
)

KEYS_TRIED_MAX: Final = 8
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
#: The algorithms of a key, by `kty` and `crv`.
ALGORITHMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("RSA", ""): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
#: The checks that the library leaves to us, since it reads the clock itself.
_SIGNATURE_ONLY: Final = dict.fromkeys(
    ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss", "verify_sub", "verify_jti"), False
)


class SigningKey(NamedTuple):
    """A public key of the provider."""

    id: str | None
    algorithms: tuple[str, ...]
    key: Any  # of the library `cryptography`


class Keys(Protocol):
    """Where keys are found; called by network threads, so it must not wait."""

    def find(self, key_id: str | None) -> Sequence[SigningKey]:
        """Return the keys with this id; all keys for a token without one."""


class Claims(NamedTuple):
    """What is expected of a token's claims."""

    audiences: frozenset[str] = frozenset()
    issuer: str | None = None
    skew_ms: int = 0
    scope_claim: str = "scope"
    user_claim: str = "sub"


class JwtValidator:
    """Checks tokens with the keys of a provider; any thread may call it."""

    def __init__(self, keys: Keys, expected: Claims, now_ms: Callable[[], int]) -> None:
        self._keys = keys
        self._expected = expected
        self._now_ms = now_ms

    def __call__(self, token: str) -> OAuthToken:
        """Return what a token says; raises InvalidTokenError."""
        claims = self._verified(token)
        expected = self._expected
        if numeric(claims, "iat") is None:
            raise InvalidTokenError("the claim iat is missing")
        expires = check_times(claims, self._now_ms(), expected.skew_ms)
        self._check_audience(claims.get("aud"))
        if expected.issuer is not None and claims.get("iss") != expected.issuer:
            raise InvalidTokenError("the issuer is not the expected one")
        return OAuthToken(
            text(claims, expected.user_claim), round(expires * 1000), scopes(claims, expected.scope_claim)
        )

    def _verified(self, token: str) -> dict[str, Any]:
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
            raise InvalidTokenError("this is not a token") from error
        algorithm, key_id = header.get("alg"), header.get("kid")
        found = [key for key in self._keys.find(key_id) if algorithm in key.algorithms]
        if not found:
            raise InvalidTokenError("no key of the provider has the token's key id and algorithm")
        for key in found[:KEYS_TRIED_MAX]:
            try:
                claims: dict[str, Any] = jwt.decode(token, key.key, [str(algorithm)], options=dict(_SIGNATURE_ONLY))  # type: ignore[arg-type]
            except jwt.InvalidSignatureError:
                continue
            except (jwt.InvalidTokenError, ValueError, RecursionError) as error:
                raise InvalidTokenError("this is not a token") from error
            return claims
        raise InvalidTokenError("the signature is wrong")

    def _check_audience(self, audience: object) -> None:
        audiences = self._expected.audiences
        if audience is None and not audiences:
            return
        named = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(name, str) and name in audiences for name in named):
            raise InvalidTokenError("the audience is not an expected one")


def signing_key(jwk: Mapping[str, Any]) -> SigningKey | None:
    """Return a key of a JWKS; None if it is not for signatures, or of a kind that is not accepted."""
    algorithms = ALGORITHMS.get((str(jwk.get("kty")), "" if jwk.get("kty") == "RSA" else str(jwk.get("crv"))), ())
    named = jwk.get("alg")
    if named is not None:
        algorithms = tuple(algorithm for algorithm in algorithms if algorithm == named)
    if not algorithms or jwk.get("use", "sig") != "sig":
        return None
    try:
        key = jwt.PyJWK(dict(jwk), algorithms[0]).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    key_id = jwk.get("kid")
    return SigningKey(key_id if isinstance(key_id, str) else None, algorithms, key)
