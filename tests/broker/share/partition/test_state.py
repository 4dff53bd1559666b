"""The offsets of a share partition: how start, end and gap move."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.share_state.values import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from barnabas.broker.share.partition import phases
from barnabas.broker.share.partition.in_flight import Run
from barnabas.broker.share.partition.state import COUNT_MAX, PartitionState
from tests.broker.share.partition.rig import PartitionRig


def loaded(start: int, *kept: StateBatch) -> PartitionState:
    state = PartitionState(start)
    state.load(kept)
    return state


def test_without_batches_the_end_is_the_start() -> None:
    state = loaded(7)
    assert (state.start_offset, state.end_offset, state.gap) == (7, 7, None)
    assert (state.next_fetch_offset(), state.in_flight_count) == (7, 0)


@pytest.mark.parametrize(("kept", "expected"), [(-3, 0), (7, 7), (32_767, COUNT_MAX)])
def test_a_delivery_count_that_was_kept_may_be_any_number(kept: int, expected: int) -> None:
    (batch,) = loaded(0, StateBatch(0, 9, AVAILABLE, kept)).cache.batches
    assert batch.runs[0].delivery_count == expected


def test_the_first_gap_between_kept_batches_is_known() -> None:
    state = loaded(0, StateBatch(0, 4, AVAILABLE, 1), StateBatch(10, 14, ACKNOWLEDGED, 1))
    assert (state.start_offset, state.end_offset, state.gap) == (0, 14, 5)
    assert state.complete_count == 5
    assert state.in_flight_count == 15


def test_the_start_does_not_move_past_a_gap() -> None:
    state = loaded(0, StateBatch(0, 4, ARCHIVED, 1), StateBatch(10, 14, ACKNOWLEDGED, 1))
    assert state.start_offset == 5
    assert state.next_fetch_offset() == 5
    state.move_gap(10)
    assert state.gap is None
    assert state.advance()
    assert (state.start_offset, state.end_offset) == (15, 15)


def test_a_gap_ends_at_the_next_one() -> None:
    state = loaded(0, StateBatch(2, 4, AVAILABLE, 1), StateBatch(5, 6, AVAILABLE, 2), StateBatch(9, 9, ACKNOWLEDGED, 1))
    assert state.gap == 0
    state.move_gap(1)
    assert state.gap == 1
    state.move_gap(2)
    assert state.gap == 7
    state.move_gap(3)
    assert state.gap == 7, "it does not move back"


def test_a_gap_before_the_log_start_is_passed() -> None:
    state = loaded(0, StateBatch(5, 9, AVAILABLE, 1), StateBatch(15, 19, AVAILABLE, 1))
    state.move_log_start(7)
    assert (state.start_offset, state.gap) == (7, 10)


def test_an_earlier_log_start_changes_nothing() -> None:
    state = loaded(10, StateBatch(10, 14, AVAILABLE, 1))
    state.move_log_start(10)
    assert (state.start_offset, state.next_fetch_offset()) == (10, 10)


def test_the_log_start_moves_the_end_if_nothing_is_in_flight() -> None:
    state = loaded(10)
    state.move_log_start(20)
    assert (state.start_offset, state.end_offset, state.next_fetch_offset()) == (20, 20, 20)


def test_available_records_before_the_log_start_are_archived() -> None:
    rig = PartitionRig(kept=(StateBatch(0, 9, AVAILABLE, 1), StateBatch(10, 19, AVAILABLE, 1)))
    rig.partition.move_log_start(15)
    assert rig.text == "10-19: 10-14 archived 1, 15-19 available 1"
    assert rig.span == (15, 19)
    assert rig.partition.state.complete_count == 0


def test_complete_records_before_the_start_count_no_more() -> None:
    rig = PartitionRig()
    rig.acquire((0, 9))
    rig.acquire((10, 19))
    rig.done(2, 3, 1)
    rig.done(12, 14, 1)
    assert rig.partition.state.complete_count == 5
    rig.partition.move_log_start(3)
    assert rig.span == (4, 19)
    assert rig.partition.state.complete_count == 3


def test_only_offsets_from_the_start_on_are_counted() -> None:
    state = loaded(10)
    assert [state.count_from(0, 9), state.count_from(5, 12), state.count_from(12, 14)] == [0, 3, 3]


@pytest.mark.parametrize(("event", "phase"), [(phases.RELEASE, phases.ARCHIVING), (phases.EXPIRE, phases.ARCHIVED)])
def test_what_was_delivered_often_enough_is_archived(event: int, phase: int) -> None:
    run = Run(10, 14, phases.ACQUIRED, 3, "m", 99)
    assert loaded(10).move(run, event, 3)
    assert run.phase == phase


def test_an_event_without_effect_changes_nothing() -> None:
    run = Run(10, 14, phases.ACKNOWLEDGED, 3)
    assert not loaded(10).move(run, phases.EXPIRE, 5)
    assert run.phase == phases.ACKNOWLEDGED


def test_an_update_has_the_states_to_keep() -> None:
    state = loaded(10)
    runs = [
        Run(10, 11, phases.ACKNOWLEDGING, 1),
        Run(12, 13, phases.ACKNOWLEDGING, 1),
        Run(14, 14, phases.ACKNOWLEDGING, 2),
        Run(16, 16, phases.ACKNOWLEDGING, 2),
    ]
    assert state.make_update(runs, pends=True).batches == (
        StateBatch(10, 13, ACKNOWLEDGED, 1),
        StateBatch(14, 14, ACKNOWLEDGED, 2),
        StateBatch(16, 16, ACKNOWLEDGED, 2),
    )
