"""Handshakes: how many, how long, and how loud."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.secure.handshakes import FAILURES_LOGGED, FAILURES_NS, HANDSHAKES_A_TURN, Handshakes
from barnabas.broker.requests.request import RequestContext
from barnabas.common.clock import NS_PER_MS

TRANSPORT: Any = None


def connection(number: int = 1) -> Connection:
    context = RequestContext("SSL", "SSL", "10.0.0.7", number, f"a-b-0-{number}")
    return Connection(number, TRANSPORT, None, context, 100)


def test_the_oldest_that_waits_for_its_client_makes_way() -> None:
    handshakes = Handshakes(2, 1000)
    connections = [connection(number) for number in range(5)]
    for each in connections:
        handshakes.add(each, 0)
    first, second, third, fourth, _ = connections
    handshakes.note(first)
    assert handshakes.begin(first) is None
    assert handshakes.begin(second) is None
    assert handshakes.begin(third) is second
    handshakes.end(second)
    handshakes.note(third)
    assert handshakes.begin(fourth) is first  # all wait for us
    handshakes.end(first)
    handshakes.end(first)
    assert handshakes.count() == 3


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
