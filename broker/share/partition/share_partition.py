"""SharePartition: a topic partition as one share group consumes it, as a state machine.

Every method is given the group's limits and, where it matters, the time. What changes the kept state returns an
`Update`. Its owner writes it, in the order in which the partition made updates, and then calls `written`.

Stages: EMPTY → LOADING → ACTIVE or FAILED; FENCED from each of them, and never left. STAGES is the table. Only an
active partition does anything.

Pure: no clock, lock, file or socket. The owner serialises the calls.
Source: Kafka's SharePartition (4.3), KIP-932.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from barnabas.broker.coordinators.share_state.values import NO_STATE_EPOCH, SharePartitionKey, StateBatch
from barnabas.broker.share.partition import acknowledging, acquiring, phases
from barnabas.broker.share.partition.state import PartitionState
from barnabas.broker.share.partition.values import (
    Acknowledgement,
    Acquired,
    Fetcher,
    Holding,
    Limits,
    Refusal,
    Span,
    Update,
)
from barnabas.protocol.errors import ErrorCode


class Stage(Enum):
    """How far a share partition is."""

    EMPTY = auto()
    LOADING = auto()
    ACTIVE = auto()
    FAILED = auto()
    FENCED = auto()


class StageEvent(Enum):
    """The events that change the stage."""

    BEGIN = auto()
    LOADED = auto()
    FAIL = auto()
    FENCE = auto()


#: The stage after an event; an event without an entry has no effect.
STAGES: Final[dict[tuple[Stage, StageEvent], Stage]] = {
    (Stage.EMPTY, StageEvent.BEGIN): Stage.LOADING,
    (Stage.LOADING, StageEvent.LOADED): Stage.ACTIVE,
    (Stage.LOADING, StageEvent.FAIL): Stage.FAILED,
    **{(stage, StageEvent.FENCE): Stage.FENCED for stage in Stage},
}

NOT_ACTIVE: Final = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The share partition is not active.")


class SharePartition:
    """See the module."""

    def __init__(self, key: SharePartitionKey, leader_epoch: int) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.state_epoch = NO_STATE_EPOCH  # set when it is loaded
        self.stage = Stage.EMPTY
        self.state = PartitionState(0)  # replaced when it is loaded

    def _change(self, event: StageEvent) -> bool:
        stage = STAGES.get((self.stage, event))
        if stage is None:
            return False
        self.stage = stage
        return True

    @property
    def is_active(self) -> bool:
        """Whether it does anything."""
        return self.stage is Stage.ACTIVE

    def begin(self) -> bool:
        """Note that its state is being read; true for the first call."""
        return self._change(StageEvent.BEGIN)

    def loaded(self, state_epoch: int, start_offset: int, batches: Sequence[StateBatch]) -> bool:
        """Take over its state; false if that cannot be, or it is too late. The caller has chosen the start offset."""
        state = PartitionState(start_offset)
        try:
            state.load(batches)
        except ValueError:
            self._change(StageEvent.FAIL)
            raise
        if not self._change(StageEvent.LOADED):
            return False
        self.state = state
        self.state_epoch = state_epoch
        return True

    def start_update(self) -> Update | None:
        """Return the write of a start offset that was not kept, but chosen."""
        return Update((), self.state.start_offset, 0, pends=False) if self.is_active else None

    def failed(self) -> None:
        """Note that its state could not be read."""
        self._change(StageEvent.FAIL)

    def fence(self) -> None:
        """End it: another broker leads, the group or topic is gone, or its state was replaced."""
        self._change(StageEvent.FENCE)

    def can_acquire(self, limits: Limits) -> bool:
        """Whether a fetch could acquire records."""
        return self.is_active and acquiring.can_acquire(self.state, limits)

    def next_fetch_offset(self) -> int:
        """Return where the next fetch reads."""
        return self.state.next_fetch_offset()

    def wanted_end(self, fetch_offset: int, max_records: int, limits: Limits) -> int:
        """Return an offset up to which record batches have to be known to acquire so many records."""
        return acquiring.wanted_end(self.state, fetch_offset, min(max_records, limits.in_flight))

    def acquire(
        self,
        fetcher: Fetcher,
        fetch_offset: int,
        fetched: Sequence[Span],
        aborted: Sequence[Span],
        limits: Limits,
        now_ms: int,
    ) -> list[Acquired]:
        """Give fetched records to a member and lock them; `acquiring.acquire` has the rules."""
        if not self.is_active:
            return []
        return acquiring.acquire(self.state, fetcher, fetch_offset, fetched, aborted, limits, now_ms)

    def acknowledge(
        self, member_id: str, acknowledgements: Sequence[Acknowledgement], limits: Limits, now_ms: int
    ) -> Refusal | Update | None:
        """Apply a member's acknowledgements; `acknowledging` has the rules."""
        if not self.is_active:
            return NOT_ACTIVE
        return acknowledging.acknowledge(self.state, member_id, acknowledgements, limits, now_ms)

    def release(self, member_id: str, limits: Limits) -> Update | None:
        """Release what a member holds: it leaves."""
        return acknowledging.release(self.state, member_id, limits) if self.is_active else None

    def expire(self, limits: Limits, now_ms: int) -> Update | None:
        """Release the records whose locks have run out."""
        return acknowledging.expire(self.state, limits, now_ms) if self.is_active else None

    def next_deadline_ms(self) -> int | None:
        """Return when the next lock runs out."""
        return acknowledging.next_deadline_ms(self.state) if self.is_active else None

    def written(self, update: Update, limits: Limits, now_ms: int, *, is_written: bool) -> bool:
        """Note the end of a write; whether a fetch that waits could acquire records now."""
        if not self.is_active:
            return False
        return acknowledging.written(self.state, update, limits, now_ms, is_written=is_written)

    def move_log_start(self, offset: int) -> None:
        """Note that the log begins later now."""
        if self.is_active:
            self.state.move_log_start(offset)

    def holdings(self) -> list[Holding]:
        """Return who holds which records."""
        return [
            Holding(run.member_id, run.first, run.last, run.delivery_count, run.deadline_ms)
            for batch in self.state.cache.batches
            for run in batch.runs
            if run.phase == phases.ACQUIRED
        ]
