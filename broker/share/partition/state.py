"""The state of a share partition: offsets, records in flight, and how both move.

Offsets
- `start_offset` (SPSO): everything before it is done. It moves when the first records in flight are finished, and when
  the log's start moves.
- `end_offset` (SPEO): the last offset that was delivered; the next offset to fetch if nothing is in flight.
- `complete_count`: offsets in flight from the start offset on that are complete (phases.COMPLETE), for the lag.
- `gap`: the first offset that may not have been delivered, although later ones were. There are such gaps after the
  state was loaded: records that were in flight and never acknowledged are not kept. None: no gap.

Pure.
Source: Kafka's SharePartition (4.3). Different: finished records at the start are passed at once also after records
were archived because of compaction or an aborted transaction. In Kafka they count as in flight until the next
acknowledgement, and the partition stops if there are too many. A gap that the log does not fill is passed, too, and
records before the start offset hold up nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from barnabas.broker.coordinators.share_state.values import StateBatch
from barnabas.broker.share.partition import phases
from barnabas.broker.share.partition.in_flight import NO_DEADLINE, NO_MEMBER, Batch, InFlight, Run
from barnabas.broker.share.partition.values import Update

#: A delivery count that was kept may be any 16-bit number, and another delivery must fit into one, too.
COUNT_MAX: Final = (1 << 15) - 2

_KEEPS_LOCK: Final = phases.PENDING | {phases.ACQUIRED}


class PartitionState:
    """The records of a share partition. See the module."""

    __slots__ = ("cache", "complete_count", "end_offset", "gap", "may_have_available", "start_offset")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.cache = InFlight()
        self.complete_count = 0
        self.gap: int | None = None
        self.may_have_available = False  # a record before the end may be available: look for it

    # Loading

    def load(self, batches: Sequence[StateBatch]) -> None:
        """Take over batches that were kept. Raises ValueError if they cannot be."""
        expected = self.start_offset
        gap: int | None = None
        for kept in batches:
            if kept.first_offset < expected:
                raise ValueError(f"{kept} begins before {expected}")
            if kept.last_offset < kept.first_offset:
                raise ValueError(f"{kept} ends before it begins")
            if kept.delivery_state not in phases.LOADED:
                raise ValueError(f"{kept} has an unknown state")
            if gap is None and kept.first_offset > expected:
                gap = expected
            phase = phases.LOADED[kept.delivery_state]
            run = Run(kept.first_offset, kept.last_offset, phase, min(max(kept.delivery_count, 0), COUNT_MAX))
            self.cache.add(Batch(kept.first_offset, kept.last_offset, [run]))
            if phase in phases.COMPLETE:
                self.complete_count += kept.last_offset - kept.first_offset + 1
            expected = kept.last_offset + 1
        if self.cache:
            self.end_offset = self.cache.last
            self.gap = gap
            self.may_have_available = True
            self.advance()

    # Looking

    @property
    def in_flight_count(self) -> int:
        """How many offsets are in flight, with those missing between them."""
        return self.end_offset - self.start_offset + 1 if self.cache else 0

    def next_fetch_offset(self) -> int:
        """Return where the next fetch begins: at the first available record, or after the end."""
        cache = self.cache
        if not cache or self.start_offset > cache.last:
            self.may_have_available = False
            return self.end_offset
        if self.may_have_available:
            for batch in cache.batches:
                if self.gap is not None and self.gap < batch.first:
                    return self.gap
                for run in batch.runs:
                    if run.phase == phases.AVAILABLE:
                        return run.first
            self.may_have_available = False
        return self.end_offset + 1

    def count_from(self, first: int, last: int) -> int:
        """How many of these offsets are not before the start offset."""
        return max(0, last - max(first, self.start_offset) + 1)

    # Moving records

    def move(self, run: Run, event: int, delivery_limit: int) -> bool:
        """Let an event happen to a run; false if it has no effect.

        With RELEASE and EXPIRE the start offset does not lie within the run.
        """
        phase = phases.CELLS.get((run.phase, event))
        if phase is None:
            return False
        if event in phases.SPENT and (run.delivery_count >= delivery_limit or run.last < self.start_offset):
            phase = phases.SPENT[event]
        self._set(run, phase)
        return True

    def _set(self, run: Run, phase: int) -> None:
        was_complete = run.phase in phases.COMPLETE
        is_complete = phase in phases.COMPLETE
        if was_complete != is_complete:
            count = self.count_from(run.first, run.last)
            self.complete_count += count if is_complete else -count
        run.phase = phase
        if phase == phases.AVAILABLE:
            self.may_have_available = True
        if phase not in _KEEPS_LOCK:
            run.member_id = NO_MEMBER
            run.deadline_ms = NO_DEADLINE
        if phase not in phases.PENDING:
            run.update = None

    def archive(self, event: int, first: int, last: int) -> bool:
        """Archive the records of these offsets to which the event applies (REMOVE, ABORT); whether there were any."""
        is_any = False
        for batch in self.cache.overlapping(first, last):
            for run in batch.within(first, last):
                is_any = self.move(run, event, 0) or is_any
            batch.join()
        if is_any and event == phases.REMOVE:
            self.may_have_available = True
        return is_any

    def make_update(self, runs: Iterable[Run], *, pends: bool) -> Update:
        """Return the write of what became of these runs, which are in order."""
        batches: list[StateBatch] = []
        for run in runs:
            state = phases.DELIVERY_STATES[run.phase]
            if batches:
                before = batches[-1]
                if before == (before.first_offset, run.first - 1, state, run.delivery_count):
                    batches[-1] = before._replace(last_offset=run.last)
                    continue
            batches.append(StateBatch(run.first, run.last, state, run.delivery_count))
        return Update(tuple(batches), self.start_offset, self.complete_count, pends=pends)

    # Moving offsets

    def advance(self) -> bool:
        """Move the start offset past the finished records at the beginning; whether it could."""
        done = self._finished_through()
        if done is None:
            return False
        if done == self.cache.last:
            self.start_offset = self.end_offset = max(done + 1, self.start_offset)  # the log's start may be later
            self.cache.clear()
            self.complete_count = 0
            self.gap = None
            return True
        floor = self.cache.floor(done)
        assert floor is not None, "it is in a batch"
        start = done + 1
        if floor.last == done:
            after = self.cache.after(done)
            assert after is not None, "it is not the last batch"
            start = after.first if self.gap is None else min(after.first, self.gap)
        self._move_start(start)
        self.cache.drop_through(done)
        return True

    def _finished_through(self) -> int | None:
        """Return the last offset up to which all records in flight are finished; None if the first one is not."""
        done = None
        for batch in self.cache.batches:
            if self.gap is not None and batch.last >= self.gap:
                return done
            for run in batch.runs:
                if run.phase not in phases.FINISHED and run.last >= self.start_offset:
                    return done
                done = run.last
        return done

    def _move_start(self, start: int) -> None:
        """Move the start offset forward; complete records before it count no more."""
        if start <= self.start_offset:
            return
        for batch in self.cache.overlapping(self.start_offset, start - 1):
            for run in batch.runs:
                if run.phase in phases.COMPLETE and run.first < start:
                    self.complete_count -= self.count_from(run.first, min(run.last, start - 1))
        self.start_offset = start

    def move_log_start(self, offset: int) -> None:
        """Note that the log begins at a later offset: available records before it are archived.

        Acquired ones are left to their members until the start offset moves on, but nobody gets them again.
        """
        if offset <= self.start_offset:
            return
        if not self.cache:
            self.start_offset = self.end_offset = offset
            return
        self.archive(phases.REMOVE, self.cache.first, offset - 1)
        self._move_start(offset)
        self.end_offset = max(self.end_offset, offset)
        if self.gap is not None and self.gap < offset:
            self.move_gap(offset)
        self.advance()

    def move_gap(self, offset: int) -> None:
        """Note that everything before the offset was delivered or does not exist, if there is a gap."""
        if self.gap is None:
            return
        gap = max(self.gap, offset)
        for batch in self.cache.overlapping(gap, self.end_offset):
            if batch.first > gap:
                break
            gap = batch.last + 1
        self.gap = gap if gap < self.end_offset else None
