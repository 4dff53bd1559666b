"""Request handlers over a real network layer: parked, blocked and failing requests, and the size of the pool."""

from __future__ import annotations

import contextlib
import logging

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k12_heartbeat import HeartbeatResponse
from tests.support.broker.network import (
    HEARTBEAT,
    HEARTBEAT_VERSION,
    TIMEOUT_S,
    Client,
    Network,
    heartbeat,
)
from tests.support.waiting import eventually


def test_a_request_is_answered(bystander: Client) -> None:
    assert [bystander.heartbeat("ok", number) for number in range(2, 50)] == [ErrorCode.NONE] * 48


@pytest.mark.parametrize("version", range(HEARTBEAT_VERSION + 1))
def test_every_version_is_answered(network: Network, version: int) -> None:
    with network.client() as client:
        client.send(heartbeat("ok", 7, version))
        assert client.receive(HEARTBEAT, version, 7).error_code == ErrorCode.NONE


def test_a_parked_request_is_answered_by_the_thread_that_completes_it(network: Network) -> None:
    with network.client() as waiting, network.client() as other:
        waiting.send(heartbeat("park", 3))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        assert other.heartbeat("ok") == ErrorCode.NONE
        answer = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        assert network.services.deferred[0].complete(answer)
        response = waiting.receive(HEARTBEAT, HEARTBEAT_VERSION, 3)
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_requests_behind_a_parked_one_in_the_same_write_wait_for_it(network: Network) -> None:
    with network.client() as client:
        kinds = ["ok", "none", "move:before", "park", "move:after", "ok"]
        client.send(b"".join(heartbeat(kind, number) for number, kind in enumerate(kinds)))
        for number in (0, 2):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        (connection,) = network.connections()

        def waits_for() -> int:
            request = connection.request
            return -1 if request is None else request.header.correlation_id

        eventually("the processor waits for the parked request", lambda: waits_for() == 3)
        assert network.services.completed == ["before"]
        answer = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        assert network.services.deferred[0].complete(answer)
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 3).error_code == ErrorCode.REBALANCE_IN_PROGRESS
        for number in (4, 5):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert network.services.completed == ["before", "after"]


def test_bugs_are_logged_and_answered(network: Network, bystander: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), network.client() as client:
        assert client.heartbeat("error", 1557) == ErrorCode.NOT_COORDINATOR
        assert "Request 1557 from client=test failed with NOT_COORDINATOR (Heartbeat v4" in caplog.text
        assert client.heartbeat("bug", 1558) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "correlation id 1558 from client=test" in caplog.text
        assert client.heartbeat("not-encodable", 3) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.heartbeat("move:broken", 4) == ErrorCode.NONE
        assert client.heartbeat("unheard-of", 5) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.heartbeat("ok", 6) == ErrorCode.NONE
    # Why eventually: keys are completed after the answer is queued, and another handler may take the next request.
    eventually("the key is completed", lambda: network.services.completed == ["broken"])


def test_a_full_request_queue_delays_clients_and_loses_nothing() -> None:
    with Network(handlers=2, queued_max_requests=3) as network, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(60)]
        for number, client in enumerate(clients):
            client.send(heartbeat("wait", number))
        for _ in range(2):
            assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        eventually("the queue is full", lambda: network.channel.request_queue_size() == 3)
        network.services.gate.set()
        for number, client in enumerate(clients):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE


def test_one_blocked_handler_does_not_delay_the_others(network: Network, bystander: Client) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(7):
            stack.enter_context(network.client()).send(heartbeat("wait", number))
            assert network.services.arrived.acquire(timeout=TIMEOUT_S)
            for again in range(20):
                bystander.heartbeat("ok", again)
        network.services.gate.set()
