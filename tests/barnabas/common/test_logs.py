"""Logging."""

from __future__ import annotations

import io
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
