"""Handshakes: how many, how long, and how loud."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.secure.handshakes import (
    GRACE_NS,
    LINES_MAX,
    PERIOD_S,
    Handshakes,
)
from barnabas.broker.requests.request import RequestContext
from barnabas.common.clock import NS_PER_MS, FakeClock

TRANSPORT: Any = None


def connection(number: int = 1, address: str = "10.0.0.7") -> Connection:
    context = RequestContext("SSL", "SSL", address, number, f"a-b-0-{number}")
    return Connection(number, TRANSPORT, None, context, 100)


def make(count_max: int, timeout_ms: int = 1000) -> Handshakes:
    return Handshakes(count_max, timeout_ms, lambda _: None, FakeClock().monotonic_ns)


def test_those_that_may_not_begin_wait_until_one_ends() -> None:
    resumed: list[Connection] = []
    handshakes = Handshakes(2, 1000, resumed.append, FakeClock().monotonic_ns)
    first, second, third, fourth = (connection(number) for number in range(4))
    for each in (first, second, third, fourth):
        handshakes.add(each, 0)
    assert handshakes.may_begin(first, 0)
    assert handshakes.may_begin(second, 0)
    assert not handshakes.may_begin(third, 0)
    assert not handshakes.may_begin(third, 0)
    assert not handshakes.may_begin(fourth, 0)
    assert resumed == []
    handshakes.end(third)
    handshakes.end(first)
    handshakes.end(first)
    assert resumed == [fourth]
    assert handshakes.may_begin(fourth, 0)
    assert handshakes.count() == 2


def test_networks_take_turns_among_those_that_may_not_begin() -> None:
    resumed: list[Connection] = []
    handshakes = Handshakes(3, 1000, resumed.append, FakeClock().monotonic_ns)
    begun = [connection(number) for number in range(3)]
    flood = [connection(number) for number in range(3, 100)]
    honest = connection(100, "10.0.0.8")
    assert [handshakes.may_begin(each, 0) for each in (*begun, *flood, honest, *flood)] == [True] * 3 + [False] * 195
    handshakes.end(flood[1])
    for each in begun:
        handshakes.end(each)
    assert resumed == [flood[0], honest, flood[2]]


def test_one_that_ends_before_it_begins_passes_its_turn_on() -> None:
    resumed: list[Connection] = []
    handshakes = Handshakes(1, 1000, resumed.append, FakeClock().monotonic_ns)
    begun, gone, waiting = (connection(number) for number in range(3))
    assert [handshakes.may_begin(each, 0) for each in (begun, gone, waiting)] == [True, False, False]
    handshakes.end(begun)
    assert resumed == [gone]
    handshakes.end(gone)  # its client reset the connection before its step
    assert resumed == [gone, waiting]


def test_those_that_wait_for_their_clients_make_way_for_others() -> None:
    handshakes = make(2, 10_000)
    first, second, third = (connection(number) for number in range(3))
    assert handshakes.may_begin(first, 0)
    assert handshakes.may_begin(second, 1)
    assert handshakes.overdue(2 * GRACE_NS) == []  # nobody waits
    assert not handshakes.may_begin(third, 2)
    assert handshakes.overdue(GRACE_NS - 1) == []
    assert handshakes.overdue(2 * GRACE_NS) == [first]
    first.is_waiting_for_step = True  # its client has answered
    assert handshakes.overdue(2 * GRACE_NS) == [second]


def test_late_ones_expire() -> None:
    handshakes = make(9)
    first, second = map(connection, (1, 2))
    handshakes.add(first, 0)
    handshakes.add(second, 500 * NS_PER_MS)
    assert handshakes.expired(999 * NS_PER_MS) == []
    assert handshakes.expired(1000 * NS_PER_MS) == [first]
    assert handshakes.expired(1500 * NS_PER_MS) == [first, second]


def test_failures_are_logged_sparingly(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    handshakes = Handshakes(9, 1000, lambda _: None, clock.monotonic_ns)
    for _ in range(LINES_MAX + 5):
        handshakes.log_failure(connection(), "no reason")
    clock.advance_ms(PERIOD_S * 1000)
    handshakes.log_failure(connection(), "another")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "Failed authentication with 10.0.0.7 (channelId=a-b-0-1) (SSL handshake failed: no reason)"
    assert len(lines) == LINES_MAX + 2
    assert lines[-2:] == [
        "... and 5 more in a period of 10 s: TLS handshakes failed",
        "Failed authentication with 10.0.0.7 (channelId=a-b-0-1) (SSL handshake failed: another)",
    ]
