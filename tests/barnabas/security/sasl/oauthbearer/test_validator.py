"""Signed tokens and the keys that check them. Tests validator.py, jwks.py and login.py."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from barnabas.common.clock import FakeClock
from barnabas.security.sasl.mechanism import AuthenticationError
from barnabas.security.sasl.oauthbearer.jwks import Jwks, JwksError, check_url, parse_keys, read_url
from barnabas.security.sasl.oauthbearer.login import ClientCredentials, ProviderTokens, token_of_file
from barnabas.security.sasl.oauthbearer.token import InvalidTokenError
from barnabas.security.sasl.oauthbearer.validator import Claims, JwtValidator, SigningKey
from tests.support.waiting import eventually

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


@pytest.mark.parametrize("body", [b"", b"[]", b'{"keys": 5}', b'{"keys": []}', b'{"keys": [{"kty": "oct"}]}'])
def test_sets_without_a_key(body: bytes) -> None:
    with pytest.raises(JwksError):
        parse_keys(body)


@pytest.mark.parametrize("url", ["http://example.org/k", "ftp://h/k", "/k", ""])
def test_addresses_that_are_not_used(url: str) -> None:
    with pytest.raises(JwksError):
        check_url(url)


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": JWKS["keys"][:1]}))
    keys = Jwks(path.as_uri(), CLOCK)
    keys.read_file()
    keys.start()
    try:
        assert [key.id for key in keys.find("rsa")] == ["rsa"]
        assert keys.find("ec") == []
        path.write_text(json.dumps(JWKS))
        keys.refresh()
        assert [key.id for key in keys.find("ec")] == ["ec"]
        path.write_text("damaged")
        assert keys.refresh() < 1000
        assert [key.id for key in keys.find("ec")] == ["ec"]
    finally:
        keys.stop()


def test_a_file_that_could_not_be_read_is_tried_until_it_can(tmp_path: Path) -> None:
    """Its time of change stays the same when only the rights to read it change, or the disk works again."""
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(JWKS))
    errors = [JwksError("Permission denied"), JwksError("Permission denied")]

    def read(url: str) -> bytes:
        if errors:
            raise errors.pop()
        return read_url(url)

    keys = Jwks(path.as_uri(), CLOCK, read=read)
    assert [keys.refresh() for _ in range(3)] == [200, 400, 1000]
    assert keys.find("rsa")


def test_a_file_that_is_missing_at_start(tmp_path: Path) -> None:
    with pytest.raises(JwksError, match=r"cannot read file:.*No such file"):
        Jwks((tmp_path / "none").as_uri(), CLOCK).read_file()


def test_an_unknown_key_id_is_looked_for_once_the_last_fetch_is_a_while_ago() -> None:
    clock = FakeClock()
    fetched: list[str] = []

    def read(url: str) -> bytes:
        fetched.append(url)
        return json.dumps(JWKS).encode()

    keys = Jwks("https://provider/keys", clock, read=read)
    keys.start()
    try:
        eventually("the keys are fetched", lambda: keys.find("rsa"))
        clock.advance_ms(60_000)
        assert keys.find("unknown") == []
        eventually("they are fetched again", lambda: len(fetched) >= 2)
    finally:
        keys.stop()


def test_a_failure_is_retried_after_growing_pauses() -> None:
    def read(_url: str) -> bytes:
        raise JwksError("down")

    keys = Jwks("https://provider/keys", CLOCK, retry_ms=100, retry_max_ms=1000, read=read)
    assert [keys.refresh() for _ in range(6)] == [200, 400, 800, 1000, 1000, 1000]


class Provider(BaseHTTPRequestHandler):
    """Answers requests for keys and tokens."""

    requests: list[tuple[str, str, str]] = []

    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
            return
        self._answer(b"x" * (2 << 20) if self.path == "/large" else json.dumps(JWKS).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        Provider.requests.append((self.path, self.headers["Authorization"], body))
        self._answer(b'{"access_token": "t%d", "expires_in": 100}' % len(Provider.requests))

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def provider() -> Any:
    server = HTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_keys_from_an_address(provider: str) -> None:
    assert len(parse_keys(read_url(f"{provider}/keys"))) == 3
    with pytest.raises(JwksError, match="more than"):
        read_url(f"{provider}/large")
    with pytest.raises(JwksError, match="302"):
        read_url(f"{provider}/moved")


def test_tokens_of_a_provider_are_used_until_they_grow_old(provider: str) -> None:
    clock = FakeClock()
    Provider.requests.clear()
    tokens = ProviderTokens(f"{provider}/token", ClientCredentials("id", "s3cret", "a b"), clock, 0.8)
    assert [tokens(), tokens()] == ["t1", "t1"]
    clock.advance_ms(80_000)
    assert tokens() == "t2"
    assert Provider.requests[0] == ("/token", "Basic aWQ6czNjcmV0", "grant_type=client_credentials&scope=a+b")
    assert "s3cret" not in repr(ClientCredentials("id", "s3cret", None))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"access_token": 5}',
        b'{"access_token": ""}',
        b'{"access_token": "t", "expires_in": Infinity}',
        b'{"access_token": "t", "expires_in": NaN}',
        b"[" * 100_000,
    ],
)
def test_a_provider_without_a_token(body: bytes) -> None:
    tokens = ProviderTokens("https://p", ClientCredentials("i", "s", None), FakeClock(), 0.8, lambda *_: body)
    with pytest.raises(AuthenticationError, match="the provider gave no token"):
        tokens()


def test_a_token_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(" abc\n")
    assert token_of_file(path.as_uri()) == "abc"
    with pytest.raises(AuthenticationError, match="there is no token"):
        token_of_file((tmp_path / "none").as_uri())
