"""Both sides of GSSAPI, without libkrb5. Tests server.py, client.py and layers.py."""

from __future__ import annotations

import pytest

from barnabas.security.sasl.gssapi.client import GssapiClient
from barnabas.security.sasl.gssapi.errors import REPLAY, GssError
from barnabas.security.sasl.gssapi.layers import NO_LAYERS, has_no_layer
from barnabas.security.sasl.gssapi.library import Context
from barnabas.security.sasl.gssapi.names import ShortNamer
from barnabas.security.sasl.gssapi.server import GssapiServer
from barnabas.security.sasl.mechanism import AuthenticationError, InvalidCredentialsError, TransientError
from tests.barnabas.security.sasl.gssapi.contexts import SIGNED, acceptor, initiator

CHOICE = SIGNED + NO_LAYERS
NAMES = ShortNamer(["DEFAULT"], "R")


def server(context: Context | None = None) -> GssapiServer:
    return GssapiServer(context or acceptor(), NAMES.short_name)


def test_a_login() -> None:
    ours, client = server(), GssapiClient(initiator)
    token: bytes | None = client.first()
    seen = []
    while token is not None:
        answer = ours.evaluate(token)
        seen.append((token, answer))
        token = client.evaluate(answer or b"")
    assert seen == [(b"ticket", b"proof"), (b"", SIGNED + b"\x01\0\0\0"), (SIGNED + b"\x01\0\0\0", None)]
    assert client.is_complete
    assert ours.identity is not None
    assert (ours.identity.principal, ours.identity.expires_ms) == ("User:alice", None)


def test_a_client_that_asks_for_no_proof_is_offered_layers_at_once() -> None:
    ours = server(acceptor(is_mutual=False))
    assert ours.evaluate(b"ticket") == SIGNED + NO_LAYERS
    assert ours.evaluate(CHOICE) is None
    assert ours.identity is not None


@pytest.mark.parametrize("message", [NO_LAYERS + b"bob@R", b"\x01\0\xff\xff", b"\x07\0\0\0"])
def test_an_authorization_id_and_a_size_have_no_effect(message: bytes) -> None:
    """kafka-python sends back the size that it was offered, and its principal."""
    ours = server()
    ours.evaluate(b"ticket")
    ours.evaluate(b"")
    assert ours.evaluate(SIGNED + message) is None
    assert ours.identity is not None
    assert ours.identity.principal == "User:alice"


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([b"other"], "Invalid token was supplied"),
        ([b""], "Invalid token was supplied"),
        ([b"ticket", b"more"], "before it was offered layers"),
        ([b"ticket", b"", b"unsigned"], "invalid MIC"),
        ([b"ticket", b"", b""], "invalid MIC"),
        ([b"ticket", b"", SIGNED], "security layer"),
        ([b"ticket", b"", SIGNED + b"\x01\0\0"], "security layer"),
        ([b"ticket", b"", SIGNED + b"\x04\0\0\0"], "security layer"),
        ([b"ticket", b"", CHOICE, CHOICE], "after the last one"),
    ],
)
def test_other_messages_end_a_login_and_say_nothing(messages: list[bytes], reason: str) -> None:
    ours = server()
    for message in messages[:-1]:
        ours.evaluate(message)
    with pytest.raises(InvalidCredentialsError, match=reason):
        ours.evaluate(messages[-1])


@pytest.mark.parametrize("principal", ["alice@OTHER", "a/b/c@R", "alice@R@R", "a\nERROR b@OTHER"])
def test_a_principal_without_a_user_fails(principal: str) -> None:
    ours = server(acceptor(principal))
    ours.evaluate(b"ticket")
    ours.evaluate(b"")
    with pytest.raises(InvalidCredentialsError) as caught:
        ours.evaluate(CHOICE)
    assert "\n" not in str(caught.value)
    assert ours.identity is None


class Replayed:
    """A context whose ticket came before."""

    is_established = False

    def step(self, _token: bytes | None) -> bytes:
        raise GssError("Request is a replay", 0x96C73A00 + REPLAY)


def test_a_replay_may_succeed_in_a_moment() -> None:
    with pytest.raises(TransientError, match="replay"):
        server(Replayed()).evaluate(b"ticket")  # type: ignore[arg-type]


def established() -> GssapiClient:
    """A client that waits for the offer of layers."""
    client = GssapiClient(initiator)
    client.first()
    assert client.evaluate(b"proof") == b""
    return client


@pytest.mark.parametrize("challenge", [b"unsigned", b"", SIGNED + b"\x06\0\0\0", SIGNED + b"\x01"])
def test_a_client_refuses_other_offers(challenge: bytes) -> None:
    client = established()
    with pytest.raises(AuthenticationError):
        client.evaluate(challenge)
    assert not client.is_complete


def test_a_client_refuses_a_server_without_proof() -> None:
    client = GssapiClient(initiator)
    client.first()
    with pytest.raises(AuthenticationError, match="Invalid token"):
        client.evaluate(SIGNED + NO_LAYERS)


def test_a_client_refuses_a_message_after_the_last_one() -> None:
    client = established()
    assert client.evaluate(SIGNED + NO_LAYERS) == CHOICE
    with pytest.raises(AuthenticationError, match="after the last one"):
        client.evaluate(b"x")


def test_without_a_ticket_a_login_says_why() -> None:
    def begin() -> Context:
        raise GssError("No Kerberos credentials available")

    with pytest.raises(AuthenticationError, match="No Kerberos credentials"):
        GssapiClient(begin).first()


def test_layers() -> None:
    assert has_no_layer(NO_LAYERS)
    assert not has_no_layer(b"\x01\0\0")
    assert not has_no_layer(b"\x06\0\0\0")
