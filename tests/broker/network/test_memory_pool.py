"""The memory pool alone: what it counts, and which processors it wakes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.memory_pool import MemoryGate, MemoryPool
from barnabas.common.clock import FakeClock
from tests.support.broker.connections import connection_over
from tests.support.threads import at_once


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def pool(clock: FakeClock) -> MemoryPool:
    return MemoryPool(1000, clock.monotonic_ns)


@pytest.fixture
def connections() -> Iterator[list[Connection]]:
    pairs = [socket.socketpair() for _ in range(3)]
    yield [connection_over(one) for one, _ in pairs]
    for pair in pairs:
        for sock in pair:
            sock.close()


def test_a_frame_starts_while_any_byte_is_left(pool: MemoryPool) -> None:
    pool.take(999)
    assert pool.has_bytes()
    pool.take(5000)
    assert not pool.has_bytes()
    assert (pool.left_bytes(), pool.used_bytes()) == (0, 5999)
    pool.give_back(999)
    assert not pool.has_bytes(), "still overdrawn"
    pool.give_back(5000)
    assert (pool.left_bytes(), pool.used_bytes()) == (1000, 0)


def test_a_waiting_processor_is_woken_once_and_only_when_bytes_are_left(pool: MemoryPool) -> None:
    woken: list[int] = []
    assert not pool.wait(lambda: woken.append(0)), "bytes are left"
    pool.take(1500)
    assert pool.wait(lambda: woken.append(1))
    assert pool.wait(lambda: woken.append(2))
    pool.give_back(500)
    assert not woken
    pool.give_back(1)
    assert woken == [1, 2]
    pool.take(1)
    pool.give_back(1000)
    assert woken == [1, 2]


def test_no_more_than_was_taken_can_be_given_back(pool: MemoryPool) -> None:
    with pytest.raises(AssertionError):
        pool.give_back(1)


def test_the_time_without_memory_is_added_up(pool: MemoryPool, clock: FakeClock) -> None:
    for _ in range(2):
        pool.take(1000)
        clock.advance_ms(30)
        pool.take(10)
        clock.advance_ms(10)
        assert pool.depleted_ns() % 40_000_000 == 0, "a time that still runs counts"
        pool.give_back(1010)
        clock.advance_ms(100)
    assert pool.depleted_ns() == 80_000_000


def begin(gate: MemoryGate, connection: Connection, size: int) -> bool:
    """Receive the start of a frame as the processor does; tell whether it could start."""
    chunk = memoryview(size.to_bytes(4, "big") + b"begun")
    assert connection.frames.receive(chunk, lambda size_bytes: gate.begin(connection, size_bytes)) is None
    return connection.frames.begun_bytes() > 0


def never_admit(_size_bytes: int) -> bool:
    return False


def go_on(gate: MemoryGate, connection: Connection) -> None:
    """Start the frame of a connection that waited."""
    assert connection.frames.next_frame(lambda size_bytes: gate.begin(connection, size_bytes)) is None
    assert connection.frames.begun_bytes() > 0


def test_connections_wait_in_the_order_in_which_they_came(pool: MemoryPool, connections: list[Connection]) -> None:
    turns: list[None] = []
    gate = MemoryGate(pool, lambda: turns.append(None))
    first, second, third = connections
    assert begin(gate, first, 1200)
    assert [begin(gate, second, 1000), begin(gate, third, 30)] == [False, False]
    assert pool.used_bytes() == 1200
    assert gate.next_admitted() is None
    assert not gate.is_due()
    gate.release(first)
    assert len(turns) == 1
    assert gate.is_due()
    assert gate.next_admitted() is second
    go_on(gate, second)
    assert pool.used_bytes() == 1000
    assert gate.next_admitted() is None, "the second has taken all bytes"
    assert not gate.is_due(), "it will be woken, so it need not poll"
    gate.release(second)
    assert len(turns) == 2
    assert gate.next_admitted() is third
    go_on(gate, third)
    assert gate.next_admitted() is None


def test_a_whole_frame_is_always_let_in(pool: MemoryPool, connections: list[Connection]) -> None:
    gate = MemoryGate(pool, lambda: None)
    first, second, _ = connections
    assert begin(gate, first, 1000)
    frame = second.frames.receive(memoryview((5).to_bytes(4, "big") + b"whole" + (9).to_bytes(4, "big")), never_admit)
    assert frame is not None
    assert bytes(frame) == b"whole"
    gate.count_whole(second, len(frame))
    assert pool.used_bytes() == 1005
    assert second.frames.next_frame(never_admit) is None, "the frame after it does not start"
    assert second.frames.is_held()
    gate.release(second)
    assert pool.used_bytes() == 1000


def test_processors_overdraw_it_by_one_frame_in_all(pool: MemoryPool, connections: list[Connection]) -> None:
    """Checking and taking is one step: a second processor does not find the bytes that the first took."""
    one, other = MemoryGate(pool, lambda: None), MemoryGate(pool, lambda: None)
    first, second, third = connections
    assert begin(one, first, 999)
    assert begin(one, second, 600)
    assert not begin(other, third, 600)
    assert pool.used_bytes() == 1599


def test_threads_that_start_frames_overdraw_it_by_one_frame(pool: MemoryPool) -> None:
    most: list[int] = []

    def work() -> None:
        for _ in range(2000):
            if pool.try_take(700):
                most.append(pool.used_bytes())
                pool.give_back(700)

    at_once(*[work] * 4)
    assert max(most) <= 1400
    assert pool.used_bytes() == 0


def test_a_closed_connection_stops_waiting(pool: MemoryPool, connections: list[Connection]) -> None:
    gate = MemoryGate(pool, lambda: None)
    assert begin(gate, connections[0], 1000)
    assert not begin(gate, connections[1], 1000)
    gate.forget(connections[1])
    gate.release(connections[0])
    assert gate.next_admitted() is None


def test_a_started_frame_counts_in_full(pool: MemoryPool, connections: list[Connection]) -> None:
    gate = MemoryGate(pool, lambda: None)
    assert begin(gate, connections[0], 500)
    assert pool.used_bytes() == 500
    gate.count_whole(connections[0], 500)
    assert pool.used_bytes() == 500, "once"
    gate.release(connections[0])
    gate.release(connections[0])
    assert pool.used_bytes() == 0


def test_threads_take_and_give_back_and_every_waiter_is_woken(pool: MemoryPool) -> None:
    def work() -> None:
        woken = threading.Event()
        for _ in range(2000):
            while not pool.has_bytes():
                if pool.wait(woken.set):
                    assert woken.wait(20)
                woken.clear()
            pool.take(700)
            pool.give_back(700)

    at_once(*[work] * 4)
    assert pool.used_bytes() == 0
