"""Acquiring: which of the fetched records a member gets.

Rules
1. Records are taken from the first fetched offset on: those in flight that are available, and new ones. A member that
   acquires a batch in flight acquires it as a whole if it can.
2. The member's limit of records is soft for new records (BATCH_OPTIMIZED): the record batch in which the limit lies is
   acquired to its end. RECORD_LIMIT ends at the limit; the rest of the batch becomes available.
3. At the limit of records in flight only those before the end offset are acquired.
4. Suspicious records are delivered in small portions: from half of the delivery limit on, a batch is delivered alone,
   and in parts that get smaller with each delivery. A record before its last delivery is delivered alone. So one record
   that breaks its consumers does not archive the others of its batch.
5. A batch that was available and that the log does not have any more (compaction) is archived.
6. No run is split once RUNS_MAX are in flight (`InFlight.is_full`): it is acquired as a whole, also beyond a limit.
7. The records of aborted transactions are archived and not delivered (read_committed).

`fetched` are the record batches of the log, from the one with the fetch offset on. It may end early, but not before
`wanted_end`: nothing later would be acquired. Offsets that are missing between fetched batches are acquired with them;
the consumer reports them as gaps.

Pure.
Source: Kafka's SharePartition.acquire (4.3), KIP-932, KIP-1206.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.broker.share.partition import phases
from barnabas.broker.share.partition.in_flight import Batch, Run
from barnabas.broker.share.partition.state import PartitionState
from barnabas.broker.share.partition.values import Acquired, AcquireMode, Fetcher, Limits, Span

THROTTLE_FROM_MIN: Final = 2


def throttle_from(delivery_limit: int) -> int:
    """Return the delivery count from which records are delivered in small portions (rule 4)."""
    return max(THROTTLE_FROM_MIN, (delivery_limit + 1) // 2)


def can_acquire(state: PartitionState, limits: Limits) -> bool:
    """Whether a fetch could acquire records (rule 3)."""
    return state.next_fetch_offset() != state.end_offset + 1 or state.in_flight_count < limits.in_flight


def wanted_end(state: PartitionState, fetch_offset: int, max_records: int) -> int:
    """Return an offset that is late enough: a fetch of `max_records` acquires nothing of a later record batch.

    `fetch_offset` is that of the first fetched record batch if it is later, since compaction removed those before it.
    """
    left = max_records
    at = fetch_offset
    for batch in state.cache.overlapping(fetch_offset, state.end_offset):
        if state.gap is not None and batch.first > at:
            if left <= batch.first - at:
                return at + left - 1
            left -= batch.first - at
        for run in batch.runs:
            if run.phase == phases.AVAILABLE and run.last >= fetch_offset:
                left -= run.last - max(run.first, fetch_offset) + 1
        if left <= 0:
            return batch.last
        at = batch.last + 1
    return at + left - 1


def acquire(
    state: PartitionState,
    fetcher: Fetcher,
    fetch_offset: int,
    fetched: Sequence[Span],
    aborted: Sequence[Span],
    limits: Limits,
    now_ms: int,
) -> list[Acquired]:
    """Give records to a member, and lock them; see the module. `aborted` are the record batches of rule 7, in order."""
    if not fetched or fetcher.max_records <= 0 or fetched[-1].last < state.start_offset:
        return []
    acquiring = _Acquiring(state, fetcher, fetched, limits, now_ms)
    if not acquiring.bound(fetch_offset):
        return []
    may_advance = False
    if fetched[0].first > fetch_offset:
        may_advance = state.archive(phases.REMOVE, fetch_offset, fetched[0].first - 1)
        if state.gap is not None and fetch_offset <= state.gap:
            state.move_gap(fetched[0].first)
            may_advance = True
    acquiring.run()
    result = acquiring.result
    if aborted and result:
        for span in aborted:
            may_advance = state.archive(phases.ABORT, span.first, span.last) or may_advance
        result = without(result, aborted)
    if may_advance:
        state.advance()
    return result


class _Acquiring:
    """One run of `acquire`: what is left to acquire, and what was acquired."""

    __slots__ = ("_deadline_ms", "_fetched", "_fetcher", "_last", "_left", "_limits", "_state", "result")

    def __init__(
        self, state: PartitionState, fetcher: Fetcher, fetched: Sequence[Span], limits: Limits, now_ms: int
    ) -> None:
        self._state = state
        self._fetcher = fetcher
        self._fetched = fetched
        self._limits = limits
        self._deadline_ms = now_ms + limits.lock_duration_ms
        self._left = 0  # records that may still be acquired
        self._last = 0  # the last offset that may be acquired
        self.result: list[Acquired] = []

    def bound(self, fetch_offset: int) -> bool:
        """Find out how much may be acquired, and up to where (rule 3); false if nothing."""
        state = self._state
        self._last = self._fetched[-1].last
        self._left = min(self._fetcher.max_records, self._limits.in_flight - state.in_flight_count)
        if self._left <= 0 and fetch_offset <= state.end_offset:
            self._left = min(self._fetcher.max_records, state.end_offset - fetch_offset + 1)
            self._last = min(self._last, state.end_offset)
        return self._left > 0

    def run(self) -> None:
        """Acquire batches in flight, the gaps between them, and new records after them."""
        state = self._state
        first = self._fetched[0].first
        at = self._begin(first)
        cached = state.cache.starting_in(min(first, at), self._last)
        if not cached:
            self._acquire_new(at, self._last)
            return
        for batch in cached:
            if self._left > 0 and state.gap is not None and at < batch.first:
                self._acquire_new(at, batch.first - 1)
            if self._left <= 0:
                break
            at = batch.last + 1
            self._acquire_cached(batch, first)
        if self._left > 0 and cached[-1].last < self._last:
            self._acquire_new(cached[-1].last + 1, self._last)
        if self.result:
            state.move_gap(self.result[-1].last + 1)

    def _begin(self, first: int) -> int:
        """Return where to begin: at the batch in flight that has the first fetched offset, if there is one."""
        floor = self._state.cache.floor(first)
        if floor is None:
            return max(first, self._state.start_offset)
        return floor.first if floor.last >= first else first

    def _acquire_cached(self, batch: Batch, first: int) -> None:
        """Acquire what is available of a batch in flight."""
        if self._is_throttled(batch, first):
            if not self.result:
                self._acquire_part(batch, first, is_throttled=True)
            if self.result:
                self._left = 0
        elif batch.first >= first and batch.last <= self._last and self._is_available(batch):
            self._acquire_batch(batch)
        else:
            self._acquire_part(batch, first, is_throttled=False)

    def _is_throttled(self, batch: Batch, first: int) -> bool:
        """Whether rule 4 applies to the batch."""
        threshold = throttle_from(self._limits.delivery_count)
        return any(
            run.phase == phases.AVAILABLE
            and run.delivery_count >= threshold
            and run.last >= first
            and run.first <= self._last
            for run in batch.runs
        )

    def _is_available(self, batch: Batch) -> bool:
        """Whether the batch is one available run that may be acquired as a whole."""
        if len(batch.runs) != 1 or batch.runs[0].phase != phases.AVAILABLE:
            return False
        return self._fetcher.mode != AcquireMode.RECORD_LIMIT or batch.count <= self._left

    def _acquire_batch(self, batch: Batch) -> None:
        run = batch.runs[0]
        self._lock(run)
        self.result.append(Acquired(run.first, run.last, run.delivery_count))
        self._left -= batch.count

    def _acquire_part(self, batch: Batch, first: int, *, is_throttled: bool) -> None:
        """Acquire what is available of a batch, within the fetched offsets."""
        limit = self._left if self._fetcher.mode == AcquireMode.RECORD_LIMIT else batch.count
        delivery_limit = self._limits.delivery_count
        taken: list[Acquired] = []
        count = 0
        portion: int | None = None  # of a throttled batch; known from its first suspicious record on
        for run in batch.within(max(first, batch.first), min(self._last, batch.last)):
            if run.phase != phases.AVAILABLE:
                continue
            is_last_chance = delivery_limit > THROTTLE_FROM_MIN and run.delivery_count == delivery_limit - 1
            if is_last_chance and count:
                break
            most = limit - count
            if is_throttled and portion is None and run.delivery_count >= throttle_from(delivery_limit):
                shift = run.delivery_count - throttle_from(delivery_limit) + 1
                portion = max(1, batch.count >> shift)
            if portion is not None:
                most = min(most, max(1, portion - count))
            if is_last_chance:
                most = 1
            if run.last - run.first + 1 > most and not self._state.cache.is_full(1):
                batch.cut((run.first + most,))
                # Why looked up: cutting made two runs of it, and `run` is the second.
                run = next(part for part in batch.runs if part.first == run.first - most)
            self._lock(run)
            count += run.last - run.first + 1
            before = taken[-1] if taken else None
            if before is not None and before.last == run.first - 1 and before.delivery_count == run.delivery_count:
                taken[-1] = before._replace(last=run.last)
            else:
                taken.append(Acquired(run.first, run.last, run.delivery_count))
            if is_last_chance or count >= limit or (portion is not None and count >= portion):
                break
        self.result += taken
        self._left -= count
        batch.join()

    def _lock(self, run: Run) -> None:
        """Let the member acquire an available run."""
        self._state.move(run, phases.ACQUIRE, self._limits.delivery_count)
        run.delivery_count += 1
        run.member_id = self._fetcher.member_id
        run.deadline_ms = self._deadline_ms

    def _acquire_new(self, first: int, last: int) -> None:
        """Acquire offsets that are not in flight (rule 2)."""
        state = self._state
        if not state.cache and state.end_offset > first:
            first = state.end_offset
        if self._left < last - first + 1:
            end = self._end_of_batch(first + self._left - 1)
            last = min(end, last) if state.gap is not None else end
            after = state.cache.after(first)
            if after is not None:
                last = min(last, after.first - 1)
        if last < first:
            return
        is_first = not state.cache or first < state.cache.first
        if self._fetcher.mode == AcquireMode.RECORD_LIMIT:
            acquired = self._add(first, last, min(last, first + self._left - 1))
        elif last - first + 1 > self._fetcher.batch_size:
            acquired = self._add_split(first, last)
        else:
            acquired = self._add(first, last, last)
        if is_first:
            state.start_offset = first
        if last > state.end_offset:
            state.end_offset = last
            state.gap = None
        state.move_gap(acquired + 1)
        self._left -= acquired - first + 1

    def _end_of_batch(self, offset: int) -> int:
        """Return the last offset of the fetched batch that has this offset, or the offset if none has it."""
        for span in self._fetched:
            if span.first <= offset <= span.last:
                return span.last
        return offset

    def _add_split(self, first: int, last: int) -> int:
        """Add batches of the member's batch size or more, each of whole record batches."""
        for span in self._fetched:
            if span.first > last:
                break
            if span.first - first >= self._fetcher.batch_size:
                self._add(first, span.first - 1, span.first - 1)
                first = span.first
        return self._add(first, last, last)

    def _add(self, first: int, last: int, acquired: int) -> int:
        """Add a batch, acquired up to an offset and available from there on; return the offset."""
        state = self._state
        runs = [Run(first, acquired, phases.ACQUIRED, 1, self._fetcher.member_id, self._deadline_ms)]
        if acquired < last:
            runs.append(Run(acquired + 1, last, phases.AVAILABLE, 0))
            state.may_have_available = True
        state.cache.add(Batch(first, last, runs))
        self.result.append(Acquired(first, acquired, 1))
        return acquired


def without(acquired: Sequence[Acquired], gone: Sequence[Span]) -> list[Acquired]:
    """Return what is left of acquired records without some offsets; both are in order."""
    left: list[Acquired] = []
    at = 0
    for records in acquired:
        first = records.first
        while at < len(gone) and gone[at].last < first:
            at += 1
        look = at
        while look < len(gone) and gone[look].first <= records.last:
            if gone[look].first > first:
                left.append(records._replace(first=first, last=gone[look].first - 1))
            first = max(first, gone[look].last + 1)
            look += 1
        if first <= records.last:
            left.append(records._replace(first=first))
    return left
