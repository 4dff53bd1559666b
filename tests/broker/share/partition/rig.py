"""A share partition with little to write: short calls, and its state as text."""

from __future__ import annotations

from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateBatch
from barnabas.broker.share.partition import phases
from barnabas.broker.share.partition.share_partition import SharePartition
from barnabas.broker.share.partition.values import (
    Acknowledgement,
    AcquireMode,
    Fetcher,
    Limits,
    Refusal,
    Span,
    Update,
)

LIMITS = Limits()
LOCK_MS = LIMITS.lock_duration_ms


class PartitionRig:
    """A loaded share partition."""

    def __init__(self, start: int = 0, kept: tuple[StateBatch, ...] = (), limits: Limits = LIMITS) -> None:
        self.partition = SharePartition(SharePartitionKey("g", bytes(16), 0), 5)
        self.limits = limits
        self.now_ms = 0
        self.partition.begin()
        assert self.partition.loaded(3, start, kept)

    def acquire(
        self,
        *fetched: tuple[int, int],
        member: str = "m",
        most: int = 500,
        size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        at: int | None = None,
        aborted: tuple[tuple[int, int], ...] = (),
    ) -> list[tuple[int, int, int]]:
        """Acquire from these record batches, which were fetched at the next fetch offset."""
        offset = self.partition.next_fetch_offset() if at is None else at
        acquired = self.partition.acquire(
            Fetcher(member, most, size, mode),
            offset,
            [Span(*span) for span in fetched],
            [Span(*span) for span in aborted],
            self.limits,
            self.now_ms,
        )
        return [tuple(records) for records in acquired]

    def answer(self, first: int, last: int, *types: int, member: str = "m") -> Refusal | Update | None:
        """Acknowledge offsets."""
        wanted = [Acknowledgement(first, last, list(types))]
        return self.partition.acknowledge(member, wanted, self.limits, self.now_ms)

    def acknowledge(self, first: int, last: int, *types: int, member: str = "m") -> Update:
        """Acknowledge offsets, which has to be written."""
        update = self.answer(first, last, *types, member=member)
        assert isinstance(update, Update), update
        return update

    def done(self, first: int, last: int, *types: int, member: str = "m") -> None:
        """Acknowledge offsets, and let the write succeed."""
        self.end(self.acknowledge(first, last, *types, member=member))

    def end(self, update: Update | None, *, is_written: bool = True) -> bool:
        """End a write."""
        assert update is not None
        return self.partition.written(update, self.limits, self.now_ms, is_written=is_written)

    def expire(self) -> Update | None:
        """Release what has run out."""
        return self.partition.expire(self.limits, self.now_ms)

    def release(self, member: str = "m") -> Update | None:
        """Release what a member holds."""
        return self.partition.release(member, self.limits)

    @property
    def span(self) -> tuple[int, int]:
        """Start and end offset."""
        return self.partition.state.start_offset, self.partition.state.end_offset

    @property
    def text(self) -> str:
        """Each batch with its runs: `0-9: 0-4 acquired 1 m, 5-9 available 1`."""
        return " | ".join(
            f"{batch.first}-{batch.last}: "
            + ", ".join(
                f"{run.first}-{run.last} {phases.NAMES[run.phase]} {run.delivery_count} {run.member_id}".strip()
                for run in batch.runs
            )
            for batch in self.partition.state.cache.batches
        )


def count_complete(partition: SharePartition) -> int:
    """Count the complete offsets from the start on, one by one."""
    state = partition.state
    return sum(
        1
        for batch in state.cache.batches
        for run in batch.runs
        if run.phase in phases.COMPLETE
        for offset in range(run.first, run.last + 1)
        if offset >= state.start_offset
    )
