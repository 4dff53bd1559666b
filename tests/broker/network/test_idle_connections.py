"""Connections that are idle for too long are found in time, without examining the others."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.idle_connections import BUCKETS, IdleConnections
from tests.support.broker.connections import connection_over

LIMIT = 128_000
STEP = LIMIT // BUCKETS


@pytest.fixture
def sock() -> Iterator[socket.socket]:
    one, other = socket.socketpair()
    yield one
    one.close()
    other.close()


def connection(sock: socket.socket, last_active: int) -> Connection:
    made = connection_over(sock)
    made.last_active_ns = last_active
    return made


def test_a_connection_expires_at_the_idle_limit_and_not_before(sock: socket.socket) -> None:
    idle = IdleConnections(LIMIT)
    made = connection(sock, 5_500)
    idle.add(made)
    assert idle.take_expired(5_500 + LIMIT - 1) == []
    assert idle.take_expired(5_500 + LIMIT + STEP) == [made]
    assert len(idle) == 0
    assert idle.take_expired(10 * LIMIT) == []


def test_an_active_connection_stays(sock: socket.socket) -> None:
    idle = IdleConnections(LIMIT)
    made = connection(sock, 0)
    idle.add(made)
    for now in range(0, 5 * LIMIT, STEP):
        made.last_active_ns = now
        assert idle.take_expired(now + STEP - 1) == []
    assert idle.take_expired(made.last_active_ns + LIMIT + STEP) == [made]


def test_a_discarded_connection_is_not_returned(sock: socket.socket) -> None:
    idle = IdleConnections(LIMIT)
    made, other = connection(sock, 0), connection(sock, 0)
    idle.add(made)
    idle.add(other)
    idle.discard(made)
    idle.discard(made)
    assert idle.take_expired(2 * LIMIT) == [other]
    idle.discard(other)
    assert len(idle) == 0


def test_a_connection_added_after_its_expiration_is_found(sock: socket.socket) -> None:
    idle = IdleConnections(LIMIT)
    assert idle.take_expired(10 * LIMIT) == []
    made = connection(sock, 0)
    idle.add(made)
    assert idle.take_expired(10 * LIMIT + 2 * STEP) == [made]


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_a_full_scan(sock: socket.socket, seed: int) -> None:
    """Compared with a scan, with connections that come, work and go at random."""
    random_ = random.Random(seed)
    idle = IdleConnections(LIMIT)
    every: list[Connection] = []
    now = 0
    for _ in range(2_000):
        now += random_.randrange(0, 2 * STEP)
        kind = random_.random()
        if kind < 0.3:
            every.append(connection(sock, now))
            idle.add(every[-1])
        elif kind < 0.7 and every:
            random_.choice(every).last_active_ns = now
        elif kind < 0.8 and every:
            idle.discard(every.pop(random_.randrange(len(every))))
        else:
            expired = idle.take_expired(now)
            assert all(now - found.last_active_ns >= LIMIT for found in expired)
            every = [found for found in every if found not in expired]
            assert all(now - found.last_active_ns < LIMIT + 2 * STEP for found in every), "late by at most two steps"
        oldest = idle.least_recently_active()
        assert (oldest is None) == (not every)
        assert oldest is None or oldest.last_active_ns == min(found.last_active_ns for found in every)
        assert len(idle) == len(every)


def test_connections_that_are_not_due_are_not_examined(sock: socket.socket) -> None:
    """However many there are: each is moved once per idle limit."""

    class Counting(IdleConnections):
        added = 0

        def add(self, connection: Connection) -> None:
            self.added += 1
            super().add(connection)

    idle = Counting(LIMIT)
    many = [connection(sock, number % LIMIT) for number in range(0, 100 * LIMIT, 97 * STEP)]
    for made in many:
        idle.add(made)
    idle.added = 0
    for now in range(0, LIMIT, STEP // 4):
        for made in many[:10]:
            made.last_active_ns = now
        assert idle.take_expired(now) == []
    assert idle.added <= 10, "only due connections were examined"
