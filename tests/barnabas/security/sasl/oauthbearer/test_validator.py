"""Signed tokens and the keys that check them."""

from __future__ import annotations

import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from barnabas.common.clock import FakeClock
from barnabas.security.sasl.oauthbearer.jwks import parse_keys
from barnabas.security.sasl.oauthbearer.token import InvalidTokenError
from barnabas.security.sasl.oauthbearer.validator import Claims, JwtValidator, SigningKey

CLOCK = FakeClock()
NOW_S = CLOCK.wall_ms() // 1000
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
OTHER = rsa.generate_private_key(65537, 2048)


def jwk(key: Any, algorithm: Any, **more: str) -> dict[str, Any]:
    return {**json.loads(algorithm.to_jwk(key.public_key())), **more}


JWKS = {
    "keys": [
        jwk(RSA, jwt.algorithms.RSAAlgorithm, kid="rsa"),
        jwk(EC, jwt.algorithms.ECAlgorithm, kid="ec", use="sig"),
        jwk(ED, jwt.algorithms.OKPAlgorithm, kid="ed"),
        jwk(OTHER, jwt.algorithms.RSAAlgorithm, kid="encrypts", use="enc"),
        {"kty": "oct", "kid": "shared", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
        {"kty": "RSA", "kid": "damaged", "n": "!"},
        "no key",
    ]
}
CLAIMS = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60, "scope": "a"}


class KeysHere:
    """Keys in memory."""

    def __init__(self) -> None:
        self.keys = parse_keys(json.dumps(JWKS).encode())

    def find(self, key_id: str | None) -> list[SigningKey]:
        return [key for key in self.keys if key_id in (None, key.id)]


def validator(**expected: Any) -> JwtValidator:
    return JwtValidator(KeysHere(), Claims(**expected), CLOCK.wall_ms)


def token(key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa", **changes: Any) -> str:
    claims = {name: value for name, value in {**CLAIMS, **changes}.items() if value is not None}
    return jwt.encode(claims, key, algorithm, {} if kid is None else {"kid": kid})


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "rsa"), (RSA, "PS512", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed"), (RSA, "RS256", None)],
)
def test_signed_tokens(key: Any, algorithm: str, kid: str | None) -> None:
    found = validator()(token(key, algorithm, kid))
    assert (found.user, found.expires_ms, found.scope) == ("alice", (NOW_S + 60) * 1000, {"a"})


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (token(OTHER), "the signature is wrong"),
        (token(OTHER, kid="encrypts"), "no key"),
        (token(OTHER, kid="unknown"), "no key"),
        (token(EC, "ES256", kid="rsa"), "no key"),
        (token("secret" * 6, "HS256", kid="shared"), "no key"),
        (token("secret" * 6, "HS256", kid=None), "no key"),
        (token("", "none", kid="rsa"), "no key"),
        (token("", "none", kid=None), "no key"),
        (token(exp=NOW_S - 31), "the token is expired"),
        (token(exp=None), "the claim exp is missing"),
        (token(iat=None), "the claim iat is missing"),
        (token(nbf=NOW_S + 31), "not valid yet"),
        (token(sub=None), "the claim sub"),
        (token(aud="us"), "the audience is not an expected one"),
        ("", "this is not a token"),
        ("a.b.c", "this is not a token"),
        (token()[:-8], "the signature is wrong|this is not a token"),
    ],
)
def test_refused_tokens(made: str, reason: str) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        validator(skew_ms=30_000)(made)


def test_a_public_key_is_no_shared_secret() -> None:
    """The classic forgery: HS256 with the text of the public key."""
    import base64
    import hashlib
    import hmac

    from cryptography.hazmat.primitives import serialization

    public = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)

    def part(value: object) -> bytes:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

    signed = part({"alg": "HS256", "kid": "rsa"}) + b"." + part(CLAIMS)
    signature = base64.urlsafe_b64encode(hmac.digest(public, signed, hashlib.sha256)).rstrip(b"=")
    with pytest.raises(InvalidTokenError, match="no key"):
        validator()((signed + b"." + signature).decode())


def test_audience_and_issuer() -> None:
    check = validator(audiences=frozenset({"us", "them"}), issuer="https://provider")
    assert check(token(aud="us", iss="https://provider"))
    assert check(token(aud=["x", "them"], iss="https://provider"))
    for changes in ({"aud": "x"}, {}, {"aud": "us", "iss": "other"}, {"aud": [5], "iss": "https://provider"}):
        with pytest.raises(InvalidTokenError):
            check(token(**changes))


def test_claims_of_other_names() -> None:
    check = validator(user_claim="client_id", scope_claim="scp")
    found = check(token(client_id=" bob ", scp=["x"]))
    assert (found.user, found.scope) == ("bob", {"x"})
