"""Values that travel between the controller, a partition and its callers: what was decided, proposed, answered.

All immutable. Offsets named `end` are exclusive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.broker.storage.log_types import NO_EPOCH
from barnabas.protocol.errors import ErrorCode


class LeadershipChange(NamedTuple):
    """What the controller says of a partition, taken from a LeaderAndIsr request."""

    leader_id: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Role:
    """The partition's place in the cluster as this broker knows it."""

    is_leader: bool = False
    leader_id: int = -1
    leader_epoch: int = NO_EPOCH
    partition_epoch: int = -1
    isr: frozenset[int] = frozenset()  # committed by the controller; empty on a follower
    maximal_isr: frozenset[int] = frozenset()  # isr plus an expansion in flight
    replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    leader_epoch_start_offset: int | None = None  # leader only: the LEO when its epoch began
    is_isr_change_in_flight: bool = False


class IsrProposal(NamedTuple):
    """A change of the ISR on its way to the controller."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]  # (broker id, broker epoch or -1)
    leader_recovery_state: int
    is_expansion: bool


class IsrOutcome(NamedTuple):
    """The controller's answer to a proposal; the rest is meaningful only with error NONE."""

    error: ErrorCode
    leader_id: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1
    leader_recovery_state: int = 0


class EpochEnd(NamedTuple):
    """The last offset (exclusive) of a leader epoch; both -1 when unknown."""

    leader_epoch: int
    end_offset: int


class DeletedRecords(NamedTuple):
    """What a DeleteRecords asked for (exclusive) and how far all live replicas have deleted."""

    requested_offset: int
    low_watermark: int
