"""Logging."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator

import pytest

from barnabas.common import logs


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
