"""Clients that send too much, or do not read their responses: the broker bounds what it holds for them, and serves a
bystander as before.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import struct
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker import processors
from barnabas.broker.network.memory_pool import MemoryPool
from barnabas.broker.purgatory import PURGE_INTERVAL
from barnabas.common.clock import FakeClock
from barnabas.common.disk import open_files
from barnabas.metrics.meters import Gauge
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ErrorCode
from tests.support.broker.broker_rig import BrokerRig, state
from tests.support.broker.broker_rig import fetch as fetch_records
from tests.support.broker.network import (
    FETCH,
    FETCH_VERSION,
    HEARTBEAT,
    HEARTBEAT_VERSION,
    TIMEOUT_S,
    Client,
    Network,
    fetch,
    heartbeat,
)
from tests.support.waiting import eventually

POOL_BYTES = 100_000


def padded(kind: str, correlation_id: int, size: int) -> bytes:
    """A heartbeat of `size` bytes: those after its body are ignored, as in Kafka."""
    plain = heartbeat(kind, correlation_id)[4:]
    return struct.pack(">i", size) + plain + bytes(size - len(plain))


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(queued_max_request_bytes=POOL_BYTES) as network:
        yield network


def pool(network: Network) -> MemoryPool:
    found = network.server._pool
    assert found is not None
    return found


def begun_bytes(network: Network) -> int:
    return sum(found.frames.begun_bytes() for found in network.connections())


# --- queued.max.request.bytes -------------------------------------------------------------------------------------


def test_half_sent_frames_are_bounded_and_all_are_answered(network: Network) -> None:
    """Started frames finish. Others wait in the kernel until there is memory; none is forgotten."""
    count, size = 30, 40_000
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(count)]
        frames = [padded("ok", number, size) for number in range(count)]
        for client, frame in zip(clients, frames, strict=True):
            client.send(frame[:10_000])
        eventually("of 30 frames three are in memory", lambda: begun_bytes(network) == 3 * size)
        assert pool(network).used_bytes() == 3 * size
        for client, frame in zip(reversed(clients), reversed(frames), strict=True):
            client.send(frame[10_000:])
        for number, client in enumerate(clients):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        assert pool(network).used_bytes() == 0


def test_a_frame_larger_than_what_is_left_is_let_in(network: Network) -> None:
    with network.client() as client:
        client.send(padded("ok", 1, 5 * POOL_BYTES))
        assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, 1).error_code == ErrorCode.NONE
    assert pool(network).used_bytes() == 0


def test_a_request_holds_its_memory_until_it_is_answered(network: Network) -> None:
    """Large frames wait for memory, small ones do not: a slow sender keeps no other client out."""
    with network.client() as first, network.client() as second, network.client() as small:
        first.send(padded("wait", 1, POOL_BYTES))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        for number in range(3):
            second.send(padded("ok", number, POOL_BYTES - 1))
        second.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            second.sock.recv(1)
        for number in range(20):
            assert small.heartbeat("ok", number) == ErrorCode.NONE
        second.sock.settimeout(TIMEOUT_S)
        network.services.gate.set()
        for number in range(3):
            assert second.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE


def test_a_parked_request_gives_its_memory_back(network: Network) -> None:
    """A produce that waits for replicas must not keep out the follower's fetch that completes it."""
    with network.client() as first, network.client() as second:
        first.send(padded("park", 1, POOL_BYTES) + heartbeat("ok", 2))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        assert second.heartbeat("ok") == ErrorCode.NONE
        eventually("a parked request holds no memory", lambda: pool(network).used_bytes() == 0)
        network.services.deferred[0].force_complete()
        first.read_frame()
        assert first.receive(HEARTBEAT, HEARTBEAT_VERSION, 2).error_code == ErrorCode.NONE


@pytest.mark.parametrize("sent", [10_000, POOL_BYTES + 4], ids=["half a frame", "a request in progress"])
def test_a_client_that_disconnects_gives_its_memory_back(network: Network, sent: int) -> None:
    with network.client() as other:
        with network.client() as client:
            client.send(padded("wait", 1, POOL_BYTES)[:sent])
            eventually("the pool is empty", lambda: not pool(network).has_bytes())
        network.services.gate.set()
        assert other.heartbeat("ok") == ErrorCode.NONE
    eventually("all is given back", lambda: pool(network).used_bytes() == 0)


def test_many_pipelined_requests_give_their_memory_back(network: Network) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(network.client()) for _ in range(20)]
        for number, client in enumerate(clients):
            client.send(b"".join(padded("ok", number * 100 + again, 9_000) for again in range(10)))
        for again in range(10):
            for number, client in enumerate(clients):
                response = client.receive(HEARTBEAT, HEARTBEAT_VERSION, number * 100 + again)
                assert response.error_code == ErrorCode.NONE
    assert pool(network).used_bytes() == 0


