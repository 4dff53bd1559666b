"""Acceptors on a loopback port: how connections are assigned to processors, and the limits on connections."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import threading

import pytest

from barnabas.broker.acceptor import UNAUTHENTICATED_WAIT_MAX
from barnabas.broker.network.connections import INBOX_SIZE
from barnabas.broker.network.unauthenticated.share import Share
from barnabas.broker.network.unauthenticated.steps import Steps
from barnabas.broker.request_channel import parallel_threads
from barnabas.common.clock import NS_PER_MS
from barnabas.common.logs import LINES_MAX
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ErrorCode
from tests.broker.test_tls_processing import SSL_KEYS
from tests.support.broker.network import (
    FETCH,
    FETCH_VERSION,
    HEARTBEAT,
    HEARTBEAT_VERSION,
    TIMEOUT_S,
    Client,
    ListenerRow,
    Network,
    fetch,
    heartbeat,
)
from tests.support.waiting import eventually

TOGETHER = parallel_threads(len(os.sched_getaffinity(0)))
ONE_AT_A_TIME = pytest.mark.skipif(TOGETHER > 1, reason="without a global lock, many cores fill several at a time")


def test_two_thousand_connections_at_once(network: Network, bystander: Client) -> None:
    count = 2_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * count + 200
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with contextlib.ExitStack() as stack:
        clients: list[Client] = []
        for _ in range(count // INBOX_SIZE):
            # Why no more at a time: a processor with a full inbox is skipped, and the assignment becomes random.
            clients.extend(stack.enter_context(network.client()) for _ in range(INBOX_SIZE))
            eventually("they are taken over", lambda: len(network.connections()) == len(clients) + 1)
        for number, client in enumerate(clients):
            client.send(heartbeat("ok", number))
        bystander.heartbeat("ok")
        for number, client in enumerate(clients):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert network.server.quotas.total() == count + 1
        by_processor = [len(processor.connections()) for processor in network.server.processors()]
        assert max(by_processor) - min(by_processor) < count // 2
    eventually("they are gone", lambda: network.server.quotas.total() == 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def loads(network: Network) -> list[int]:
    return [processor.load() for processor in network.server.processors()]


@ONE_AT_A_TIME
def test_processors_are_filled_one_after_another(network: Network) -> None:
    with contextlib.ExitStack() as stack:
        for expected in ([4, 0, 0], [4, 4, 0], [4, 4, 4]):
            for _ in range(4):
                assert stack.enter_context(network.client()).heartbeat("ok") == ErrorCode.NONE
            assert loads(network) == expected
        for _ in range(6):
            assert stack.enter_context(network.client()).heartbeat("ok") == ErrorCode.NONE
        assert loads(network) == [6, 6, 6]
    eventually("they are gone", lambda: network.server.quotas.total() == 0)
    assert loads(network) == [0, 0, 0]


def test_a_few_processors_are_filled_together(network: Network) -> None:
    (acceptor,) = network.server.acceptors.values()
    acceptor._filled_together = 2
    with contextlib.ExitStack() as stack:
        for expected in ([1, 0, 0], [1, 1, 0], [2, 1, 0], [2, 2, 0]):
            assert stack.enter_context(network.client()).heartbeat("ok") == ErrorCode.NONE
            assert loads(network) == expected
        for expected in ([4, 4, 0], [4, 4, 4]):
            for _ in range(4):
                assert stack.enter_context(network.client()).heartbeat("ok") == ErrorCode.NONE
            assert loads(network) == expected
    eventually("they are gone", lambda: network.server.quotas.total() == 0)


@ONE_AT_A_TIME
def test_connections_that_move_large_pieces_are_assigned_in_turn(network: Network) -> None:
    def count() -> list[int]:
        return [processor.metrics.connection_count for processor in network.server.processors()]

    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(4)]
        for client in clients:
            client.heartbeat("ok")
        assert loads(network) == count() == [4, 0, 0]
        for client in clients:
            # Requests pipelined behind the large piece are read by the processor that owns the connection by then.
            client.send(fetch(100_000, 1) + heartbeat("ok", 2) + fetch(100_000, 3) + heartbeat("park:5", 4))
        for client in clients:
            for number, key, version in ((1, FETCH, FETCH_VERSION), (2, HEARTBEAT, HEARTBEAT_VERSION)):
                client.receive(key, version, number)
            client.receive(FETCH, FETCH_VERSION, 3)
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 4).error_code == ErrorCode.REQUEST_TIMED_OUT
        assert loads(network) == count() == [2, 1, 1]
    eventually("they are gone", lambda: loads(network) == count() == [0, 0, 0])
    eventually("none is counted", lambda: network.server.quotas.total() == 0)


@ONE_AT_A_TIME
def test_connections_that_come_at_once_stay_together() -> None:
    """Although their processor takes none of them over for a while."""
    limits = {"num_network_threads": 2, "handlers": 1, "queued_max_requests": 1}
    with Network(barnabas_connections_per_processor=64, **limits) as network, contextlib.ExitStack() as stack:
        working = [stack.enter_context(network.client()) for _ in range(3)]
        network.block_processor(*working)
        clients = [stack.enter_context(network.client()) for _ in range(2 * INBOX_SIZE)]
        eventually("all are accepted", lambda: sum(loads(network)) == len(working) + len(clients))
        assert loads(network) == [len(working) + len(clients), 0]
        network.services.gate.set()
        for client in clients:
            client.heartbeat("ok")


def test_connections_assigned_in_turn_stay_with_their_processor() -> None:
    with Network(barnabas_connections_per_processor=1) as network, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(4)]
        for client in clients:
            client.heartbeat("ok")
        before = loads(network)
        assert before == [2, 1, 1]
        for client in clients[:3]:
            client.send(fetch(100_000, 1))
            client.receive(FETCH, FETCH_VERSION, 1)
        assert loads(network) == before


def test_clients_that_are_not_authenticated_wait_where_they_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Steps, "wait_ns", lambda _: NS_PER_MS)  # no processor takes one over
    count = 3 * INBOX_SIZE
    limits = {"num_network_threads": 2, "barnabas_connections_per_processor": 999 if TOGETHER == 1 else 1}
    with Network(listeners=(ListenerRow("SSL", "SSL"),), originals=SSL_KEYS, **limits) as network:
        (acceptor,) = network.server.acceptors.values()
        with contextlib.ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(network.client("SSL"))
            eventually("all are accepted", lambda: sum(loads(network)) + len(acceptor._waiting) == count)
            assert loads(network) == ([INBOX_SIZE, 0] if TOGETHER == 1 else [INBOX_SIZE] * 2)


def test_an_address_has_a_limit() -> None:
    with Network(max_connections_per_ip=10, max_connections_per_ip_overrides="127.0.0.1:2") as network:
        with network.client() as first, network.client() as second:
            assert first.heartbeat("ok") == second.heartbeat("ok") == ErrorCode.NONE
            with network.client() as third:
                assert third.is_closed_by_server()
            assert first.heartbeat("ok") == ErrorCode.NONE
        eventually("they are gone", lambda: network.server.quotas.total() == 0)
        with network.client() as fourth:
            assert fourth.heartbeat("ok") == ErrorCode.NONE


def test_an_address_over_its_limit_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with Network(max_connections_per_ip=1) as network, network.client() as first:
        first.heartbeat("ok")
        for _ in range(LINES_MAX + 20):
            with network.client() as another:
                assert another.is_closed_by_server()
    assert sum("rejected connection" in message for message in caplog.messages) == LINES_MAX


def test_under_load_few_wait_for_a_processor_and_those_that_left_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest wait in the acceptor, where networks take turns; no handshake is wasted on clients that gave up."""
    may_go_on = threading.Event()
    wait_ns = Steps.wait_ns
    # Processors take nothing over before the event is set.
    monkeypatch.setattr(Steps, "wait_ns", lambda steps: wait_ns(steps) if may_go_on.is_set() else NS_PER_MS)
    monkeypatch.setattr(Share, "is_free", lambda _: False)
    limits = {"num_network_threads": 1}
    with Network(listeners=(ListenerRow("SSL", "SSL"),), originals=SSL_KEYS, **limits) as network:
        (processor,) = network.server.acceptors["SSL"].processors
        with contextlib.ExitStack() as stack:
            for _ in range(UNAUTHENTICATED_WAIT_MAX):
                stack.enter_context(network.client("SSL"))
            eventually("some wait for the processor", lambda: processor.load() == UNAUTHENTICATED_WAIT_MAX)
            gone = [stack.enter_context(network.client("SSL")) for _ in range(5)]
            late = stack.enter_context(network.client("SSL"))
            for client in gone:
                client.sock.shutdown(socket.SHUT_WR)
            assert processor.load() == UNAUTHENTICATED_WAIT_MAX
            may_go_on.set()
            assert all(client.is_closed_by_server() for client in gone)
            eventually("the others are taken over", lambda: processor.handshakes() == UNAUTHENTICATED_WAIT_MAX + 1)
            late.sock.shutdown(socket.SHUT_WR)
            assert late.is_closed_by_server()


