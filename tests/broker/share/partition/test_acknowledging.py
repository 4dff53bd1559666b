"""Acknowledging: accept, release, reject, renew; locks that run out; members that leave; writes that fail."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.share_state.values import ACKNOWLEDGED, ARCHIVED, AVAILABLE, StateBatch
from barnabas.broker.share.partition import acknowledging
from barnabas.broker.share.partition.in_flight import RUNS_MAX
from barnabas.broker.share.partition.values import Acknowledgement, Limits, Update
from tests.broker.share.partition.rig import LOCK_MS, PartitionRig, count_complete

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


@pytest.fixture
def rig() -> PartitionRig:
    """A member that holds 0-9 and 10-19."""
    rig = PartitionRig()
    rig.acquire((0, 9), (10, 19), size=10)
    return rig


def test_accepted_records_are_done_once_they_are_written(rig: PartitionRig) -> None:
    update = rig.acknowledge(0, 9, ACCEPT)
    assert update.batches == (StateBatch(0, 9, ACKNOWLEDGED, 1),)
    assert (update.start_offset, update.complete_count) == (0, 10)
    assert rig.text.startswith("0-9: 0-9 acknowledging 1 m")
    assert rig.end(update)
    assert rig.span == (10, 19)
    assert rig.partition.state.complete_count == 0


@pytest.mark.parametrize("type_", [REJECT, GAP])
def test_rejected_records_and_gaps_are_archived(rig: PartitionRig, type_: int) -> None:
    update = rig.acknowledge(10, 19, type_)
    assert update.batches == (StateBatch(10, 19, ARCHIVED, 1),)
    rig.end(update)
    assert rig.text == "0-9: 0-9 acquired 1 m | 10-19: 10-19 archived 1"


def test_released_records_are_available_once_they_are_written(rig: PartitionRig) -> None:
    update = rig.acknowledge(0, 9, RELEASE)
    assert update.batches == (StateBatch(0, 9, AVAILABLE, 1),)
    assert rig.partition.next_fetch_offset() == 20
    assert rig.end(update)
    assert rig.partition.next_fetch_offset() == 0


def test_a_record_released_after_its_last_delivery_is_archived() -> None:
    rig = PartitionRig(limits=Limits(delivery_count=2))
    rig.acquire((0, 9))
    rig.done(0, 9, RELEASE)
    rig.acquire((0, 9))
    update = rig.acknowledge(0, 4, RELEASE)
    assert update.batches == (StateBatch(0, 4, ARCHIVED, 2),)
    rig.end(update)
    assert rig.span == (5, 9)


def test_a_batch_of_countless_records_has_bounded_states() -> None:
    rig, half = PartitionRig(), RUNS_MAX // 4
    rig.acquire((0, 10_000_000))
    assert rig.answer(0, 4 * half, *[ACCEPT, RELEASE] * 2 * half, ACCEPT) == acknowledging.TOO_MANY
    assert rig.text.count(",") == 0
    rig.done(0, 2 * half - 1, *[ACCEPT, RELEASE] * half)
    assert rig.answer(2 * half, 4 * half - 1, *[ACCEPT, RELEASE] * half) == acknowledging.TOO_MANY
    rig.done(2 * half, 10_000_000, ACCEPT)  # splits nothing


def test_types_for_each_offset(rig: PartitionRig) -> None:
    update = rig.acknowledge(8, 12, ACCEPT, GAP, ACCEPT, RENEW, RELEASE)
    assert update.batches == (
        StateBatch(8, 8, ACKNOWLEDGED, 1),
        StateBatch(9, 9, ARCHIVED, 1),
        StateBatch(10, 10, ACKNOWLEDGED, 1),
        StateBatch(12, 12, AVAILABLE, 1),
    )


def test_a_write_names_neighbours_alike_once(rig: PartitionRig) -> None:
    assert rig.acknowledge(5, 14, ACCEPT).batches == (StateBatch(5, 14, ACKNOWLEDGED, 1),)


def test_a_renewed_lock_runs_longer_and_nothing_is_written(rig: PartitionRig) -> None:
    rig.now_ms = 1000
    assert rig.answer(5, 9, RENEW) is None
    rig.now_ms = LOCK_MS
    update = rig.expire()
    assert update is not None
    assert update.batches == (StateBatch(0, 4, AVAILABLE, 1), StateBatch(10, 19, AVAILABLE, 1))
    assert rig.partition.next_deadline_ms() == LOCK_MS + 1000


def test_renewal_may_be_switched_off(rig: PartitionRig) -> None:
    rig.limits = rig.limits._replace(can_renew=False)
    assert rig.answer(0, 9, RENEW) == acknowledging.NO_RENEWAL


def test_another_members_records_cannot_be_acknowledged(rig: PartitionRig) -> None:
    assert rig.answer(0, 9, ACCEPT, member="n") == acknowledging.NOT_OWNER


def test_a_refused_acknowledgement_changes_nothing(rig: PartitionRig) -> None:
    rig.acquire((20, 29), member="n")
    before = rig.text
    wanted = [Acknowledgement(0, 9, [ACCEPT]), Acknowledgement(10, 29, [ACCEPT])]
    refused = rig.partition.acknowledge("m", wanted, rig.limits, 0)
    assert refused == acknowledging.NOT_OWNER
    assert rig.text == before
    assert rig.partition.state.complete_count == 0


def test_records_in_transition_cannot_be_acknowledged(rig: PartitionRig) -> None:
    rig.acknowledge(0, 4, RELEASE)
    assert rig.answer(4, 5, ACCEPT) == acknowledging.IN_TRANSITION


def test_what_is_not_acquired_cannot_be_acknowledged(rig: PartitionRig) -> None:
    rig.done(10, 19, RELEASE)
    assert rig.answer(10, 19, ACCEPT) == acknowledging.NOT_ACQUIRED


def test_an_offset_is_acknowledged_once_a_request(rig: PartitionRig) -> None:
    wanted = [Acknowledgement(0, 5, [ACCEPT]), Acknowledgement(5, 9, [ACCEPT])]
    assert rig.partition.acknowledge("m", wanted, rig.limits, 0) == acknowledging.TWICE


def test_offsets_that_are_not_in_flight(rig: PartitionRig) -> None:
    assert rig.answer(20, 29, ACCEPT) == acknowledging.FIRST_PAST
    assert rig.answer(10, 20, ACCEPT) == acknowledging.LAST_PAST
    assert PartitionRig(start=5).answer(7, 9, ACCEPT) == acknowledging.NOT_FOUND
    assert PartitionRig().answer(0, 9, ACCEPT) == acknowledging.NOT_FOUND


def test_records_before_the_start_offset_are_done(rig: PartitionRig) -> None:
    rig.partition.move_log_start(15)
    assert rig.answer(0, 9, ACCEPT) is None
    update = rig.acknowledge(10, 19, ACCEPT)
    assert update.batches == (StateBatch(15, 19, ACKNOWLEDGED, 1),)


def test_the_start_stays_before_records_that_are_not_done(rig: PartitionRig) -> None:
    rig.done(10, 19, ACCEPT)
    assert rig.span == (0, 19)
    assert rig.partition.state.complete_count == 10
    rig.done(0, 4, ACCEPT)
    assert rig.span == (5, 19)
    rig.done(5, 9, ACCEPT)
    assert rig.span == (20, 20)
    assert rig.text == ""


def test_a_failed_write_gives_the_records_back_to_their_member(rig: PartitionRig) -> None:
    update = rig.acknowledge(0, 9, ACCEPT)
    assert not rig.end(update, is_written=False)
    assert rig.text == "0-9: 0-9 acquired 1 m | 10-19: 10-19 acquired 1 m"
    assert rig.partition.state.complete_count == 0
    assert rig.partition.next_deadline_ms() == LOCK_MS


def test_a_failed_write_after_the_lock_ran_out_releases_the_records(rig: PartitionRig) -> None:
    update = rig.acknowledge(0, 9, ACCEPT)
    rig.now_ms = LOCK_MS
    expired = rig.expire()
    assert expired is not None
    assert expired.batches == (StateBatch(10, 19, AVAILABLE, 1),), "what is in transition is left alone"
    assert rig.end(update, is_written=False)
    assert rig.text == "0-9: 0-9 available 1 | 10-19: 10-19 available 1"


def test_a_write_that_succeeds_after_the_lock_ran_out_counts(rig: PartitionRig) -> None:
    update = rig.acknowledge(0, 9, ACCEPT)
    rig.now_ms = LOCK_MS
    rig.expire()
    rig.end(update)
    assert rig.span == (10, 19)


def test_a_lock_that_ran_out_makes_the_records_available_at_once(rig: PartitionRig) -> None:
    rig.now_ms = LOCK_MS - 1
    assert rig.expire() is None
    rig.now_ms = LOCK_MS
    update = rig.expire()
    assert update is not None
    assert not update.pends
    assert rig.partition.next_fetch_offset() == 0
    assert rig.partition.next_deadline_ms() is None
    assert rig.expire() is None
    rig.acquire((0, 9), (10, 19), member="n")
    rig.end(update, is_written=False)
    assert rig.text == "0-9: 0-9 acquired 2 n | 10-19: 10-19 acquired 2 n", "the late answer changes nothing"


def test_a_lock_that_ran_out_at_the_last_delivery_archives() -> None:
    rig = PartitionRig(limits=Limits(delivery_count=2))
    rig.acquire((0, 9))
    for _ in range(2):
        rig.now_ms += LOCK_MS
        update = rig.expire()
        rig.acquire((0, 9))
    assert update is not None
    assert update.batches == (StateBatch(0, 9, ARCHIVED, 2),)
    rig.end(update)
    assert rig.span == (10, 10)


def test_a_member_that_leaves_releases_what_it_holds(rig: PartitionRig) -> None:
    rig.acquire((20, 29), member="n")
    rig.acknowledge(0, 4, ACCEPT)
    update = rig.release()
    assert update is not None
    assert update.batches == (StateBatch(5, 19, AVAILABLE, 1),)
    assert rig.release() is None
    rig.end(update)
    assert rig.partition.next_fetch_offset() == 5


def test_records_before_the_start_are_archived_when_they_are_released(rig: PartitionRig) -> None:
    rig.partition.move_log_start(5)
    update = rig.release()
    assert update is not None
    assert update.batches == (StateBatch(0, 4, ARCHIVED, 1), StateBatch(5, 19, AVAILABLE, 1))
    rig.end(update)
    assert rig.span == (5, 19)


def test_records_before_the_start_are_archived_when_their_lock_runs_out(rig: PartitionRig) -> None:
    rig.partition.move_log_start(5)
    rig.now_ms = LOCK_MS
    update = rig.expire()
    assert update is not None
    assert update.batches == (StateBatch(0, 4, ARCHIVED, 1), StateBatch(5, 19, AVAILABLE, 1))


def test_batches_before_the_start_are_forgotten(rig: PartitionRig) -> None:
    rig.partition.move_log_start(25)
    assert rig.span == (25, 25)
    assert rig.text == ""
    assert rig.answer(0, 9, ACCEPT) is None, "late, and no error"


def test_a_release_whose_records_the_log_loses_ends_archived(rig: PartitionRig) -> None:
    update = rig.acknowledge(0, 19, RELEASE)
    rig.partition.move_log_start(15)
    assert rig.text == "10-19: 10-14 discarded 1 m, 15-19 releasing 1 m"
    rig.end(update, is_written=False)
    assert rig.text == "10-19: 10-14 archived 1, 15-19 acquired 1 m"
    assert rig.span == (15, 19)


def test_two_writes_end_in_any_order(rig: PartitionRig) -> None:
    first = rig.acknowledge(0, 4, ACCEPT)
    second = rig.acknowledge(5, 9, RELEASE)
    rig.end(second)
    rig.end(first, is_written=False)
    assert rig.text == "0-9: 0-4 acquired 1 m, 5-9 available 1 | 10-19: 10-19 acquired 1 m"
    assert not rig.end(first), "late and twice"


def test_many_types_take_one_pass() -> None:
    rig = PartitionRig()
    count = 20_000
    rig.acquire((0, count - 1))
    update = rig.answer(0, count - 1, *([ACCEPT, REJECT] * (count // 2)))
    assert isinstance(update, Update)
    assert len(update.batches) == count
    rig.end(update)
    assert rig.span == (count, count)


def test_many_acknowledgements_of_one_batch_take_one_pass() -> None:
    rig = PartitionRig()
    count = 20_000
    rig.acquire((0, count - 1))
    wanted = [Acknowledgement(offset, offset, [ACCEPT]) for offset in range(1, count, 2)]
    update = rig.partition.acknowledge("m", wanted, rig.limits, 0)
    assert isinstance(update, Update)
    rig.end(update)
    assert rig.partition.state.complete_count == count_complete(rig.partition) == count // 2
