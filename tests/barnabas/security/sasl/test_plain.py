"""PLAIN, both sides; mechanism.py holds what it shares with the others."""

from __future__ import annotations

import pytest

from barnabas.security.sasl.mechanism import AuthenticationError
from barnabas.security.sasl.plain import PlainClient, PlainServer, passwords_of

CHECK = passwords_of({"username": "admin", "password": "x", "user_alice": "secret", "user_bob": "", "user_e": "é"})


@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("e", "é")], ids=["ascii", "utf-8"])
def test_the_right_password(user: str, password: str) -> None:
    client, server = PlainClient(user, password), PlainServer(CHECK)
    assert server.evaluate(client.first()) == b""
    assert server.identity is not None
    assert server.identity.principal == f"User:{user}"
    assert server.identity.expires_ms is None
    assert client.evaluate(b"") is None
    assert client.is_complete


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0secret", "Authentication failed: Invalid username or password"),
        (b"\0bob\0x", "Authentication failed: Invalid username or password"),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"alice\0secret", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0secret\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\0a\0b\0c\0d\0e", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"bob\0alice\0secret", "Client requested an authorization id that is different from username"),
        (b"\0al\xffice\0secret", "Authentication failed: Invalid username or password"),
    ],
)
def test_failures(message: bytes, error: str) -> None:
    server = PlainServer(CHECK)
    with pytest.raises(AuthenticationError) as caught:
        server.evaluate(message)
    assert error in str(caught.value)
    assert server.identity is None


def test_an_authorization_id_may_be_the_user() -> None:
    server = PlainServer(CHECK)
    server.evaluate(b"alice\0alice\0secret")
    assert server.identity is not None


def test_a_failing_check_shows_nothing() -> None:
    def broken(user: str, password: str) -> bool:
        raise OSError("the directory of users is down")

    with pytest.raises(AuthenticationError) as caught:
        PlainServer(broken).evaluate(b"\0alice\0secret")
    assert str(caught.value) == "Authentication failed: credentials for user could not be verified"


def test_plain_has_no_challenge() -> None:
    with pytest.raises(AuthenticationError):
        PlainClient("a", "b").evaluate(b"challenge")
