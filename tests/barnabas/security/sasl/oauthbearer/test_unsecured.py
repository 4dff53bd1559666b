"""Tokens without a signature."""

from __future__ import annotations

import base64
import json

import pytest

from barnabas.security.sasl.oauthbearer.token import InvalidTokenError
from barnabas.security.sasl.oauthbearer.unsecured import make_token, make_validator

NOW_MS = 1_700_000_000_000
LOGIN = {"unsecuredLoginStringClaim_sub": "alice", "unsecuredLoginListClaim_scope": "|a|b"}


def test_what_a_client_makes_a_server_accepts() -> None:
    token = make_validator({}, lambda: NOW_MS)(make_token(LOGIN, NOW_MS))
    assert (token.user, token.expires_ms, token.scope) == ("alice", NOW_MS + 3_600_000, {"a", "b"})


def test_options() -> None:
    login = {
        "unsecuredLoginStringClaim_who": "bob",
        "unsecuredLoginPrincipalClaimName": "who",
        "unsecuredLoginLifetimeSeconds": "5",
        "unsecuredLoginNumberClaim_n": "1",
        "unsecuredLoginStringClaim_scp": "a",
    }
    server = {
        "unsecuredValidatorPrincipalClaimName": "who",
        "unsecuredValidatorScopeClaimName": "scp",
        "unsecuredValidatorRequiredScope": "a",
        "unsecuredValidatorAllowableClockSkewMs": "1000",
    }
    token = make_token(login, NOW_MS)
    assert make_validator(server, lambda: NOW_MS + 5_999)(token).user == "bob"
    with pytest.raises(InvalidTokenError, match="expired"):
        make_validator(server, lambda: NOW_MS + 6_000)(token)
    with pytest.raises(InvalidTokenError) as caught:
        make_validator({**server, "unsecuredValidatorRequiredScope": "a c"}, lambda: NOW_MS)(token)
    assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "a c")


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a.b",
        f"{encoded({'alg': 'HS256'})}.{encoded({'sub': 'a', 'exp': 2e9})}.",
        f"{encoded({})}.{encoded({'sub': 'a', 'exp': 2e9})}.",
        f"{encoded({'alg': 'none'})}.{encoded({'sub': 'a', 'exp': 2e9})}.AAAA",
        f"{encoded({'alg': 'none'})}.{encoded([])}.",
        f"{encoded({'alg': 'none'})}.{encoded({'exp': 2e9})}.",
        f"{encoded({'alg': 'none'})}.{encoded({'sub': 'a'})}.",
        f"{encoded({'alg': 'none'})}.!!!.",
        f"{encoded({'alg': 'none'})}.{base64.urlsafe_b64encode(b'[' * 100_000).decode()}.",
    ],
)
def test_invalid_tokens(token: str) -> None:
    with pytest.raises(InvalidTokenError):
        make_validator({}, lambda: NOW_MS)(token)


@pytest.mark.parametrize("skew", ["-1", "many"])
def test_invalid_options(skew: str) -> None:
    with pytest.raises(ValueError, match=r"negative|invalid literal"):
        make_validator({"unsecuredValidatorAllowableClockSkewMs": skew}, lambda: NOW_MS)
