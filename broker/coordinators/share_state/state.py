"""The state of a share partition: which record a request needs, and the state after a record. Pure.

Rules
1. The state follows from its records, in log order: `replayed`. A request only decides which record comes next.
   So a coordinator that loads a log has exactly the state of the one that wrote it.
2. A state epoch begins with Initialize. A write with another one is refused (FENCED_STATE_EPOCH), and so is an
   Initialize with an older one. Why also a write with a newer one: it is of a group that was deleted. The epochs of the
   next group of that name begin from the beginning.
3. A leader's read raises the leader epoch. A write or read with an older one is refused (FENCED_LEADER_EPOCH). The
   leader epoch outlives Initialize.
4. A write without effect on a request that is applied twice, or late: batches combine by rule 1 of `batches.py`, and
   within a state epoch the start offset never moves back. An Initialize in an epoch that has begun has an effect only
   if its start offset is a later one.
5. Every `updates_per_snapshot` updates the next record is a snapshot.

Different from Apache Kafka: the second halves of rules 3 and 4, and a write with a newer epoch in rule 2. There, a late
write moves the start offset back, and a late Initialize loses the state; records that were acknowledged would be
delivered again. A late write for a deleted group would acknowledge records of the next one.

Source: Kafka's ShareCoordinatorShard, ShareGroupOffset (4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.coordinators.share_state.batches import combine
from barnabas.broker.coordinators.share_state.records import wire_batches
from barnabas.broker.coordinators.share_state.values import (
    ANY_EPOCH,
    INT32_LIMIT,
    NO_DELIVERY_COMPLETE_COUNT,
    NO_LEADER_EPOCH,
    NO_START_OFFSET,
    StateBatch,
    StateRead,
    StateSummary,
    StateWrite,
    batches_of,
)
from barnabas.protocol.coordinator_records.share_state import ShareSnapshotValue, ShareUpdateValue
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.share_state.records import StateRecord

UNINITIALIZED_WRITE = "Write operation on uninitialized share partition not allowed."
UNINITIALIZED_READ = "Read operation on uninitialized share partition not allowed."
REVERSED_BATCH = "A state batch ends before it begins."


class ShareState(NamedTuple):
    """The state of one share partition."""

    state_epoch: int
    start_offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    delivery_complete_count: int = NO_DELIVERY_COMPLETE_COUNT
    batches: tuple[StateBatch, ...] = ()
    snapshot_epoch: int = 0
    create_ms: int = 0
    snapshot_ms: int = 0  # when the last snapshot was written
    updates: int = 0  # since the last snapshot


class Times(NamedTuple):
    """The values that a decision depends on besides the state."""

    now_ms: int
    updates_per_snapshot: int


# -- what a record makes of it


def replayed(state: ShareState | None, record: StateRecord) -> ShareState | None:
    """Return the state after a record; None if it was removed.

    An update without a snapshot before it has no effect: pruning removed that snapshot, so a newer one follows.
    """
    if record is None:
        return None
    if isinstance(record, ShareSnapshotValue):
        return ShareState(
            state_epoch=record.state_epoch,
            start_offset=record.start_offset,
            leader_epoch=record.leader_epoch,
            delivery_complete_count=record.delivery_complete_count,
            batches=combine((), batches_of(record.state_batches), NO_START_OFFSET),
            snapshot_epoch=record.snapshot_epoch,
            create_ms=record.create_timestamp,
            snapshot_ms=record.write_timestamp,
        )
    if state is None:
        return None
    start_offset = state.start_offset if record.start_offset == NO_START_OFFSET else record.start_offset
    return state._replace(
        start_offset=start_offset,
        leader_epoch=state.leader_epoch if record.leader_epoch == ANY_EPOCH else record.leader_epoch,
        delivery_complete_count=record.delivery_complete_count,
        batches=combine(state.batches, batches_of(record.state_batches), start_offset),
        updates=state.updates + 1,
    )


# -- what a request makes of it


def initialize(
    state: ShareState | None, state_epoch: int, start_offset: int, *, is_known: bool, now_ms: int
) -> ShareSnapshotValue | None:
    """Return the snapshot that begins a state epoch, or None if it has begun; `is_known`: the partition exists.

    Raises ApiError: FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
    """
    if state is not None and state_epoch != ANY_EPOCH and state_epoch < state.state_epoch:
        raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
    require_known(is_known)
    has_start = start_offset != NO_START_OFFSET
    has_begun = state is not None and state_epoch == state.state_epoch
    if state is not None and has_begun and (not has_start or start_offset <= state.start_offset):
        return None  # it comes twice, or late: what was acknowledged meanwhile stays
    return ShareSnapshotValue(
        snapshot_epoch=0 if state is None else _next(state.snapshot_epoch),
        state_epoch=state_epoch,
        leader_epoch=NO_LEADER_EPOCH if state is None else state.leader_epoch,
        start_offset=start_offset,
        # Consumption starts at a given offset, so the lag is known; else it is not.
        delivery_complete_count=0 if has_start else NO_DELIVERY_COMPLETE_COUNT,
        create_timestamp=now_ms,
        write_timestamp=now_ms,
    )


def write(
    state: ShareState | None, write: StateWrite, *, is_known: bool, times: Times
) -> ShareSnapshotValue | ShareUpdateValue:
    """Return the record of a write.

    Raises ApiError: INVALID_REQUEST (never initialized, or a batch that ends before it begins), FENCED_LEADER_EPOCH,
    FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
    """
    if state is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, UNINITIALIZED_WRITE)
    _require_leader(state, write.leader_epoch)
    if write.state_epoch not in (ANY_EPOCH, state.state_epoch):
        raise ApiError(ErrorCode.FENCED_STATE_EPOCH)
    require_known(is_known)
    if any(batch.last_offset < batch.first_offset for batch in write.batches):
        raise ApiError(ErrorCode.INVALID_REQUEST, REVERSED_BATCH)
    start_offset, count = write.start_offset, write.delivery_complete_count
    if NO_START_OFFSET < start_offset < state.start_offset:  # an earlier write that comes late
        start_offset, count = NO_START_OFFSET, state.delivery_complete_count
    return _changed(state, start_offset, count, state.leader_epoch, write.batches, times)


def read(
    state: ShareState | None, leader_epoch: int, *, is_known: bool, times: Times
) -> ShareSnapshotValue | ShareUpdateValue | None:
    """Return the record that notes a newer leader epoch, or None if it is known.

    Raises ApiError: INVALID_REQUEST (never initialized), FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION.
    """
    if state is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, UNINITIALIZED_READ)
    _require_leader(state, leader_epoch)
    require_known(is_known)
    if leader_epoch in (ANY_EPOCH, state.leader_epoch):
        return None
    return _changed(state, state.start_offset, state.delivery_complete_count, leader_epoch, (), times)


def snapshot(state: ShareState, now_ms: int) -> ShareSnapshotValue:
    """Return a snapshot of the state as it is, so that what is before it in the log can be pruned."""
    return _snapshot(state, state.create_ms, now_ms)


def as_read(state: ShareState) -> StateRead:
    """Return what the leader of the share partition reads."""
    return StateRead(ErrorCode.NONE, state.state_epoch, state.start_offset, state.batches)


def summary(state: ShareState | None, *, is_known: bool) -> StateSummary:
    """Return the summary; its defaults if the state was never initialized. Raises UNKNOWN_TOPIC_OR_PARTITION."""
    require_known(is_known)
    if state is None:
        return StateSummary(ErrorCode.NONE)
    return StateSummary(
        ErrorCode.NONE, state.state_epoch, state.leader_epoch, state.start_offset, state.delivery_complete_count
    )


def _next(snapshot_epoch: int) -> int:
    """Return the next snapshot epoch; after the largest one it begins again, since it only distinguishes snapshots."""
    return (snapshot_epoch + 1) % INT32_LIMIT


def _require_leader(state: ShareState, leader_epoch: int) -> None:
    if leader_epoch != ANY_EPOCH and leader_epoch < state.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)


def require_known(is_known: bool) -> None:
    """Raise ApiError(UNKNOWN_TOPIC_OR_PARTITION) if the topic partition does not exist."""
    if not is_known:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _changed(
    state: ShareState, start_offset: int, count: int, leader_epoch: int, batches: tuple[StateBatch, ...], times: Times
) -> ShareSnapshotValue | ShareUpdateValue:
    update = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=count,
        state_batches=wire_batches(combine((), batches, start_offset)),
    )
    if state.updates < times.updates_per_snapshot:
        return update
    after = replayed(state, update)
    assert after is not None
    return _snapshot(after, times.now_ms, times.now_ms)


def _snapshot(state: ShareState, create_ms: int, now_ms: int) -> ShareSnapshotValue:
    return ShareSnapshotValue(
        snapshot_epoch=_next(state.snapshot_epoch),
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=create_ms,
        write_timestamp=now_ms,
        state_batches=wire_batches(state.batches),
    )