def test_over_the_limit_clients_wait_in_the_backlog() -> None:
    with Network(max_connections=1) as network:
        with network.client() as first, network.client() as second:
            first.heartbeat("ok")
            second.send(heartbeat("ok", 8))
            second.sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                second.sock.recv(1)
            second.sock.settimeout(TIMEOUT_S)
            first.sock.close()
            assert second.receive(HEARTBEAT, HEARTBEAT_VERSION, 8).error_code == ErrorCode.NONE
        blocked = network.registry.meter(catalogue.ACCEPTOR_BLOCKED_PERCENT, listener="PLAINTEXT")
        assert blocked.count > 0


def test_a_broker_connection_over_the_limit_closes_the_least_recently_used_client_connection() -> None:
    rows = (ListenerRow("CLIENT"), ListenerRow("BROKER"))
    limits = {"max_connections": 2, "num_network_threads": 1}
    with (
        Network(listeners=rows, inter_broker_listener="BROKER", **limits) as network,
        network.client("CLIENT") as idle,
        network.client("CLIENT") as busy,
    ):
        idle.heartbeat("ok")
        busy.heartbeat("ok")
        with network.client("BROKER") as broker:
            assert broker.heartbeat("ok") == ErrorCode.NONE
            assert idle.is_closed_by_server()
            assert busy.heartbeat("ok") == ErrorCode.NONE


def test_a_listener_has_its_own_limits() -> None:
    originals = {"listener.name.small.max.connections": "1", "listener.name.small.num.network.threads": "2"}
    with Network(listeners=(ListenerRow("SMALL"), ListenerRow("LARGE")), originals=originals) as network:
        assert [len(network.server.acceptors[name].processors) for name in ("SMALL", "LARGE")] == [2, 3]
        with network.client("SMALL") as first, network.client("SMALL") as second, network.client("LARGE") as third:
            first.heartbeat("ok")
            third.heartbeat("ok")
            second.send(heartbeat("ok", 2))
            second.sock.settimeout(0.05)
            with pytest.raises(TimeoutError):
                second.sock.recv(1)


def test_a_connection_of_an_address_that_is_too_fast_is_closed_later(network: Network, bystander: Client) -> None:
    network.server.quotas.set_address_rates({"127.0.0.1": 0.1})
    with network.client() as first:
        assert first.heartbeat("ok") == ErrorCode.NONE
        before_ms = network.clock.monotonic_ms()
        with network.client() as refused:
            assert refused.is_closed_by_server()
            assert network.clock.monotonic_ms() - before_ms >= 990
        assert network.server.quotas.total() == 2
        bystander.heartbeat("ok")
