"""The phases of a record in flight: every cell of the table."""

from __future__ import annotations

import pytest

from barnabas.broker.share.partition import phases

# A row for each phase, a column for each event: the next phase, or "." for none.
TABLE = """
                ACQUIRE   ACCEPT         RELEASE    REJECT     RENEW     EXPIRE     REMOVE     ABORT     COMMIT        ROLLBACK
AVAILABLE       ACQUIRED  .              .          .          .         .          ARCHIVED   .         .             .
ACQUIRED        .         ACKNOWLEDGING  RELEASING  ARCHIVING  ACQUIRED  AVAILABLE  .          ARCHIVED  .             .
ACKNOWLEDGED    .         .              .          .          .         .          .          .         .             .
ARCHIVED        .         .              .          .          .         .          .          .         .             .
RELEASING       .         .              .          .          .         .          DISCARDED  .         AVAILABLE     ACQUIRED
ACKNOWLEDGING   .         .              .          .          .         .          .          .         ACKNOWLEDGED  ACQUIRED
ARCHIVING       .         .              .          .          .         .          .          .         ARCHIVED      ACQUIRED
DISCARDED       .         .              .          .          .         .          .          .         ARCHIVED      ARCHIVED
"""  # noqa: E501
LINES = [line.split() for line in TABLE.strip().splitlines()]
CELLS = [
    (row[0], event, None if cell == "." else cell)
    for row in LINES[1:]
    for event, cell in zip(LINES[0], row[1:], strict=True)
]


@pytest.mark.parametrize(("phase", "event", "expected"), CELLS)
def test_what_an_event_makes_of_a_phase(phase: str, event: str, expected: str | None) -> None:
    found = phases.CELLS.get((getattr(phases, phase), getattr(phases, event)))
    assert found == (None if expected is None else getattr(phases, expected))


def test_the_table_has_every_cell() -> None:
    assert len(CELLS) == len(phases.PHASES) * len(phases.EVENTS)
    assert len({(phase, event) for phase, event, _ in CELLS}) == len(CELLS)


def test_what_is_finished_or_in_transition_cannot_be_acknowledged() -> None:
    for phase in phases.PHASES:
        for event in set(phases.EVENT_OF_TYPE.values()):
            assert ((phase, event) in phases.CELLS) == (phase == phases.ACQUIRED)


def test_a_transition_ends_whatever_becomes_of_the_write() -> None:
    for phase in phases.PENDING:
        for event in (phases.COMMIT, phases.ROLLBACK):
            assert phases.CELLS[phase, event] not in phases.PENDING


def test_what_is_kept_of_a_phase_is_the_phase_after_its_commit() -> None:
    for phase in phases.PENDING:
        assert phases.DELIVERY_STATES[phase] == phases.DELIVERY_STATES[phases.CELLS[phase, phases.COMMIT]]
    for state, phase in phases.LOADED.items():
        assert phases.DELIVERY_STATES[phase] == state


def test_each_phase_has_a_name() -> None:
    assert len(set(phases.NAMES)) == len(phases.PHASES)