def test_requests_that_came_together_are_counted_until_the_last_is_answered(network: Network) -> None:
    size = 1_000
    kinds = ["ok", "wait", "park", "ok", "wait", "close", "ok"]
    with network.client() as client:
        client.send(b"".join(padded(kind, number, size) for number, kind in enumerate(kinds)))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        assert pool(network).used_bytes() == 7 * size
        network.services.gate.set()
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        for number in range(2):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
        eventually("a parked request holds no memory", lambda: pool(network).used_bytes() == 0)
        network.services.gate.clear()
        network.services.deferred[0].force_complete()
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        assert pool(network).used_bytes() == 4 * size
        network.services.gate.set()
        for number in (2, 3, 4):
            client.receive(HEARTBEAT, HEARTBEAT_VERSION, number)
        assert client.is_closed_by_server()
    assert pool(network).used_bytes() == 0


def test_metrics_of_the_pool(network: Network) -> None:
    def value(row: catalogue.Metric) -> float:
        ((_, gauge),) = dict(network.registry.collect())[row]
        assert isinstance(gauge, Gauge)
        return gauge.read()

    with network.client() as client:
        client.send(padded("wait", 1, POOL_BYTES + 1))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        assert value(catalogue.MEMORY_POOL_AVAILABLE) == 0
        assert value(catalogue.MEMORY_POOL_USED) == POOL_BYTES + 1
        eventually("time passes", lambda: value(catalogue.MEMORY_POOL_DEPLETED_TIME) > 0)
        assert value(catalogue.MEMORY_POOL_DEPLETED_SHARE) > 0
        network.services.gate.set()


# --- many connections ---------------------------------------------------------------------------------------------


def test_many_simultaneous_disconnects_are_closed_a_few_a_turn() -> None:
    """A working client is served between them."""
    with Network(num_network_threads=1) as network, network.client() as bystander:
        with contextlib.ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(network.client()).heartbeat("ok")
        for number in range(50):
            assert bystander.heartbeat("ok", number) == ErrorCode.NONE
        eventually("all are gone", lambda: network.server.quotas.total() == 1)
    assert processors.CLOSES_A_TURN < 300


def test_read_ahead_is_bounded_over_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that pipelines has at most one read of its requests in memory, and a small one if there are many."""
    monkeypatch.setattr(processors, "READ_AHEAD_BYTES", 10 * processors.SCRATCH_BYTES_MIN)
    with Network(num_network_threads=1) as network, contextlib.ExitStack() as stack:
        (processor,) = network.server.processors()
        clients = [stack.enter_context(network.client()) for _ in range(20)]
        for client in clients:
            assert client.heartbeat("ok") == ErrorCode.NONE
        eventually("it reads less at once", lambda: len(processor._scratch) == processors.SCRATCH_BYTES_MIN)
        for client in clients:
            client.send(heartbeat("wait", 1) + heartbeat("ok", 2) * 1_000)
        for _ in range(8):
            assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        held = [len(found.frames._rest) for found in network.connections()]
        assert max(held) <= processors.SCRATCH_BYTES_MIN
        network.services.gate.set()
        for client in clients:
            client.receive(HEARTBEAT, HEARTBEAT_VERSION, 1)
            for _ in range(1_000):
                client.receive(HEARTBEAT, HEARTBEAT_VERSION, 2)
    eventually("all are gone", lambda: network.server.quotas.total() == 0)


def test_an_idle_connection_costs_little() -> None:
    """The memory of all its Python objects together."""
    with Network(num_network_threads=1) as network, network.client():
        eventually("it is there", lambda: len(network.connections()) == 1)
        (connection,) = network.connections()
        context, frames, transport = connection.context, connection.frames, connection.transport
        texts = (context.client_address, context.connection_id)
        held = (connection, context, frames, transport, transport.receive_into, *texts)
        assert sum(map(sys.getsizeof, held)) < 2_000


@pytest.fixture
def _descriptors() -> Iterator[None]:
    """Restores the process's limit of descriptors afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("_descriptors")
