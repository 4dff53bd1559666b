"""Acknowledging: how members, their departure and the clock change acquired records.

Rules
1. A member acknowledges only records that it holds, and only the records in one request together: if it does not hold
   one of them, none changes.
2. Accepted, released and rejected records stay in transition until their write has ended. A renewed one gets a new
   deadline at once; nothing is written.
3. Records before the start offset are done: their acknowledgement has no effect, and is no error.
4. When a lock runs out, the record becomes available at once (or is archived). The change is written too, but a failed
   write has no effect.

5. A request that would leave more than RUNS_MAX runs in flight is refused (`InFlight.is_full`). Acknowledgements that
   split no run always pass.

Each function takes time in proportion to the acknowledgements plus the runs in flight, not to their product.

Pure.
Source: Kafka's SharePartition.acknowledge, releaseAcquiredRecords, releaseAcquisitionLockOnTimeout,
rollbackOrProcessStateUpdates (4.3).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from barnabas.broker.share.partition import phases
from barnabas.broker.share.partition.in_flight import Batch, Run
from barnabas.broker.share.partition.state import PartitionState
from barnabas.broker.share.partition.values import Acknowledgement, Limits, Refusal, Update
from barnabas.protocol.errors import ErrorCode

NOT_FOUND = Refusal(
    ErrorCode.INVALID_RECORD_STATE,
    "Batch record not found. The request batch offsets are not found in the cache.",
)
FIRST_PAST = Refusal(
    ErrorCode.INVALID_REQUEST, "Batch record not found. The first offset in request is past acquired records."
)
LAST_PAST = Refusal(
    ErrorCode.INVALID_REQUEST, "Batch record not found. The last offset in request is past acquired records."
)
NOT_ACQUIRED = Refusal(
    ErrorCode.INVALID_RECORD_STATE, "The batch cannot be acknowledged. The batch is not in the acquired state."
)
IN_TRANSITION = Refusal(
    ErrorCode.INVALID_RECORD_STATE,
    "The record state is invalid. The acknowledgement of delivery could not be completed.",
)
NOT_OWNER = Refusal(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")
NO_RENEWAL = Refusal(ErrorCode.INVALID_RECORD_STATE, "Renewing acquisition locks is not enabled for the group.")
TOO_MANY = Refusal(
    ErrorCode.INVALID_REQUEST, "Too many states in flight: acknowledge neighbouring offsets with the same type."
)
TWICE = Refusal(ErrorCode.INVALID_RECORD_STATE, "An offset is acknowledged twice.")

_Part = tuple[int, int, int]  # first and last offset, event


def acknowledge(
    state: PartitionState, member_id: str, acknowledgements: Sequence[Acknowledgement], limits: Limits, now_ms: int
) -> Refusal | Update | None:
    """Apply a member's acknowledgements, which are in order; None: nothing has to be written."""
    parts: list[_Part] = []
    for acknowledgement in acknowledgements:
        if acknowledgement.last < state.start_offset:
            continue
        refusal = _missing(state, acknowledgement)
        if refusal is not None:
            return refusal
        if parts and acknowledgement.first <= parts[-1][1]:
            return TWICE
        parts += _parts_of(acknowledgement)
    pairs: list[tuple[Batch, list[_Part]]] = list(_by_batch(state, parts))
    splits = 0
    for batch, of_batch in pairs:
        for run, (first, last, event) in _touched(batch.runs, of_batch):
            refusal = _refusal(run, event, member_id, limits)
            if refusal is not None:
                return refusal
            splits += (first > run.first) + (last < run.last)
    if splits and state.cache.is_full(splits):
        return TOO_MANY
    moved: list[Run] = []
    for batch, of_batch in pairs:
        moved += _apply(state, batch, of_batch, limits, now_ms)
    return _pending(state, moved)


def release(state: PartitionState, member_id: str, limits: Limits) -> Update | None:
    """Release what a member holds; None if it holds nothing."""
    moved: list[Run] = []
    for batch in state.cache.batches:
        if any(run.phase == phases.ACQUIRED and run.member_id == member_id for run in batch.runs):
            batch.cut((state.start_offset,))
            for run in batch.runs:
                if run.phase == phases.ACQUIRED and run.member_id == member_id:
                    state.move(run, phases.RELEASE, limits.delivery_count)
                    moved.append(run)
    return _pending(state, moved)


def expire(state: PartitionState, limits: Limits, now_ms: int) -> Update | None:
    """Release the records whose locks have run out (rule 4); None if there are none."""
    moved: list[Run] = []
    for batch in state.cache.batches:
        if any(run.phase == phases.ACQUIRED and run.deadline_ms <= now_ms for run in batch.runs):
            batch.cut((state.start_offset,))
            for run in batch.runs:
                if run.phase == phases.ACQUIRED and run.deadline_ms <= now_ms:
                    state.move(run, phases.EXPIRE, limits.delivery_count)
                    moved.append(run)
    if not moved:
        return None
    update = state.make_update(moved, pends=False)
    for batch in state.cache.overlapping(moved[0].first, moved[-1].last):
        batch.join()
    return update


