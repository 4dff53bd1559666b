"""Handshakes: how many, how long, and how loud."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.secure.handshakes import (
    FAILURES_LOGGED,
    FAILURES_NS,
    GRACE_NS,
    HANDSHAKES_A_TURN,
    Handshakes,
)
from barnabas.broker.requests.request import RequestContext
from barnabas.common.clock import NS_PER_MS

TRANSPORT: Any = None


def connection(number: int = 1) -> Connection:
    context = RequestContext("SSL", "SSL", "10.0.0.7", number, f"a-b-0-{number}")
    return Connection(number, TRANSPORT, None, context, 100)


def test_those_that_may_not_begin_wait_until_one_ends() -> None:
    handshakes = Handshakes(2, 1000)
    first, second, third, fourth = (connection(number) for number in range(4))
    for each in (first, second, third, fourth):
        handshakes.add(each, 0)
    assert handshakes.may_begin(first, 0)
    assert handshakes.may_begin(second, 0)
    assert not handshakes.may_begin(third, 0)
    assert not handshakes.may_begin(third, 0)
    assert not handshakes.may_begin(fourth, 0)
    assert not handshakes.has_ready()
    handshakes.end(third)
    handshakes.end(first)
    handshakes.end(first)
    assert handshakes.take_ready() == [fourth]
    assert handshakes.may_begin(fourth, 0)
    assert handshakes.count() == 2


def test_those_that_wait_for_their_clients_make_way_for_others() -> None:
    handshakes = Handshakes(2, 10_000)
    first, second, third = (connection(number) for number in range(3))
    assert handshakes.may_begin(first, 0)
    assert handshakes.may_begin(second, 1)
    assert handshakes.overdue(2 * GRACE_NS) == []  # nobody waits
    assert not handshakes.may_begin(third, 2)
    assert handshakes.overdue(GRACE_NS - 1) == []
    assert handshakes.overdue(2 * GRACE_NS) == [first]
    handshakes.note(first)  # its client has answered
    assert handshakes.overdue(2 * GRACE_NS) == [second]


def test_late_ones_expire() -> None:
    handshakes = Handshakes(9, 1000)
    first, second = map(connection, (1, 2))
    handshakes.add(first, 0)
    handshakes.add(second, 500 * NS_PER_MS)
    assert handshakes.expired(999 * NS_PER_MS) == []
    assert handshakes.expired(1000 * NS_PER_MS) == [first]
    assert handshakes.expired(1500 * NS_PER_MS) == [first, second]


def test_a_turn_continues_a_few_and_each_once() -> None:
    handshakes = Handshakes(9, 1000)
    connections = [connection(number) for number in range(HANDSHAKES_A_TURN + 1)]
    for each in connections * 2:
        handshakes.note(each)
    assert handshakes.take_ready() == connections[:-1]
    assert handshakes.has_ready()
    assert handshakes.take_ready() == connections[-1:]
    assert not handshakes.has_ready()
    handshakes.note(connections[0])
    assert handshakes.take_ready() == connections[:1]


def test_failures_are_logged_sparingly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    handshakes = Handshakes(9, 1000)
    for _ in range(FAILURES_LOGGED + 5):
        handshakes.log_failure(connection(), "no reason", 1)
    handshakes.log_failure(connection(), "another", 1 + FAILURES_NS)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "Failed authentication with 10.0.0.7 (channelId=a-b-0-1) (SSL handshake failed: no reason)"
    assert len(lines) == FAILURES_LOGGED + 2
    assert lines[-2:] == [
        "5 more TLS handshakes have failed",
        "Failed authentication with 10.0.0.7 (channelId=a-b-0-1) (SSL handshake failed: another)",
    ]
