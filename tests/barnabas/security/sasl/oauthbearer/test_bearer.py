"""OAUTHBEARER's messages and both sides. Tests messages.py, server.py, client.py and token.py."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.security.sasl.mechanism import AuthenticationError, InvalidCredentialsError, RefusalError, SaslError
from barnabas.security.sasl.oauthbearer.client import OAuthBearerClient
from barnabas.security.sasl.oauthbearer.messages import client_first, parse_client_first
from barnabas.security.sasl.oauthbearer.server import OAuthBearerServer
from barnabas.security.sasl.oauthbearer.token import (
    InvalidTokenError,
    OAuthToken,
    check_times,
    scopes,
    text,
)
from tests.support.cpu_time import least_cpu_s

TOKEN = "abc.def-_~+/.x=="


def validate(token: str) -> OAuthToken:
    if token == TOKEN:
        return OAuthToken("alice", 99_000)
    if token == "broken":
        raise OSError("no keys")
    raise InvalidTokenError("the log's reason", "insufficient_scope" if token == "scope" else "invalid_token", "a b")


def test_a_login() -> None:
    server, client = OAuthBearerServer(validate), OAuthBearerClient(lambda: TOKEN, {"traceId": "123"})
    assert client.evaluate(server.evaluate(client.first())) is None
    assert client.is_complete
    assert server.identity is not None
    assert server.identity.principal == "User:alice"
    assert server.identity.expires_ms == 99_000
    assert server.identity.extensions == {"traceId": "123"}


def test_a_refused_token_is_acknowledged() -> None:
    server, client = OAuthBearerServer(validate), OAuthBearerClient(lambda: "scope", {})
    with pytest.raises(RefusalError, match="the log's reason") as refused:
        server.evaluate(client.first())
    error = refused.value.challenge
    assert error == b'{"status":"insufficient_scope", "scope":"a b"}'
    assert not server.identity
    acknowledgement = client.evaluate(error)
    assert acknowledgement == b"\x01"
    assert not client.is_complete
    with pytest.raises(AuthenticationError, match="insufficient_scope") as ended:
        server.evaluate(acknowledgement)
    assert "the log's reason" not in str(ended.value)
    with pytest.raises(SaslError):
        client.evaluate(error)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01token=Bearer abc\x01\x01",
        b"y,,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer abc\x011=2\x01\x01",
        b"n,,\x01auth=Bearer broken\x01\x01",
    ],
)
def test_invalid_messages(message: bytes) -> None:
    server = OAuthBearerServer(validate)
    with pytest.raises(InvalidCredentialsError) as caught:
        server.evaluate(message)
    assert "abc" not in str(caught.value)


def test_another_authorization_id_is_refused() -> None:
    message = f"n,a=bob,\x01auth=Bearer {TOKEN}\x01\x01".encode()
    with pytest.raises(AuthenticationError, match="is different from the token's principal name"):
        OAuthBearerServer(validate).evaluate(message)
    OAuthBearerServer(validate).evaluate(message.replace(b"bob", b"alice"))


def test_messages() -> None:
    message = client_first(TOKEN, {"a": "1", "b": "2 3"})
    assert parse_client_first(message) == (TOKEN, "", {"a": "1", "b": "2 3"})
    assert TOKEN not in repr(parse_client_first(message))
    assert parse_client_first(message.replace(b"Bearer", b"bEARER")).token == TOKEN


@pytest.mark.parametrize(
    ("claims", "is_valid"),
    [
        ({"exp": 101}, True),
        ({"exp": 100}, False),
        ({"exp": 95.5}, False),
        ({"exp": 101, "nbf": 100}, True),
        ({"exp": 200, "nbf": 101}, False),
        ({"exp": 200, "iat": 50}, True),
        ({"exp": 200, "iat": 200}, False),
        ({}, False),
        ({"exp": "200"}, False),
        ({"exp": True}, False),
        ({"exp": -1}, False),
        ({"exp": 1e300}, False),
        ({"exp": float("nan")}, False),
    ],
)
def test_times(claims: dict[str, Any], is_valid: bool) -> None:
    if is_valid:
        assert check_times(claims, 100_000, 0) == claims["exp"]
        return
    with pytest.raises(InvalidTokenError):
        check_times(claims, 100_000, 0)


def test_clocks_may_differ_a_little() -> None:
    assert check_times({"exp": 95, "nbf": 50}, 100_000, 6_000) == 95
    assert check_times({"exp": 200, "nbf": 105}, 100_000, 6_000) == 200
    with pytest.raises(InvalidTokenError, match="expired"):
        check_times({"exp": 95}, 100_000, 5_000)


@pytest.mark.parametrize("value", [None, "", "  ", 5, ["a"], {}])
def test_a_user_is_a_text(value: object) -> None:
    with pytest.raises(InvalidTokenError):
        text({"sub": value}, "sub")


def test_scopes() -> None:
    assert scopes({"scope": "a"}, "scope") == {"a"}
    assert scopes({"scp": [" a", "b"]}, "scp") == {"a", "b"}
    assert scopes({}, "scope") == frozenset()
    with pytest.raises(InvalidTokenError):
        scopes({"scope": ["a", ""]}, "scope")


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01" + b"a=b\x01" * 120_000,
        b"n,,\x01auth=" + b"a" * 500_000 + b"\x01\x01",
        b"n,,\x01auth=a" + b" " * 500_000 + b"\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * 500_000 + b"!\x01\x01",
        b"n,a=" + b"a" * 500_000,
    ],
)
def test_half_a_megabyte_of_nonsense_costs_little(message: bytes) -> None:
    def refused() -> None:
        with pytest.raises(InvalidCredentialsError):
            parse_client_first(message)

    assert least_cpu_s(refused) < 0.05


def test_extensions_are_bounded_since_the_connection_keeps_them() -> None:
    parts = "".join(f"\x01{'x' * number}=1" for number in range(1, 65))
    with pytest.raises(InvalidCredentialsError):
        parse_client_first(f"n,,\x01auth=Bearer {TOKEN}{parts}\x01\x01".encode())


def test_a_name_that_is_no_text() -> None:
    """JSON has escapes for half characters. A principal with one could be neither forwarded nor shown."""
    with pytest.raises(InvalidTokenError, match="half a character"):
        text({"sub": "alice\ud800"}, "sub")
