"""The limit of log lines: the first of a kind, then one line for the rest."""

from __future__ import annotations

import logging

import pytest

from barnabas.common.clock import NS_PER_MS, FakeClock
from barnabas.common.log_limit import KINDS_MAX, LINES_MAX, PERIOD_S, LogLimit

log = logging.getLogger("barnabas.test-log-limit")


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> FakeClock:
    caplog.set_level(logging.INFO, log.name)
    return FakeClock()


@pytest.fixture
def limit(clock: FakeClock) -> LogLimit:
    return LogLimit(log, clock.monotonic_ns)


def admitted(limit: LogLimit, count: int, kind: str = "a", level: int = logging.INFO) -> int:
    return sum(limit.admits(level, kind) for _ in range(count))


def test_the_first_lines_of_each_kind_are_admitted(limit: LogLimit, caplog: pytest.LogCaptureFixture) -> None:
    assert admitted(limit, 2_000, "a") == LINES_MAX
    assert admitted(limit, 2_000, "b") == LINES_MAX
    assert admitted(limit, 2_000, "a", logging.WARNING) == LINES_MAX
    assert caplog.messages == []


def test_the_rest_is_one_line_after_the_period(
    limit: LogLimit, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    admitted(limit, LINES_MAX + 2_300)
    admitted(limit, LINES_MAX, "b")
    admitted(limit, LINES_MAX + 1, "c", logging.WARNING)
    clock.advance_ms(PERIOD_S * 1_000 - 1)
    assert not limit.admits(logging.INFO, "a")
    clock.advance_ns(NS_PER_MS)
    assert admitted(limit, LINES_MAX + 1, "b") == LINES_MAX
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "... and 2301 more in a period of 60 s: a"),
        ("WARNING", "... and 1 more in a period of 60 s: c"),
    ]


def test_a_late_line_says_when_the_period_ended(
    limit: LogLimit, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    admitted(limit, LINES_MAX + 3)
    clock.advance_ms((PERIOD_S + 90) * 1_000)
    assert limit.admits(logging.INFO, "a")
    assert caplog.messages == ["... and 3 more in a period of 60 s, which ended 90 s ago: a"]


def test_kinds_beyond_a_number_are_one(limit: LogLimit, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    kinds = [f"kind {number}" for number in range(1_000)]
    assert sum(admitted(limit, 10, kind) for kind in kinds) == (KINDS_MAX + 1) * LINES_MAX
    clock.advance_ms(PERIOD_S * 1_000)
    assert admitted(limit, 10, kinds[-1]) == LINES_MAX
    assert len(caplog.messages) == KINDS_MAX + 1
    assert caplog.messages[-1] == f"... and {(1_000 - KINDS_MAX) * 10 - 5} more in a period of 60 s: of other kinds"


def test_a_level_that_is_off_is_not_admitted(limit: LogLimit, caplog: pytest.LogCaptureFixture) -> None:
    assert not limit.admits(logging.DEBUG, "a")
    with caplog.at_level(logging.WARNING, log.name):
        assert admitted(limit, 3) == 0


def test_a_logger_at_debug_is_not_limited(limit: LogLimit, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, log.name):
        assert admitted(limit, 100) == admitted(limit, 100, "a", logging.DEBUG) == 100