def test_connections_leave_some_descriptors_for_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Clients wait in the backlog and logs can be opened. Once some disconnect, others come in. One line is logged."""
    count = 40
    with Network() as network, contextlib.ExitStack() as stack, caplog.at_level(logging.INFO):
        used = len(os.listdir("/proc/self/fd"))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Both ends of a connection are in this process.
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 2 * count + 5 + open_files.KEPT_MIN, hard))
        clients = [stack.enter_context(network.client()) for _ in range(count)]
        eventually("all are in", lambda: network.server.quotas.total() == count)
        late = [stack.enter_context(network.client()) for _ in range(6)]
        for number, client in enumerate(late):
            client.send(heartbeat("ok", number))
        eventually("no more are accepted", lambda: "cannot accept connections" in caplog.text)
        for number in range(8):
            stack.enter_context((tmp_path / str(number)).open("wb"))
        assert caplog.text.count("cannot accept connections") == 1
        for client in clients[:20]:
            client.sock.close()
        for number, client in enumerate(late):
            assert client.receive(HEARTBEAT, HEARTBEAT_VERSION, number).error_code == ErrorCode.NONE
    # Why not one: an acceptor that looks while only the first are closed accepts as many, and waits again.
    assert caplog.text.count("cannot accept connections") == caplog.text.count("again") >= 1


# --- slow readers -------------------------------------------------------------------------------------------------


def test_clients_that_do_not_read_large_files_hold_no_memory_and_no_handler(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(4_000_000))
    descriptor = os.open(path, os.O_RDONLY)
    with Network(handlers=2, num_network_threads=1) as network, contextlib.ExitStack() as stack:
        readers = [stack.enter_context(network.client()) for _ in range(40)]
        for reader in readers:
            reader.send(fetch(4_000_000, 1, descriptor))

        def answering() -> int:
            return sum(connection.outgoing is not None for connection in network.connections())

        eventually("all are being answered", lambda: answering() == len(readers))
        with network.client() as bystander:
            for number in range(20):
                assert bystander.heartbeat("ok", number) == ErrorCode.NONE
        requests = network.channel.requests
        eventually("every handler sleeps", lambda: requests.sleeping_handlers() == 2)
        assert all(sys.getsizeof(part) < 1_000 for c in network.connections() for part in c.outgoing or ())
        assert all(c.request is None or c.request.buffer is None for c in network.connections())
        response = readers[0].receive(FETCH, FETCH_VERSION, 1)
        assert len(response.responses[0].partitions[0].records) == 4_000_000
    os.close(descriptor)


def test_a_client_that_stopped_reading_is_closed_as_idle_and_releases_its_file(tmp_path: Path) -> None:
    """The file being sent, perhaps a deleted segment, is closed then."""
    path = tmp_path / "segment"
    path.write_bytes(bytes(20_000_000))
    descriptor = os.open(path, os.O_RDONLY)
    clock = FakeClock()
    idle_ms = 60_000
    with (
        Network(clock=clock, connections_max_idle_ms=idle_ms, barnabas_busy_poll_max_us=0) as network,
        network.client() as reader,
    ):
        reader.send(fetch(20_000_000, 1, descriptor))
        reader.read(4)  # it is being answered
        (connection,) = network.services.fetching

        def is_gone() -> bool:
            clock.advance_ms(idle_ms)  # each time, since the last piece that the socket takes may be sent meanwhile
            with contextlib.suppress(OSError):
                reader.send(heartbeat("ok", 2))  # wakes the processor
            # The processor marks the connection as closed first, and then releases what it was sending.
            return connection.is_closed and connection.outgoing is None

        assert not connection.is_closed
        eventually("it is closed and holds nothing", is_gone)
    os.close(descriptor)


def test_a_client_that_never_reads_has_one_response_in_memory() -> None:
    with Network(num_network_threads=1) as network, Client(network.server.port("PLAINTEXT")) as deaf:
        deaf.sock.settimeout(1)
        with contextlib.suppress(TimeoutError):
            for number in range(2_000):
                deaf.send(fetch(2_000_000, number))
        eventually("it is muted", lambda: [c.outgoing is not None for c in network.connections()] == [True])
        with network.client() as bystander:
            for number in range(20):
                assert bystander.heartbeat("ok", number) == ErrorCode.NONE
        assert network.channel.request_queue_size() == network.channel.response_queue_size() == 0


# --- requests that wait -------------------------------------------------------------------------------------------


def test_a_waiting_fetch_costs_little_and_nothing_after_its_timeout() -> None:
    """Even if its client has disconnected: it waits until its timeout, as in Kafka.

    So the memory of 10,000 long polls is bounded. Of expired ones, at most the purge interval stay.
    """
    rig = BrokerRig()
    rig.push({"t": [state(1)]})
    count = 2 * PURGE_INTERVAL

    def held_bytes() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    try:
        rig.answer(fetch_records(0, max_wait_ms=1), 12)  # creates what is created once
        rig.advance_ms(10)
        tracemalloc.start()
        before = held_bytes()
        waiting = [rig.answer(fetch_records(0, max_wait_ms=60_000), 12) for _ in range(count)]
        assert rig.purgatories.fetch.delayed() == count
        assert (held_bytes() - before) / count < 8 * 1024
        del waiting
        rig.advance_ms(60_001)
        assert rig.purgatories.fetch.delayed() == rig.purgatories.fetch.watched() == 0
        assert (held_bytes() - before) / count < 200
    finally:
        tracemalloc.stop()
        rig.close()
