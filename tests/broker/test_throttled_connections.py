"""Connections come back when their time is over, the earliest first."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from broker.connection import Connection
from broker.request_channel import RequestContext
from broker.throttled_connections import ThrottledConnections
from broker.transport import Anonymous, PlainTransport

CONTEXT = RequestContext("L", "PLAINTEXT", "127.0.0.1", 1, "id")
Make = Callable[[], Connection]


@pytest.fixture
def connection() -> Iterator[Make]:
    one, other = socket.socketpair()
    with one, other:
        yield lambda: Connection(one.fileno(), PlainTransport(one), Anonymous(), CONTEXT, 10_000)


def test_none_is_waited_for() -> None:
    throttled = ThrottledConnections()
    assert throttled.wait_ns(5) is None
    assert throttled.next_expired(5) is None


def test_the_earliest_comes_first_and_not_before_its_time(connection: Make) -> None:
    throttled = ThrottledConnections()
    late, early = connection(), connection()
    throttled.add(late, 300)
    throttled.add(early, 200)
    assert (late.muted_until_ns, early.muted_until_ns) == (300, 200)
    assert throttled.wait_ns(150) == 50
    assert throttled.next_expired(199) is None
    assert throttled.next_expired(200) is early
    assert throttled.next_expired(200) is None
    assert throttled.wait_ns(400) == 0, "its time is over already"
    assert throttled.next_expired(400) is late


def test_two_may_end_at_the_same_moment(connection: Make) -> None:
    throttled = ThrottledConnections()
    first, second = connection(), connection()
    throttled.add(first, 7)
    throttled.add(second, 7)
    assert [throttled.next_expired(7), throttled.next_expired(7)] == [first, second]
