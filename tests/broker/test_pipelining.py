"""Requests that only wait for other brokers let those behind them in; order is kept all the same."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k12_heartbeat import HeartbeatResponse
from broker.processors import IN_PROGRESS_MAX
from tests.support.network import HEARTBEAT, HEARTBEAT_VERSION, TIMEOUT_S, Client, Network, heartbeat


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
def client(network: Network) -> Iterator[Client]:
    with network.client() as client:
        yield client


def await_arrivals(network: Network, count: int) -> None:
    for _ in range(count):
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)


def complete(network: Network, index: int) -> None:
    """Answer a request that waits, with its index as the throttle time."""
    assert network.services.deferred[index].complete(HeartbeatResponse(throttle_time_ms=index))


def receive(client: Client, correlation_id: int) -> HeartbeatResponse:
    response = client.receive(HEARTBEAT, HEARTBEAT_VERSION, correlation_id)
    assert isinstance(response, HeartbeatResponse)
    return response


def test_answers_keep_the_order_of_the_requests(network: Network, client: Client) -> None:
    client.send(heartbeat("replicate", 1) + heartbeat("replicate", 2) + heartbeat("ok", 3))
    await_arrivals(network, 2)
    complete(network, 1)
    complete(network, 0)
    assert [receive(client, number).throttle_time_ms for number in (1, 2, 3)] == [0, 1, 3]


def test_what_is_being_carried_out_lets_nothing_in(network: Network, client: Client) -> None:
    client.send(heartbeat("replicate", 1) + heartbeat("park", 2) + heartbeat("replicate", 3))
    await_arrivals(network, 2)
    complete(network, 0)
    receive(client, 1)
    assert len(network.services.deferred) == 2
    complete(network, 1)
    receive(client, 2)
    await_arrivals(network, 1)
    complete(network, 2)
    receive(client, 3)


def test_so_many_may_wait_at_a_time(network: Network, client: Client) -> None:
    client.send(b"".join(heartbeat("replicate", number) for number in range(IN_PROGRESS_MAX + 2)))
    await_arrivals(network, IN_PROGRESS_MAX)
    assert not network.services.arrived.acquire(timeout=0.05)
    for number in range(IN_PROGRESS_MAX + 2):
        complete(network, number)
        receive(client, number)
        if number < 2:
            await_arrivals(network, 1)


def test_what_needs_no_answer_is_passed_over(network: Network, client: Client) -> None:
    client.send(heartbeat("replicate", 1) + heartbeat("none", 2) + heartbeat("replicate", 3))
    await_arrivals(network, 1)
    complete(network, 0)
    await_arrivals(network, 1)
    complete(network, 1)
    receive(client, 1)
    receive(client, 3)


def test_a_client_that_sends_no_more_is_still_answered(network: Network, client: Client) -> None:
    client.send(heartbeat("replicate", 1) + heartbeat("replicate", 2))
    client.sock.shutdown(socket.SHUT_WR)
    await_arrivals(network, 2)
    complete(network, 0)
    complete(network, 1)
    receive(client, 1)
    receive(client, 2)
    assert client.is_closed_by_server()


def test_garbage_ends_the_connection_after_the_answers(network: Network, client: Client) -> None:
    client.send(heartbeat("replicate", 1) + b"\xff\xff\xff\xff" + heartbeat("ok", 2))
    await_arrivals(network, 1)
    complete(network, 0)
    receive(client, 1)
    assert client.is_closed_by_server()


def test_the_last_answer_ends_the_connection_in_its_turn(network: Network, client: Client) -> None:
    client.send(heartbeat("replicate", 1) + heartbeat("last", 2) + heartbeat("ok", 3))
    await_arrivals(network, 1)
    complete(network, 0)
    receive(client, 1)
    receive(client, 2)
    assert client.is_closed_by_server()


def test_a_client_that_goes_away_hurts_nobody(network: Network) -> None:
    with network.client() as client:
        client.send(b"".join(heartbeat("replicate", number) for number in range(3)))
        await_arrivals(network, 3)
    complete(network, 1)
    with network.client() as other:
        assert other.heartbeat("ok") == ErrorCode.NONE
        complete(network, 0)
        complete(network, 2)
        assert other.heartbeat("ok", 2) == ErrorCode.NONE


def pipelining(network: Network, client: Client) -> None:
    """Have it known of the client that its requests let others in."""
    client.send(heartbeat("replicate", 1))
    await_arrivals(network, 1)
    complete(network, 0)
    receive(client, 1)


def test_what_was_read_together_is_handled_together(network: Network, client: Client) -> None:
    """Waiters are woken once, after the last; answers that do not wait hold those behind them up."""
    pipelining(network, client)
    kinds = ["replicate", "ok", "replicate", "none", "replicate"]
    client.send(b"".join(heartbeat(kind, number) for number, kind in enumerate(kinds, 2)))
    await_arrivals(network, 1)
    complete(network, 1)
    receive(client, 2)
    receive(client, 3)
    await_arrivals(network, 1)
    complete(network, 2)
    receive(client, 4)
    await_arrivals(network, 1)
    complete(network, 3)
    receive(client, 6)


def test_waiters_are_woken_once_after_the_last(network: Network, client: Client) -> None:
    pipelining(network, client)
    network.services.completed.clear()
    client.send(heartbeat("replicate-move:a", 2) + heartbeat("replicate-move:a", 3) + heartbeat("move:b", 4))
    await_arrivals(network, 2)
    complete(network, 2)
    complete(network, 1)
    for number in (2, 3, 4):
        receive(client, number)
    assert network.services.completed[-2:] == ["a", "b"]


def test_garbage_behind_what_was_read_with_it(network: Network, client: Client) -> None:
    pipelining(network, client)
    client.send(heartbeat("replicate", 2) + heartbeat("replicate", 3) + b"\xff\xff\xff\xff")
    await_arrivals(network, 2)
    complete(network, 2)
    complete(network, 1)
    receive(client, 2)
    receive(client, 3)
    assert client.is_closed_by_server()


def test_any_mixture_is_answered_in_order(network: Network) -> None:
    rng = random.Random(7)
    kinds = [rng.choice(["ok", "replicate:1", "replicate:4", "park:2", "none", "error"]) for _ in range(300)]
    with network.client() as client:
        client.send(b"".join(heartbeat(kind, number) for number, kind in enumerate(kinds)))
        for number, kind in enumerate(kinds):
            if kind != "none":
                receive(client, number)
