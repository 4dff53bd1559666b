"""Throttled connections return when their time is over, the earliest first."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.throttled_connections import KEPT_MIN, ThrottledConnections
from tests.support.broker.connections import connection_over


@pytest.fixture
def throttled() -> ThrottledConnections:
    return ThrottledConnections()


@pytest.fixture
def connections() -> Iterator[list[Connection]]:
    one, other = socket.socketpair()
    with one, other:
        yield [connection_over(one), connection_over(one)]


def test_without_connections_there_is_no_wait(throttled: ThrottledConnections) -> None:
    assert throttled.wait_ns(5) is None
    assert throttled.next_expired(5) is None


def test_the_earliest_comes_first_and_not_before_its_time(
    throttled: ThrottledConnections, connections: list[Connection]
) -> None:
    late, early = connections
    throttled.add(late, 300)
    throttled.add(early, 200)
    assert (late.muted_until_ns, early.muted_until_ns) == (300, 200)
    assert throttled.wait_ns(150) == 50
    assert throttled.next_expired(199) is None
    assert throttled.next_expired(200) is early
    assert throttled.next_expired(200) is None
    assert throttled.wait_ns(400) == 0, "its time is over already"
    assert throttled.next_expired(400) is late


def test_two_may_end_at_the_same_time(throttled: ThrottledConnections, connections: list[Connection]) -> None:
    for connection in connections:
        throttled.add(connection, 7)
    assert [throttled.next_expired(7), throttled.next_expired(7)] == connections


def test_closed_ones_are_forgotten(throttled: ThrottledConnections, connections: list[Connection]) -> None:
    """A client that closes its throttled connection, and comes again, for days."""
    open_one, closed = connections
    closed.is_closed = True
    throttled.add(open_one, 10**12)
    for until_ns in range(3 * KEPT_MIN):
        throttled.add(closed, 10**15 + until_ns)
    assert len(throttled.snapshot()) <= KEPT_MIN
    assert throttled.next_expired(10**13) is open_one
