"""The state of a share partition: every cell of what a request is answered, and what records make of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.coordinators.share_state import state as share_state
from barnabas.broker.coordinators.share_state.records import StateRecord
from barnabas.broker.coordinators.share_state.state import ShareState, Times, replayed
from barnabas.broker.coordinators.share_state.values import (
    ACKNOWLEDGED,
    ANY_EPOCH,
    AVAILABLE,
    NO_DELIVERY_COMPLETE_COUNT,
    NO_START_OFFSET,
    StateBatch,
    StateRead,
    StateSummary,
    StateWrite,
)
from barnabas.protocol.coordinator_records.share_state import ShareSnapshotValue, ShareUpdateValue
from barnabas.protocol.errors import ApiError, ErrorCode

NONE = ErrorCode.NONE
INVALID, UNKNOWN = ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
LEADER, STATE = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH
TIMES = Times(now_ms=5000, updates_per_snapshot=3)
A = StateBatch(10, 14, ACKNOWLEDGED, 1)
B = StateBatch(15, 19, AVAILABLE, 2)
#: The state of the table: state epoch 5, leader epoch 7.
KNOWN = ShareState(5, 10, 7, 3, (A, B), snapshot_epoch=2, create_ms=100, snapshot_ms=200, updates=1)

OLDER, SAME, NEWER = -1, 0, 1

# (state exists, state epoch, leader epoch, topic exists) -> error; epochs against the state's, None is ANY_EPOCH
WRITES = {
    (False, SAME, SAME, True): INVALID,
    (False, SAME, SAME, False): INVALID,
    (True, OLDER, OLDER, True): LEADER,
    (True, OLDER, SAME, True): STATE,
    (True, OLDER, NEWER, True): STATE,
    (True, OLDER, None, True): STATE,
    (True, SAME, OLDER, True): LEADER,
    (True, SAME, SAME, True): NONE,
    (True, SAME, NEWER, True): NONE,
    (True, SAME, None, True): NONE,
    (True, NEWER, OLDER, True): LEADER,
    (True, NEWER, SAME, True): STATE,
    (True, NEWER, NEWER, True): STATE,
    (True, NEWER, None, True): STATE,
    (True, None, OLDER, True): LEADER,
    (True, None, SAME, True): NONE,
    (True, None, NEWER, True): NONE,
    (True, None, None, True): NONE,
    (True, OLDER, OLDER, False): LEADER,
    (True, OLDER, SAME, False): STATE,
    (True, SAME, OLDER, False): LEADER,
    (True, SAME, SAME, False): UNKNOWN,
}
READS = {
    (False, SAME, True): INVALID,
    (False, SAME, False): INVALID,
    (True, OLDER, True): LEADER,
    (True, OLDER, False): LEADER,
    (True, SAME, True): NONE,
    (True, SAME, False): UNKNOWN,
    (True, NEWER, True): NONE,
    (True, NEWER, False): UNKNOWN,
    (True, None, True): NONE,
    (True, None, False): UNKNOWN,
}
INITIALIZATIONS = {
    (False, SAME, True): NONE,
    (False, SAME, False): UNKNOWN,
    (True, OLDER, True): STATE,
    (True, OLDER, False): STATE,
    (True, SAME, True): NONE,
    (True, SAME, False): UNKNOWN,
    (True, NEWER, True): NONE,
    (True, NEWER, False): UNKNOWN,
    (True, None, True): NONE,
    (True, None, False): UNKNOWN,
}


def epoch(step: int | None, current: int) -> int:
    return ANY_EPOCH if step is None else current + step


@pytest.mark.parametrize(("cell", "error"), WRITES.items())
def test_a_write(cell: tuple[bool, int | None, int | None, bool], error: ErrorCode) -> None:
    exists, state_step, leader_step, is_known = cell
    write = StateWrite(epoch(state_step, 5), epoch(leader_step, 7), 10, (StateBatch(15, 19, ACKNOWLEDGED, 2),), 10)
    before = KNOWN if exists else None
    if error:
        with pytest.raises(ApiError) as caught:
            share_state.write(before, write, is_known=is_known, times=TIMES)
        assert caught.value.code == error
        return
    after = replayed(before, share_state.write(before, write, is_known=is_known, times=TIMES))
    both = (StateBatch(10, 14, ACKNOWLEDGED, 1), StateBatch(15, 19, ACKNOWLEDGED, 2))
    assert after == KNOWN._replace(batches=both, delivery_complete_count=10, updates=2), "the epochs stay"


@pytest.mark.parametrize(("cell", "error"), READS.items())
def test_a_read(cell: tuple[bool, int | None, bool], error: ErrorCode) -> None:
    exists, leader_step, is_known = cell
    before = KNOWN if exists else None
    leader_epoch = epoch(leader_step, 7)
    if error:
        with pytest.raises(ApiError) as caught:
            share_state.read(before, leader_epoch, is_known=is_known, times=TIMES)
        assert caught.value.code == error
        return
    record = share_state.read(before, leader_epoch, is_known=is_known, times=TIMES)
    if leader_step == NEWER:
        assert replayed(before, record) == KNOWN._replace(leader_epoch=8, updates=2)
    else:
        assert record is None
    assert share_state.as_read(KNOWN) == StateRead(NONE, 5, 10, (A, B))


@pytest.mark.parametrize(("cell", "error"), INITIALIZATIONS.items())
@pytest.mark.parametrize("start_offset", [NO_START_OFFSET, 40])
def test_an_initialization(cell: tuple[bool, int | None, bool], error: ErrorCode, start_offset: int) -> None:
    exists, state_step, is_known = cell
    before = KNOWN if exists else None
    state_epoch = epoch(state_step, 5)
    if error:
        with pytest.raises(ApiError) as caught:
            share_state.initialize(before, state_epoch, start_offset, is_known=is_known, now_ms=5000)
        assert caught.value.code == error
        return
    record = share_state.initialize(before, state_epoch, start_offset, is_known=is_known, now_ms=5000)
    if exists and state_step == SAME and start_offset == NO_START_OFFSET:
        assert record is None, "a late one loses nothing"
        return
    assert replayed(before, record) == ShareState(
        state_epoch,
        start_offset,
        7 if exists else 0,
        NO_DELIVERY_COMPLETE_COUNT if start_offset == NO_START_OFFSET else 0,
        snapshot_epoch=3 if exists else 0,
        create_ms=5000,
        snapshot_ms=5000,
    )


@pytest.mark.parametrize("state", [None, KNOWN])
def test_a_summary(state: ShareState | None) -> None:
    expected = StateSummary(NONE, 0, 0, -1, -1) if state is None else StateSummary(NONE, 5, 7, 10, 3)
    assert share_state.summary(state, is_known=True) == expected
    with pytest.raises(ApiError) as caught:
        share_state.summary(state, is_known=False)
    assert caught.value.code == UNKNOWN


def test_a_batch_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        share_state.write(KNOWN, StateWrite(5, 7, 10, (StateBatch(9, 8, 0, 1),)), is_known=True, times=TIMES)
    assert caught.value.code == INVALID


def test_a_late_write_moves_the_start_offset_not_back() -> None:
    late = StateWrite(5, 7, 4, (StateBatch(4, 12, ACKNOWLEDGED, 1),), 9)
    after = replayed(KNOWN, share_state.write(KNOWN, late, is_known=True, times=TIMES))
    assert after is not None
    assert (after.start_offset, after.delivery_complete_count) == (10, 3)
    assert after.batches == (A, B)


@pytest.mark.parametrize(
    ("start_offset", "has_effect"), [(NO_START_OFFSET, False), (10, False), (9, False), (11, True)]
)
def test_an_initialize_that_comes_twice_brings_no_records_back(start_offset: int, has_effect: bool) -> None:
    record = share_state.initialize(KNOWN, 5, start_offset, is_known=True, now_ms=1)
    assert (record is not None) == has_effect


def test_a_write_may_leave_the_start_offset() -> None:
    write = StateWrite(5, 7, NO_START_OFFSET, (), 4)
    after = replayed(KNOWN, share_state.write(KNOWN, write, is_known=True, times=TIMES))
    assert after == KNOWN._replace(delivery_complete_count=4, updates=2)


def test_every_few_updates_there_is_a_snapshot() -> None:
    state: ShareState | None = ShareState(0, 0)
    kinds = []
    for offset in range(8):
        write = StateWrite(0, 0, 0, (StateBatch(offset, offset, ACKNOWLEDGED, 1),), offset + 1)
        record = share_state.write(state, write, is_known=True, times=TIMES)
        kinds.append("S" if isinstance(record, ShareSnapshotValue) else "u")
        state = replayed(state, record)
    assert "".join(kinds) == "uuuSuuuS"
    assert state == ShareState(0, 0, 0, 8, (StateBatch(0, 7, ACKNOWLEDGED, 1),), 2, 5000, 5000)


def test_without_updates_every_record_is_a_snapshot() -> None:
    record = share_state.write(ShareState(0, 0), StateWrite(0, 0, 0), is_known=True, times=Times(1, 0))
    assert isinstance(record, ShareSnapshotValue)


def test_a_snapshot_of_a_state_that_is_not_written_to_keeps_it() -> None:
    after = replayed(KNOWN, share_state.snapshot(KNOWN, 9000))
    assert after == KNOWN._replace(snapshot_epoch=3, snapshot_ms=9000, updates=0)


def test_an_update_without_a_snapshot_has_no_effect() -> None:
    assert replayed(None, ShareUpdateValue(snapshot_epoch=0, leader_epoch=0, start_offset=0)) is None


def test_a_tombstone_removes_the_state() -> None:
    assert replayed(KNOWN, None) is None


@st.composite
def writes(draw: st.DrawFn) -> list[StateWrite]:
    start, made = 0, []
    for _ in range(draw(st.integers(1, 12))):
        start += draw(st.integers(0, 3))
        first = start + draw(st.integers(0, 5))
        batch = StateBatch(first, first + draw(st.integers(0, 4)), draw(st.sampled_from((0, 2, 4))), 1)
        made.append(StateWrite(5, 7, start, (batch,), draw(st.integers(0, 9))))
    return made


@given(writes(), st.integers(0, 4), st.data())
def test_a_log_gives_the_same_state_from_any_snapshot_on(
    some: list[StateWrite], per_snapshot: int, data: st.DataObject
) -> None:
    """Pruning keeps the last snapshot: what is left of the log gives the same state, and so does a write twice."""
    times = Times(5000, per_snapshot)
    records: list[StateRecord] = [share_state.initialize(None, 5, 0, is_known=True, now_ms=1)]
    state = replayed(None, records[0])
    for write in some:
        for _ in range(data.draw(st.integers(1, 2))):
            records.append(share_state.write(state, write, is_known=True, times=times))
            state = replayed(state, records[-1])
    last = max(i for i, record in enumerate(records) if isinstance(record, ShareSnapshotValue))
    again = None
    for record in records[data.draw(st.integers(0, last)) :]:
        again = replayed(again, record)
    assert again == state
    assert state is not None
    once: ShareState | None = replayed(None, records[0])
    for write in some:
        once = replayed(once, share_state.write(once, write, is_known=True, times=times))
    assert once is not None
    assert once.batches == state.batches
    assert once.start_offset == state.start_offset
