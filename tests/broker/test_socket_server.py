"""The network layer's life cycle, limits and metrics."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from barnabas.broker.acceptor import Acceptor
from barnabas.broker.network.connection_quotas import ConnectionQuotas
from barnabas.broker.network.connections import Accepted
from barnabas.broker.socket_server import SocketServer
from barnabas.common import net
from barnabas.common.clock import SystemClock
from barnabas.common.net import AddressError
from barnabas.metrics.meters import Meter
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ErrorCode
from tests.broker.test_tls_processing import SSL_KEYS
from tests.support.broker.network import (
    HEARTBEAT,
    HEARTBEAT_VERSION,
    TIMEOUT_S,
    Client,
    ListenerRow,
    Network,
    api_versions_request,
    heartbeat,
)
from tests.support.waiting import eventually


def test_threads_have_kafkas_names_and_all_end() -> None:
    before = set(threading.enumerate())
    with Network(handlers=2, num_network_threads=2) as network, network.client() as client:
        client.heartbeat("ok")
        port = network.server.port("PLAINTEXT")
        names = {thread.name for thread in set(threading.enumerate()) - before}
        assert names == {
            f"data-plane-kafka-socket-acceptor-ListenerName(PLAINTEXT)-PLAINTEXT-{port}",
            "data-plane-kafka-network-thread-0-ListenerName(PLAINTEXT)-PLAINTEXT-0",
            "data-plane-kafka-network-thread-0-ListenerName(PLAINTEXT)-PLAINTEXT-1",
            "data-plane-kafka-request-handler-0",
            "data-plane-kafka-request-handler-1",
            "ExpirationReaper-0-Heartbeat",
        }
        assert network.services.threads <= {"data-plane-kafka-request-handler-0", "data-plane-kafka-request-handler-1"}
        network.stop()
        assert client.is_closed_by_server()
        assert set(threading.enumerate()) <= before
        assert network.server.quotas.total() == 0


def test_requests_in_progress_are_answered_at_shutdown() -> None:
    with Network(handlers=2) as network, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(10)]
        for number, client in enumerate(clients):
            client.send(heartbeat("wait", number))
        for _ in range(2):  # both handlers have a request: else a queue of eight may still grow to ten
            assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        eventually("all were read", lambda: network.channel.request_queue_size() == 8)
        network.stop()
        for number, client in enumerate(clients):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
            assert client.is_closed_by_server()


def test_a_shutdown_under_load_ends() -> None:
    with Network(handlers=2, queued_max_requests=2) as network:
        stop = threading.Event()

        def load() -> None:
            with contextlib.suppress(OSError, EOFError), network.client() as client:
                while not stop.is_set():
                    client.send(heartbeat("ok", 1) * 20)
                    client.read(20)

        workers = [threading.Thread(target=load) for _ in range(8)]
        for worker in workers:
            worker.start()
        eventually("there is load", lambda: network.server.quotas.total() == 8)
        network.stop()
        stop.set()
        for worker in workers:
            worker.join(TIMEOUT_S)
            assert not worker.is_alive()


def test_a_server_that_never_started_ends() -> None:
    network = Network()
    with network.client() as client:  # the kernel accepts already
        network.server.shutdown()
        assert client.is_closed_by_server()


def test_pools_can_be_resized(network: Network, bystander: Client) -> None:
    network.server.resize(5)
    network.pool.resize(3)
    clients = [network.client() for _ in range(10)]
    assert [client.heartbeat("ok") for client in clients] == [ErrorCode.NONE] * 10
    eventually("handlers ended", lambda: sum("handler" in thread.name for thread in threading.enumerate()) == 3)
    network.server.resize(3)
    network.pool.resize(9)
    assert len(network.server.processors()) == 3
    alive = [client for client in clients if not _is_gone(client)]
    assert alive, "connections of the processors that stay are kept"
    assert [client.heartbeat("ok") for client in alive] == [ErrorCode.NONE] * len(alive)
    for client in clients:
        client.sock.close()


def test_limits_follow_the_config(network: Network, bystander: Client) -> None:
    server, config = network.server, network.server._config
    config.max_connections_per_ip = 1
    config.num_network_threads = 2
    config.current = {"listener.name.plaintext.max.connections": "100"}
    server.reconfigure()
    assert [len(acceptor.processors) for acceptor in server.acceptors.values()] == [2] * len(server.acceptors)
    with network.client() as second:
        assert second.is_closed_by_server(), "this address already has its one connection"


def _is_gone(client: Client) -> bool:
    client.send(heartbeat("ok", 77))
    try:
        return client.receive(HEARTBEAT, HEARTBEAT_VERSION, 77).error_code != ErrorCode.NONE
    except (OSError, EOFError):
        return True


def test_a_taken_port_is_an_error_at_start(network: Network) -> None:
    rows = (ListenerRow("FREE"), ListenerRow("TAKEN", port=network.server.port("PLAINTEXT")))
    with pytest.raises(AddressError, match="the port is taken by another process"):
        Network(listeners=rows)


def test_metrics_of_connections_and_requests(network: Network) -> None:
    with network.client() as client:
        client.send(api_versions_request(3, 1, "librdkafka", "2.5"))
        client.read_frame()
        client.heartbeat("error")
        gauges = {
            (row.name, labels): instrument.read()  # type: ignore[union-attr]
            for row, instruments in network.registry.collect()
            if row.kind is catalogue.GAUGE
            for labels, instrument in instruments
        }
        assert gauges["RequestQueueSize", ()] == 0
        assert gauges["RequestQueueCapacity", ()] == 500
        assert gauges["ResponseQueueSize", ("",)] == gauges["ResponseQueueSize", ("2",)] == 0
        assert 0 <= gauges["NetworkProcessorAvgIdlePercent", ()] <= 1
        assert sum(value for (name, _), value in gauges.items() if name == "connection-count") == 1
        software = [labels for name, labels in gauges if name == "connections"]
        assert [labels[:2] for labels in software] == [("librdkafka", "2.5")]

    def count(version: int, request: str) -> int:
        network.registry.collect()  # as a scrape does: requests are counted by the hundred
        return network.registry.meter(catalogue.REQUESTS_PER_SEC, request=request, version=version).count

    eventually("both are counted", lambda: (count(3, "ApiVersions"), count(4, "Heartbeat")) == (1, 1))
    errors = network.registry.meter(catalogue.ERRORS_PER_SEC, request="Heartbeat", error="NOT_COORDINATOR")
    assert errors.count == 1
    assert network.registry.histogram(catalogue.TOTAL_TIME_MS, request="Heartbeat").count == 1


def held_network(*more: ListenerRow) -> Network:
    """Return a network whose listener for clients waits; INTERNAL is that for nodes."""
    listeners = (ListenerRow(), *more)
    network = Network(handlers=1, num_network_threads=1, listeners=listeners, inter_broker_listener="INTERNAL")
    network.server.start = partial(network.server.start, holds_clients=True)  # type: ignore[method-assign]
    return network


def test_clients_wait_until_they_are_admitted() -> None:
    with held_network(ListenerRow("INTERNAL")) as network, network.client() as client:
        client.send(heartbeat("ok", 7))
        with network.client("INTERNAL") as node:
            assert node.heartbeat("ok") == ErrorCode.NONE
        assert network.server.quotas.total() <= 1, "the client's connection was not accepted"
        network.server.admit_nodes()
        assert network.server.quotas.total() <= 1
        network.server.admit_clients()
        network.server.admit_clients()
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 7).error_code == ErrorCode.NONE


@pytest.mark.parametrize("admit", [SocketServer.admit_clients, SocketServer.admit_nodes])
def test_a_single_listener_waits_for_either(admit: Callable[[SocketServer], None]) -> None:
    with held_network() as network, network.client() as client:
        client.send(heartbeat("ok", 7))
        assert network.server.quotas.total() == 0
        admit(network.server)
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 7).error_code == ErrorCode.NONE


def test_a_listener_with_tls_for_nodes_waits_for_either() -> None:
    listeners = (ListenerRow(), ListenerRow("SSL", "SSL"))
    network = Network(handlers=1, listeners=listeners, inter_broker_listener="SSL", originals=SSL_KEYS)
    try:
        network.server.start(holds_clients=True)
        assert len(network.server._held) == 2
        network.server.admit_nodes()
        assert [acceptor.listener_name for acceptor in network.server._held] == ["PLAINTEXT"]
    finally:
        network.stop()


def test_clients_that_wait_are_not_admitted_during_a_shutdown() -> None:
    before = set(threading.enumerate())
    with held_network() as network, network.client() as client:
        network.stop()
        network.server.admit_clients()
        assert client.is_closed_by_server()
    assert set(threading.enumerate()) <= before


class SlowStart:
    """A processor during whose start another thread changes the number of processors."""

    def __init__(self, meanwhile: threading.Thread | None) -> None:
        self.meanwhile = meanwhile
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        if self.meanwhile is not None:
            self.meanwhile.start()
            self.meanwhile.join(0.1)  # it ends, or waits for the lock


def test_processors_that_are_added_during_the_start_are_started() -> None:
    """At a start, the registration brings num.network.threads while held-back listeners are started."""
    made: list[SlowStart] = []

    def make() -> Any:
        made.append(SlowStart(None if made else adding))
        return made[-1]

    clock = SystemClock()
    server = net.listen("127.0.0.1", 0, 5)
    acceptor = Acceptor(server, "PLAINTEXT", "PLAINTEXT", ConnectionQuotas(clock), clock, Meter(), make)
    adding = threading.Thread(target=acceptor.resize, args=(3,))
    acceptor.resize(1)
    try:
        acceptor.start()
        adding.join()
    finally:
        acceptor.begin_shutdown()
        acceptor.join()
    assert [processor.starts for processor in made] == [1, 1, 1]


def test_a_processor_that_has_ended_takes_nothing_over() -> None:
    with Network(num_network_threads=2) as network:
        ended = network.server.processors()[1]
        network.server.resize(1)
        assert ended._has_ended
        with network.client() as client, socket.socket() as sock:
            assert not ended.offer(Accepted(sock, "127.0.0.1", 1))
            assert ended.inbox.empty()
            assert client.heartbeat("ok") == ErrorCode.NONE


class Inbox:
    """A processor that takes a connection over, or, since it has ended, takes none."""

    def __init__(self, has_ended: bool) -> None:
        self.has_ended = has_ended
        self.taken: list[Accepted] = []

    def offer(self, accepted: Accepted, timeout_s: float = 0) -> bool:
        if not self.has_ended:
            self.taken.append(accepted)
        return not self.has_ended


def test_a_connection_does_not_wait_for_a_processor_that_has_ended() -> None:
    clock = SystemClock()
    ended, other = Inbox(True), Inbox(False)
    inboxes: list[Any] = [other]
    server = net.listen("127.0.0.1", 0, 5)
    acceptor = Acceptor(server, "PLAINTEXT", "PLAINTEXT", ConnectionQuotas(clock), clock, Meter(), inboxes.pop)
    acceptor.resize(1)
    with socket.socket() as sock:
        accepted = Accepted(sock, "127.0.0.1", 1)
        waiting: Any = ended
        acceptor._wait_for_inbox(waiting, accepted)
        assert other.taken == [accepted]
    acceptor.begin_shutdown()
    acceptor.join()
