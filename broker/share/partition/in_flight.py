"""The records in flight of a share partition: batches in order of offsets, each made of runs.

A *batch* covers the offsets that were delivered together at first. It leaves the cache as a whole. A *run* covers
neighbouring offsets of one batch that are in the same phase, so a batch that is acknowledged as a whole stays one run.
Batches do not overlap, but offsets between them may be missing (compaction). The runs of a batch cover all its offsets.

All offsets are inclusive. Pure.
Source: Kafka's InFlightBatch, InFlightState (4.3). Different: Kafka keeps a state for each offset as soon as the
offsets of a batch differ; runs cost memory and time only where neighbours differ.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from barnabas.broker.share.partition.phases import PENDING

NO_MEMBER: Final = ""
NO_DEADLINE: Final = -1

#: Why so many: share.partition.max.record.locks is at most 10,000. As a record these take some 800 kB.
RUNS_MAX: Final = 40_000


class Run:
    """Neighbouring offsets in one phase.

    `member_id` and `deadline_ms` belong to the acquisition lock; they are kept during a transition, since it may be
    rolled back. `update` is the write that a transition waits for.
    """

    __slots__ = ("deadline_ms", "delivery_count", "first", "last", "member_id", "phase", "update")

    def __init__(
        self,
        first: int,
        last: int,
        phase: int,
        delivery_count: int,
        member_id: str = NO_MEMBER,
        deadline_ms: int = NO_DEADLINE,
        update: object = None,
    ) -> None:
        self.first = first
        self.last = last
        self.phase = phase
        self.delivery_count = delivery_count
        self.member_id = member_id
        self.deadline_ms = deadline_ms
        self.update = update

    def part(self, first: int, last: int) -> Run:
        """Return a run that is like this one for some of its offsets."""
        return Run(first, last, self.phase, self.delivery_count, self.member_id, self.deadline_ms, self.update)

    def is_like(self, other: Run) -> bool:
        """Whether both may become one run."""
        return (
            self.phase == other.phase
            and self.delivery_count == other.delivery_count
            and self.deadline_ms == other.deadline_ms
            and self.member_id == other.member_id
            and self.phase not in PENDING
        )


class Batch:
    """Offsets that were first delivered together."""

    __slots__ = ("first", "last", "runs")

    def __init__(self, first: int, last: int, runs: list[Run]) -> None:
        self.first = first
        self.last = last
        self.runs = runs

    @property
    def count(self) -> int:
        """How many offsets it covers."""
        return self.last - self.first + 1

    def cut(self, bounds: Sequence[int]) -> None:
        """Let runs begin at each of these offsets, which are in order; those outside the batch do not matter.

        Takes one pass, however many bounds there are.
        """
        at = bisect_right(bounds, self.first)
        if at == len(bounds) or bounds[at] > self.last:
            return
        runs: list[Run] = []
        for run in self.runs:
            while at < len(bounds) and bounds[at] <= run.last:
                if bounds[at] > run.first:
                    runs.append(run.part(run.first, bounds[at] - 1))
                    run.first = bounds[at]
                at += 1
            runs.append(run)
        self.runs = runs

    def within(self, first: int, last: int) -> list[Run]:
        """Return the runs of these offsets; the batch is cut there."""
        self.cut((first, last + 1))
        return [run for run in self.runs if run.first >= first and run.last <= last]

    def join(self) -> None:
        """Let neighbours that are alike become one run."""
        runs = self.runs
        if len(runs) == 1:
            return
        joined = [runs[0]]
        for run in runs[1:]:
            before = joined[-1]
            if before.is_like(run):
                before.last = run.last
            else:
                joined.append(run)
        self.runs = joined


class InFlight:
    """The batches, in order."""

    __slots__ = ("_firsts", "batches")

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self._firsts: list[int] = []  # of each batch

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.batches)

    @property
    def first(self) -> int:
        """The first offset of the first batch."""
        return self._firsts[0]

    @property
    def last(self) -> int:
        """The last offset of the last batch."""
        return self.batches[-1].last

    def add(self, batch: Batch) -> None:
        """Add a batch that overlaps no other."""
        at = bisect_left(self._firsts, batch.first)
        assert at == 0 or self.batches[at - 1].last < batch.first, "it overlaps the batch before"
        assert at == len(self.batches) or batch.last < self._firsts[at], "it overlaps the batch after"
        self.batches.insert(at, batch)
        self._firsts.insert(at, batch.first)

    def is_full(self, more: int) -> bool:
        """Whether there would be too many runs with so many more.

        They are kept in memory, and one record of __share_group_state must have room for the state of all of them.
        """
        return sum(len(batch.runs) for batch in self.batches) + more > RUNS_MAX

    def floor(self, offset: int) -> Batch | None:
        """Return the last batch that begins at the offset or before."""
        at = bisect_right(self._firsts, offset) - 1
        return None if at < 0 else self.batches[at]

    def after(self, offset: int) -> Batch | None:
        """Return the first batch that begins after the offset."""
        at = bisect_right(self._firsts, offset)
        return None if at == len(self.batches) else self.batches[at]

    def starting_in(self, first: int, last: int) -> list[Batch]:
        """Return the batches that begin at these offsets."""
        return self.batches[bisect_left(self._firsts, first) : bisect_right(self._firsts, last)]

    def overlapping(self, first: int, last: int) -> list[Batch]:
        """Return the batches that have any of these offsets."""
        at = bisect_right(self._firsts, first) - 1
        if at < 0 or self.batches[at].last < first:
            at += 1
        return self.batches[at : bisect_right(self._firsts, last)]

    def drop_through(self, offset: int) -> None:
        """Remove the batches that end at the offset or before."""
        count = bisect_right(self._firsts, offset)
        if count and self.batches[count - 1].last > offset:
            count -= 1
        del self.batches[:count]
        del self._firsts[:count]

    def clear(self) -> None:
        """Remove all batches."""
        self.batches.clear()
        self._firsts.clear()