def next_deadline_ms(state: PartitionState) -> int | None:
    """Return when the first lock runs out."""
    deadlines = [run.deadline_ms for batch in state.cache.batches for run in batch.runs if run.phase == phases.ACQUIRED]
    return min(deadlines, default=None)


def written(state: PartitionState, update: Update, limits: Limits, now_ms: int, *, is_written: bool) -> bool:
    """End the transitions of an update; whether a fetch that waits could acquire records now."""
    is_freed = False
    if update.pends:
        event = phases.COMMIT if is_written else phases.ROLLBACK
        for batch in state.cache.overlapping(update.batches[0].first_offset, update.batches[-1].last_offset):
            if any(run.update is update for run in batch.runs):
                is_freed = _end(state, batch, update, event, limits, now_ms) or is_freed
    return state.advance() or is_freed


def _end(state: PartitionState, batch: Batch, update: Update, event: int, limits: Limits, now_ms: int) -> bool:
    is_freed = False
    batch.cut((state.start_offset,))
    for run in batch.runs:
        if run.update is update:
            state.move(run, event, limits.delivery_count)
            if run.phase == phases.ACQUIRED and run.deadline_ms <= now_ms:
                state.move(run, phases.EXPIRE, limits.delivery_count)
            is_freed = is_freed or run.phase == phases.AVAILABLE
    batch.join()
    return is_freed


def _missing(state: PartitionState, wanted: Acknowledgement) -> Refusal | None:
    """Why the offsets cannot be in flight."""
    floor = state.cache.floor(wanted.first)
    if floor is None:
        if not wanted.first < state.start_offset <= wanted.last:
            return NOT_FOUND
        floor = state.cache.floor(state.start_offset)
        if floor is None:
            return NOT_FOUND
    last = state.cache.floor(wanted.last)
    assert last is not None, "there is one before it"
    if last.last < wanted.first:
        return FIRST_PAST
    return LAST_PAST if wanted.last > last.last else None


def _parts_of(wanted: Acknowledgement) -> Iterator[_Part]:
    """Return an acknowledgement as neighbouring offsets with the same event."""
    if len(wanted.types) == 1:
        yield wanted.first, wanted.last, phases.EVENT_OF_TYPE[wanted.types[0]]
        return
    first = wanted.first
    for event, group in groupby(wanted.types, key=phases.EVENT_OF_TYPE.__getitem__):
        next_first = first + sum(1 for _ in group)  # Why no list: there may be millions of offsets
        yield first, next_first - 1, event
        first = next_first


def _by_batch(state: PartitionState, parts: list[_Part]) -> Iterator[tuple[Batch, list[_Part]]]:
    """Return each batch that the parts touch from the start offset on, with what touches it."""
    if not parts:
        return
    at = 0
    for batch in state.cache.overlapping(max(parts[0][0], state.start_offset), parts[-1][1]):
        while at < len(parts) and parts[at][1] < batch.first:
            at += 1
        look = at
        of_batch = []
        while look < len(parts) and parts[look][0] <= batch.last:
            first, last, event = parts[look]
            of_batch.append((max(first, batch.first, state.start_offset), min(last, batch.last), event))
            look += 1
        of_batch = [part for part in of_batch if part[0] <= part[1]]
        if of_batch:
            yield batch, of_batch
        at = max(at, look - 1)


def _touched(runs: Sequence[Run], parts: Sequence[_Part]) -> Iterator[tuple[Run, _Part]]:
    """Return each run with each part that overlaps it; both are in order."""
    at = 0
    for run in runs:
        while at < len(parts) and parts[at][1] < run.first:
            at += 1
        look = at
        while look < len(parts) and parts[look][0] <= run.last:
            yield run, parts[look]
            look += 1
        at = max(at, look - 1)


def _refusal(run: Run, event: int, member_id: str, limits: Limits) -> Refusal | None:
    """Why the member may not acknowledge these records (rule 1)."""
    if run.phase in phases.PENDING:
        return IN_TRANSITION
    if (run.phase, event) not in phases.CELLS:
        return NOT_ACQUIRED
    if run.member_id != member_id:
        return NOT_OWNER
    if event == phases.RENEW and not limits.can_renew:
        return NO_RENEWAL
    return None


def _apply(state: PartitionState, batch: Batch, parts: Sequence[_Part], limits: Limits, now_ms: int) -> list[Run]:
    """Let the events happen; return the runs that have to be written."""
    bounds: list[int] = []
    for first, last, _ in parts:
        if not bounds or bounds[-1] != first:
            bounds.append(first)
        bounds.append(last + 1)
    batch.cut(bounds)
    moved = []
    for run, (_, _, event) in list(_touched(batch.runs, parts)):
        state.move(run, event, limits.delivery_count)
        if event == phases.RENEW:
            run.deadline_ms = now_ms + limits.lock_duration_ms
        else:
            moved.append(run)
    return moved


def _pending(state: PartitionState, moved: list[Run]) -> Update | None:
    """Return the update for which these runs wait."""
    if not moved:
        return None
    update = state.make_update(moved, pends=True)
    for run in moved:
        run.update = update
    return update
