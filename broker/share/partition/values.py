"""The inputs and outputs of a share partition."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from barnabas.broker.coordinators.share_state.values import StateBatch, StateWrite
from barnabas.protocol.errors import ErrorCode


class AcquireMode(IntEnum):
    """How a member's limit of records is meant (`share_acquire_mode` of ShareFetch, KIP-1206)."""

    BATCH_OPTIMIZED = 0  # whole batches of the log, perhaps beyond the limit
    RECORD_LIMIT = 1  # never more records than the limit


class Limits(NamedTuple):
    """The settings of a group that a share partition heeds; they may change with each call."""

    lock_duration_ms: int = 30_000  # share.record.lock.duration.ms
    delivery_count: int = 5  # share.delivery.count.limit
    in_flight: int = 2_000  # share.partition.max.record.locks
    can_renew: bool = True  # share.renew.acknowledge.enable


class Fetcher(NamedTuple):
    """The member that fetches, and how much it wants at most."""

    member_id: str
    max_records: int
    batch_size: int  # acquired batches are split beyond it
    mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED


class Span(NamedTuple):
    """Offsets from first to last, inclusive; of a record batch in the log, say."""

    first: int
    last: int


class Acquired(NamedTuple):
    """Records that a member has acquired; all of them were delivered as often."""

    first: int
    last: int
    delivery_count: int


class Acknowledgement(NamedTuple):
    """A member's acknowledgement of offsets: one type for all of them, or one for each."""

    first: int
    last: int
    types: list[int]


class Refusal(NamedTuple):
    """Why an acknowledgement has no effect."""

    error: ErrorCode
    message: str


class Holding(NamedTuple):
    """Records that a member holds, for the live page."""

    member_id: str
    first: int
    last: int
    delivery_count: int
    deadline_ms: int


class Update:
    """A change of a share partition that has to be written; `written` reports the outcome to the partition.

    With `pends`, records wait for it in transition; otherwise it reports a change that is already in effect.
    """

    __slots__ = ("batches", "complete_count", "pends", "start_offset")

    def __init__(self, batches: tuple[StateBatch, ...], start_offset: int, complete_count: int, *, pends: bool) -> None:
        self.batches = batches  # in order
        self.start_offset = start_offset
        self.complete_count = complete_count
        self.pends = pends

    def as_write(self, state_epoch: int, leader_epoch: int) -> StateWrite:
        """Return the write for the persister."""
        return StateWrite(state_epoch, leader_epoch, self.start_offset, self.batches, self.complete_count)
