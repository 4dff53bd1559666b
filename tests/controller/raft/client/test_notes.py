"""The notes of a replica in the log."""

from __future__ import annotations

import logging

import pytest

from barnabas.common.clock import FakeClock
from barnabas.controller.raft.client.notes import QUIET_MS, TEXTS_MAX, NoteLog


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_mistakes_that_take_turns_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    notes = NoteLog(clock)
    for _ in range(3):
        notes.note("one")
        notes.note("two")
        clock.advance_ms(20)
    assert warnings(caplog) == ["one", "two"]
    clock.advance_ms(QUIET_MS)
    notes.note("one")
    assert warnings(caplog)[2:] == ["one (and 2 times before this line)"]


def test_few_texts_are_remembered_and_no_more_are_logged_meanwhile(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    notes = NoteLog(clock)
    for number in range(1_000):
        notes.note(str(number))
    assert len(warnings(caplog)) == TEXTS_MAX
    clock.advance_ms(QUIET_MS)
    notes.note("new")
    assert warnings(caplog)[TEXTS_MAX:] == ["new"]
