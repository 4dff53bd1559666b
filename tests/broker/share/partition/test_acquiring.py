"""Acquiring: what a member gets of the fetched records."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.share_state.values import ACKNOWLEDGED, AVAILABLE, StateBatch
from barnabas.broker.share.partition.acquiring import throttle_from, wanted_end, without
from barnabas.broker.share.partition.in_flight import RUNS_MAX
from barnabas.broker.share.partition.values import Acquired, AcquireMode, Limits, Span
from tests.broker.share.partition.rig import LOCK_MS, PartitionRig, count_complete

ACCEPT, RELEASE = 1, 2


@pytest.fixture
def rig() -> PartitionRig:
    return PartitionRig()


def test_new_records_are_acquired_in_one_batch(rig: PartitionRig) -> None:
    assert rig.acquire((0, 9), (10, 19)) == [(0, 19, 1)]
    assert rig.text == "0-19: 0-19 acquired 1 m"
    assert rig.span == (0, 19)
    assert rig.partition.next_fetch_offset() == 20
    assert rig.partition.next_deadline_ms() == LOCK_MS


def test_the_record_batch_with_the_limit_is_acquired_to_its_end(rig: PartitionRig) -> None:
    assert rig.acquire((0, 9), (10, 19), (20, 29), most=12) == [(0, 19, 1)]


def test_a_record_limit_ends_within_a_record_batch(rig: PartitionRig) -> None:
    assert rig.acquire((0, 9), most=4, mode=AcquireMode.RECORD_LIMIT) == [(0, 3, 1)]
    assert rig.text == "0-9: 0-3 acquired 1 m, 4-9 available 0"
    assert rig.partition.next_fetch_offset() == 4
    assert rig.acquire((0, 9), most=4, member="n", mode=AcquireMode.RECORD_LIMIT) == [(4, 7, 1)]
    assert rig.acquire((0, 9), (10, 19), most=4, mode=AcquireMode.RECORD_LIMIT) == [(8, 9, 1), (10, 11, 1)]


def test_batches_are_split_at_record_batches_once_they_are_large(rig: PartitionRig) -> None:
    assert rig.acquire((0, 4), (5, 9), (10, 14), (15, 19), (20, 21), size=8) == [(0, 9, 1), (10, 19, 1), (20, 21, 1)]


def test_a_fetch_may_begin_within_a_record_batch() -> None:
    rig = PartitionRig(start=5)
    assert rig.acquire((0, 9)) == [(5, 9, 1)]
    assert rig.span == (5, 9)


def test_a_log_that_begins_later_moves_the_start(rig: PartitionRig) -> None:
    assert rig.acquire((7, 9)) == [(7, 9, 1)]
    assert rig.span == (7, 9)


def test_nothing_is_acquired_before_the_start() -> None:
    assert PartitionRig(start=20).acquire((0, 9)) == []
    assert PartitionRig().acquire() == []
    assert PartitionRig().acquire((0, 9), most=0) == []


def test_released_records_are_delivered_again(rig: PartitionRig) -> None:
    rig.acquire((0, 9))
    rig.acquire((10, 19), member="n")
    rig.done(0, 9, 2)
    assert rig.partition.next_fetch_offset() == 0
    assert rig.acquire((0, 9), (10, 19), (20, 29), member="o") == [(0, 9, 2), (20, 29, 1)]
    assert rig.partition.next_fetch_offset() == 30


def test_of_a_batch_in_parts_the_available_ones_are_acquired(rig: PartitionRig) -> None:
    rig.acquire((0, 9))
    rig.done(2, 5, 2, 1, 2, 2)
    assert rig.text == "0-9: 0-1 acquired 1 m, 2-2 available 1, 3-3 acknowledged 1, 4-5 available 1, 6-9 acquired 1 m"
    assert rig.acquire((0, 9), member="n") == [(2, 2, 2), (4, 5, 2)]


def test_records_in_transition_are_not_delivered(rig: PartitionRig) -> None:
    rig.acquire((0, 9))
    update = rig.acknowledge(0, 9, 2)
    assert rig.partition.next_fetch_offset() == 10
    assert rig.acquire((0, 9), at=0) == []
    assert rig.end(update)
    assert rig.partition.next_fetch_offset() == 0


def test_a_batch_in_flight_is_acquired_only_as_far_as_it_was_fetched(rig: PartitionRig) -> None:
    rig.acquire((0, 9), (10, 19))
    rig.done(0, 19, 2)
    assert rig.acquire((0, 9)) == [(0, 9, 2)]
    assert rig.acquire((10, 19)) == [(10, 19, 2)]


def test_at_the_limit_of_records_in_flight_only_earlier_ones_are_acquired() -> None:
    rig = PartitionRig(limits=Limits(in_flight=20))
    rig.acquire((0, 19))
    assert not rig.partition.can_acquire(rig.limits)
    assert rig.acquire((20, 29)) == []
    rig.done(5, 9, 2)
    assert rig.partition.can_acquire(rig.limits)
    assert rig.acquire((0, 19), (20, 29)) == [(5, 9, 2)]


def test_the_room_in_flight_limits_new_records() -> None:
    rig = PartitionRig(limits=Limits(in_flight=20))
    rig.acquire((0, 14))
    assert rig.acquire((15, 17), (18, 24), (25, 30)) == [(15, 24, 1)]


def test_records_that_compaction_removed_are_archived(rig: PartitionRig) -> None:
    rig.acquire((0, 9))
    rig.acquire((10, 19), member="n")
    rig.done(0, 9, 2)
    assert rig.acquire((10, 19), (20, 29), member="o") == [(20, 29, 1)]
    assert rig.text == "10-19: 10-19 acquired 1 n | 20-29: 20-29 acquired 1 o"
    assert rig.span == (10, 29)


def test_a_part_of_a_batch_that_compaction_removed_is_archived(rig: PartitionRig) -> None:
    rig.acquire((0, 9), (10, 19))
    rig.done(0, 19, 2)
    assert rig.acquire((10, 19)) == [(10, 19, 2)]
    assert rig.span == (10, 19)
    assert rig.partition.state.complete_count == count_complete(rig.partition) == 0


def test_suspicious_batches_are_delivered_alone_and_in_smaller_parts() -> None:
    rig = PartitionRig()
    fetched = ((0, 15), (16, 31))
    for _ in range(3):  # the throttle begins at 3 of 5
        rig.acquire(*fetched)
        rig.done(0, 31, 2)
    assert rig.acquire(*fetched) == [(0, 15, 4)]
    assert rig.acquire(*fetched, at=16, member="n") == [(16, 31, 4)]
    rig.done(0, 15, 2)
    rig.done(16, 31, 2, member="n")
    assert rig.acquire(*fetched) == [(0, 0, 5)], "the last delivery is one record's"
    assert rig.acquire(*fetched) == [(1, 1, 5)]


def test_others_are_delivered_before_a_suspicious_batch_but_not_with_it() -> None:
    rig = PartitionRig()
    rig.acquire((0, 3), size=1)
    for _ in range(2):
        rig.acquire((4, 7))
        rig.done(4, 7, 2)
    rig.acquire((4, 7))
    rig.done(0, 7, 2)
    assert rig.acquire((0, 3), (4, 7), (8, 9)) == [(0, 3, 2)]
    assert rig.acquire((4, 7), (8, 9)) == [(4, 5, 4)]


@pytest.mark.parametrize(("limit", "threshold"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (10, 5)])
def test_where_the_throttle_begins(limit: int, threshold: int) -> None:
    assert throttle_from(limit) == threshold


def test_records_of_aborted_transactions_are_archived(rig: PartitionRig) -> None:
    assert rig.acquire((0, 4), (5, 9), (10, 14), aborted=((5, 9),)) == [(0, 4, 1), (10, 14, 1)]
    assert rig.text == "0-14: 0-4 acquired 1 m, 5-9 archived 1, 10-14 acquired 1 m"
    assert rig.partition.state.complete_count == 5


def test_aborted_records_at_the_start_are_passed(rig: PartitionRig) -> None:
    assert rig.acquire((0, 4), (5, 9), aborted=((0, 4), (5, 9))) == []
    assert rig.span == (10, 10)
    assert rig.partition.next_fetch_offset() == 10


KEPT = (StateBatch(5, 9, ACKNOWLEDGED, 1), StateBatch(15, 19, AVAILABLE, 2), StateBatch(30, 39, ACKNOWLEDGED, 1))


def test_after_loading_gaps_are_fetched_first() -> None:
    rig = PartitionRig(kept=KEPT)
    assert rig.partition.next_fetch_offset() == 0
    assert rig.acquire((0, 19)) == [(0, 4, 1), (10, 14, 1), (15, 19, 3)]
    assert rig.partition.next_fetch_offset() == 20
    assert rig.acquire((20, 39), (40, 49), member="n") == [(20, 29, 1), (40, 49, 1)]
    assert rig.partition.next_fetch_offset() == 50


def test_a_gap_may_be_acquired_in_parts() -> None:
    rig = PartitionRig(kept=KEPT)
    assert rig.acquire((0, 1), (2, 9), most=1) == [(0, 1, 1)]
    assert rig.partition.next_fetch_offset() == 2
    assert rig.acquire((2, 3), (4, 11), most=1) == [(2, 3, 1)]
    assert rig.acquire((4, 11), most=1) == [(4, 4, 1)], "it ends where a batch in flight begins"
    assert rig.partition.next_fetch_offset() == 10


def test_a_gap_that_the_log_does_not_fill_is_passed() -> None:
    rig = PartitionRig(kept=KEPT[:1])
    assert rig.partition.next_fetch_offset() == 0
    assert rig.acquire((5, 9)) == []
    assert rig.span == (10, 10)
    assert rig.partition.next_fetch_offset() == 10


def test_what_the_log_has_after_an_empty_gap_is_acquired() -> None:
    rig = PartitionRig(kept=KEPT)
    assert rig.acquire((30, 39), (40, 44)) == [(40, 44, 1)]
    assert rig.span == (40, 44)


@pytest.mark.parametrize(
    ("most", "expected"), [(1, 0), (5, 4), (6, 10), (10, 14), (11, 19), (15, 19), (16, 20), (25, 29), (26, 40)]
)
def test_how_much_of_the_log_has_to_be_known(most: int, expected: int) -> None:
    assert wanted_end(PartitionRig(kept=KEPT).partition.state, 0, most) == expected


def test_new_records_are_wanted_from_the_fetch_offset_on(rig: PartitionRig) -> None:
    assert wanted_end(rig.partition.state, 0, 10) == 9
    rig.acquire((0, 9))
    assert wanted_end(rig.partition.state, 10, 10) == 19


def test_a_batch_in_flight_is_wanted_whole(rig: PartitionRig) -> None:
    rig.acquire((0, 9), (10, 19))
    rig.done(0, 19, 2)
    assert wanted_end(rig.partition.state, 0, 3) == 19


def test_what_is_left_without_some_offsets() -> None:
    acquired = [Acquired(0, 9, 1), Acquired(10, 19, 2), Acquired(30, 39, 1)]
    assert without(acquired, []) == acquired
    assert without(acquired, [Span(2, 3), Span(8, 12), Span(19, 30), Span(39, 50)]) == [
        Acquired(0, 1, 1),
        Acquired(4, 7, 1),
        Acquired(13, 18, 2),
        Acquired(31, 38, 1),
    ]
    assert without(acquired, [Span(0, 99)]) == []


def test_records_taken_one_by_one_have_bounded_states() -> None:
    rig, last = PartitionRig(), 10_000_000
    rig.acquire((0, last))
    (batch,) = rig.partition.state.cache.batches
    at = 0
    while (count := (RUNS_MAX - len(batch.runs)) // 4) > 0:
        rig.done(at, at + 2 * count - 1, *[RELEASE, ACCEPT] * count)
        at += 2 * count
    rig.now_ms = LOCK_MS
    rig.expire()
    taken = [
        rig.acquire((at, last), member=member, most=1, mode=AcquireMode.RECORD_LIMIT, at=at) for member in "abcdef"
    ]
    assert len(batch.runs) == RUNS_MAX
    one_by_one = [[(offset, offset, 2)] for offset in range(at, at + 3)]
    assert taken == [*one_by_one, [(at + 3, last, 2)], [], []], "the rest goes as a whole"
