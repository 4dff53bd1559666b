"""A replica's place in the cluster, as values: `Role`, the pushes that change it, and changes of its ISR.

Everything here is immutable and pure. Offsets named `end` are exclusive.

States of an ISR change (KIP-497)
    none --propose--> in flight --accepted, no member left--> none, with the controller's ISR
                      in flight --accepted, a member left--> in flight until the next push
                      in flight --ROLLED_BACK error--> none, with the old ISR
                      in flight --GIVEN_UP error--> in flight until the next push
                      in flight --any other error--> in flight, the same proposal is sent again

Why a smaller ISR waits for the push: the push also brings the `min.insync.replicas` that the controller decided with.
With a former, lower value the high watermark would advance although the member that left is an eligible leader replica
now (KIP-966): it could be elected without these records. Apache Kafka takes the smaller ISR from the answer.

Source: Kafka's PartitionState, Partition.handleAlterPartitionError and handleAlterPartitionUpdate (4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from barnabas.broker.storage.log.log_types import NO_EPOCH
from barnabas.protocol.errors import ErrorCode

#: A set of broker ids. Why shared: most partitions have one of few ISRs, and a set takes more than all else of a role.
_set_of: Final[Callable[[tuple[int, ...]], frozenset[int]]] = lru_cache(1024)(frozenset)

RECOVERED: Final = 0  # the leader recovery state of KIP-704

# The controller refused the change; the old ISR holds and another change may be proposed.
ROLLED_BACK: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
# The leader's state is outdated; only the next push can bring the current one.
GIVEN_UP: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class LeadershipChange(NamedTuple):
    """The state of a partition in a LeaderAndIsr request."""

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

    @property
    def is_under_replicated(self) -> bool:
        """Whether this leader lacks an in-sync replica."""
        return self.is_leader and len(self.isr) < len(self.replicas)

    @property
    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        return bool(self.adding_replicas or self.removing_replicas)


class IsrProposal(NamedTuple):
    """A change of the ISR on its way to the controller."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]  # (broker id, broker epoch or -1)
    leader_recovery_state: int
    is_expansion: bool


class IsrOutcome(NamedTuple):
    """The controller's answer to a proposal; all fields but `error` are meaningful only with error NONE."""

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
    """The offset (exclusive) that a DeleteRecords requested, and how far all live replicas have deleted."""

    requested_offset: int
    low_watermark: int


def leader_role(change: LeadershipChange, *, start: int | None) -> Role:
    """The role of this broker when it leads; `start` is the log end offset at which its epoch began."""
    isr = _set_of(change.isr)
    return Role(
        is_leader=True,
        leader_id=change.leader_id,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch,
        isr=isr,
        maximal_isr=isr,
        replicas=change.replicas,
        adding_replicas=change.adding_replicas,
        removing_replicas=change.removing_replicas,
        # Why: a leader that was elected uncleanly has nothing to recover, and reports that with its next proposal.
        leader_recovery_state=RECOVERED,
        leader_epoch_start_offset=start,
    )


def follower_role(change: LeadershipChange) -> Role:
    """The role of this broker when another one leads, or none does."""
    return Role(
        leader_id=change.leader_id,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch,
        replicas=change.replicas,
        adding_replicas=change.adding_replicas,
        removing_replicas=change.removing_replicas,
        leader_recovery_state=change.leader_recovery_state,
    )


def resigned(role: Role) -> Role:
    """The role of a replica that is leaving this broker."""
    return replace(
        role,
        is_leader=False,
        isr=frozenset(),
        maximal_isr=frozenset(),
        leader_epoch_start_offset=None,
        is_isr_change_in_flight=False,
    )


def expanding(role: Role, isr: frozenset[int]) -> Role:
    """The role while a larger ISR is in flight: the high watermark already counts on the new member."""
    return replace(role, maximal_isr=isr, is_isr_change_in_flight=True)


def shrinking(role: Role) -> Role:
    """The role while a smaller ISR is in flight: until the controller accepts it, the old members count."""
    return replace(role, is_isr_change_in_flight=True)


def concluded(role: Role, proposal: IsrProposal, outcome: IsrOutcome) -> tuple[Role, bool]:
    """The role after the controller's answer, and whether the same proposal must be sent again.

    An answer that a newer push has overtaken changes nothing.
    """
    if not role.is_isr_change_in_flight or role.partition_epoch != proposal.partition_epoch:
        return role, False
    if outcome.error in GIVEN_UP:
        return role, False
    if outcome.error in ROLLED_BACK:
        return replace(role, maximal_isr=role.isr, is_isr_change_in_flight=False), False
    if outcome.error != ErrorCode.NONE:
        return role, True
    if outcome.leader_epoch != role.leader_epoch or outcome.partition_epoch < role.partition_epoch:
        return role, False
    isr = frozenset(outcome.isr)
    if not role.isr <= isr:
        return role, False
    accepted = replace(
        role,
        isr=isr,
        maximal_isr=isr,
        partition_epoch=outcome.partition_epoch,
        leader_recovery_state=outcome.leader_recovery_state,
        is_isr_change_in_flight=False,
    )
    return accepted, False
