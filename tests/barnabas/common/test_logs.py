"""Logging."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from barnabas.common import logs
from barnabas.common.clock import NS_PER_MS, FakeClock
from barnabas.common.logs import KINDS_MAX, LINES_MAX, PERIOD_S, LogLimit


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.captureWarnings(False)
    logging.logMultiprocessing = logging.logProcesses = True


def test_a_line_looks_like_kafkas() -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream)
    logging.getLogger("barnabas.test").info("hello %s", "world")
    logging.getLogger("barnabas.test").debug("not shown")
    line = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] INFO hello world \(barnabas\.test\)\n"
    assert re.fullmatch(line, stream.getvalue())


def test_no_text_makes_a_second_line() -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream)
    log = logging.getLogger("barnabas.test")
    log.info("refused %s", "eve\n[2026-01-01 00:00:00,000] INFO alice is a super user\u2028\x1b[2J\ud800 \u00e9")
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(
        r"refused eve\n[2026-01-01 00:00:00,000] INFO alice is a super user\u2028\x1b[2J\ud800 é (barnabas.test)"
    )
    try:
        raise ValueError("two\nlines")
    except ValueError:
        log.exception("broken")
    assert "broken (barnabas.test)\nTraceback" in stream.getvalue()


def test_levels_change_by_name() -> None:
    stream = io.StringIO()
    logs.configure("WARN", stream)
    name = "barnabas.test.levels"
    assert logs.level_of(name) == "WARN"
    logs.set_level(name, "TRACE")
    assert logs.level_of(name) == "TRACE"
    assert name in logs.logger_names()
    logs.set_level(name, None)
    assert logs.level_of(name) == "WARN"
    logs.set_level("root", "ERROR")
    assert logs.level_of(name) == "ERROR"
    with pytest.raises(KeyError):
        logs.set_level(name, "LOUD")


def test_a_line_can_be_a_json_object_with_extra_fields() -> None:
    stream = io.StringIO()
    logs.configure("INFO", stream)
    logs.use_format(logs.JSON)
    log = logging.getLogger("barnabas.test.json")
    log.warning("failed %d times", 3, extra={"fields": {"correlationId": 7, "connection": "a-b"}})
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("broken")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("timestamp"))
    assert first == {
        "level": "WARN",
        "logger": "barnabas.test.json",
        "thread": "MainThread",
        "message": "failed 3 times",
        "correlationId": 7,
        "connection": "a-b",
    }
    assert second["exception"].endswith("ValueError: no")
    logs.use_format(logs.PLAIN)
    log.warning("plain again")
    assert stream.getvalue().splitlines()[-1].endswith("WARN plain again (barnabas.test.json)")


def test_lines_are_counted_by_level() -> None:
    logs.configure("INFO", io.StringIO())
    before = logs.lines["ERROR"]
    for _ in range(3):
        logging.getLogger("barnabas.test.count").error("x")
    assert logs.lines["ERROR"] == before + 3


def test_listeners_are_called_when_a_level_changes() -> None:
    levels: list[str] = []
    logs.on_change(lambda: levels.append(logs.level_of("barnabas.test.levels")))
    logs.set_level("barnabas.test.levels", "TRACE")
    assert levels == ["TRACE"]
    logs.set_level("barnabas.test.levels", None)


# -- the limit of lines that clients cause

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
    assert [(record.levelno, record.message) for record in caplog.records] == [
        (logging.INFO, "... and 2301 more in a period of 60 s: a"),
        (logging.WARNING, "... and 1 more in a period of 60 s: c"),
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


def test_beyond_that_number_a_wider_kind_is_told_apart(limit: LogLimit) -> None:
    for number in range(KINDS_MAX + LINES_MAX):
        limit.admits(logging.INFO, f"kind {number}")
    assert not limit.admits(logging.INFO, "Produce failed with A")
    assert [limit.admits(logging.INFO, f"Produce failed with {n}", "Produce failed") for n in range(LINES_MAX + 1)] == [
        *[True] * LINES_MAX,
        False,
    ]
    assert limit.admits(logging.INFO, "Fetch failed with A", "Fetch failed")


def test_a_level_that_is_off_is_not_admitted(limit: LogLimit, caplog: pytest.LogCaptureFixture) -> None:
    assert not limit.admits(logging.DEBUG, "a")
    with caplog.at_level(logging.WARNING, log.name):
        assert admitted(limit, 3) == 0


def test_a_logger_at_debug_is_not_limited(limit: LogLimit, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, log.name):
        assert admitted(limit, 100) == admitted(limit, 100, "a", logging.DEBUG) == 100
