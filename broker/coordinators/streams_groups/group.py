"""A streams group (KIP-1071): its members, epochs, topology and assignments. Only records change it. Pure.

Theory
    topology          the application sends it when it joins; the first one stays (Kafka 4.3 has no updates)
    validated epoch   the topology's epoch once it fits the topics that exist, else -1
    group epoch       rises when the members, the topics of the topology, its validity or the configuration change
    assignment epoch  the epoch of the target assignment; it follows the group epoch when the assignor has run
    member epoch      follows the assignment epoch as the member revokes and gets tasks (`reconcile.py`)

States: STATES lists the questions that decide, in order. The first one answered "yes" names the state.

Rules
1. Only `replay` changes the state that the log holds, and it never fails. The log may be half compacted, so a record
   about something that no longer exists does nothing.
2. Decisions read the group and produce records.

Invariants (asserted by `invariants()`)
1. `owners` has exactly the tasks that members have, or have yet to revoke.
2. `readers` has the topics that the topology reads.

Threads: owner is the group's shard, under its lock.
Source: Kafka's StreamsGroup (4.3), KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from barnabas.broker.coordinators.consumer.values import NO_TIMESTAMP
from barnabas.broker.coordinators.streams_groups.owners import TaskOwners
from barnabas.broker.coordinators.streams_groups.topology.configured import ConfiguredTopology
from barnabas.broker.coordinators.streams_groups.values import (
    LEAVE_EPOCH,
    NO_TASKS,
    NO_TOPOLOGY_EPOCH,
    CurrentAssignment,
    GroupEpoch,
    GroupState,
    GroupTopology,
    Member,
    MemberMetadata,
    Record,
    TargetAssignment,
    TargetEpoch,
    TaskId,
    Tasks,
    Topology,
)
from barnabas.protocol.errors import ApiError, ErrorCode

FIRST_EPOCH: Final = 1
EPOCH_MAX: Final = 2**31 - 1
NO_ASSIGNMENT_EPOCH: Final = 1  # as if there were one without tasks: members in it wait for the first real one
MEMBER_EPOCHS_FROM: Final = 9  # the first version of OffsetCommit that has member epochs


class StreamsGroup:
    """One streams group; see the module."""

    TYPE = "streams"  # Kafka's name for groups of this kind

    __slots__ = (
        "assignment_configs", "assignment_epoch", "assignment_refused_ms", "assignment_timestamp_ms",
        "configured", "endpoint_epoch", "epoch", "group_id", "image_compared", "is_gone", "members",
        "metadata_hash", "owners", "readers", "shutdown_member_id", "target", "topology",
        "validated_topology_epoch",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0  # of the required topics when the epoch last rose
        self.validated_topology_epoch = NO_TOPOLOGY_EPOCH
        self.assignment_configs: Mapping[str, str] = {}
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH
        self.assignment_timestamp_ms = NO_TIMESTAMP  # wall
        self.topology: Topology | None = None
        self.readers: Mapping[str, str] = {}  # topic -> the id of the subtopology that reads it
        self.target: dict[str, Tasks] = {}  # by member id
        self.members: dict[str, Member] = {}
        self.owners = TaskOwners()
        self.is_gone = False
        # Not in the log
        self.image_compared = -1  # the number of the metadata image that the metadata hash was last compared with
        self.configured: ConfiguredTopology | None = None  # the topology with the topics of that image
        self.assignment_refused_ms = NO_TIMESTAMP  # wall; when the log refused an assignment
        self.endpoint_epoch = 0  # rises when the tasks of a member with an endpoint change
        self.shutdown_member_id: str | None = None  # the first member that asked to shut down the whole application

    # Queries

    @property
    def protocol_type(self) -> str:
        """The protocol type, as clients see it."""
        return self.TYPE

    @property
    def state(self) -> GroupState:
        """The state; it follows from the members, the topology and the epochs."""
        return next(state for state, applies in STATES if applies(self))

    @property
    def is_validated(self) -> bool:
        """Whether there is a topology that fits the topics that exist."""
        return self.topology is not None and self.topology.epoch == self.validated_topology_epoch

    @property
    def is_reconciled(self) -> bool:
        """Whether every member has its target assignment."""
        members = list(self.members.values())  # a copy in one step: metrics are scraped without the lock
        return all(member.is_reconciled_to(self.assignment_epoch) for member in members)

    def member(self, member_id: str) -> Member:
        """Return the member. Raises ApiError(UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def target_of(self, member_id: str) -> Tasks:
        """Return a member's target assignment; nothing if it has none."""
        return self.target.get(member_id, NO_TASKS)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether the application reads the topic, so that its offsets must be kept."""
        return bool(self.members) and topic in self.readers

    @property
    def is_idle(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    def offset_delete_error(self) -> ErrorCode:
        """Return the error for any deletion of offsets: always NONE, since only subscribed topics are protected."""
        return ErrorCode.NONE

    def delete_error(self) -> ErrorCode:
        """Return the error for a deletion of the group, or NONE."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def tombstones(self) -> list[Record]:
        """Return the records that remove the group from the log."""
        members = list(self.members)
        return [
            *(CurrentAssignment(member_id, None) for member_id in members),
            *(TargetAssignment(member_id, None) for member_id in self.target),
            TargetEpoch(None),
            *(MemberMetadata(member_id, None) for member_id in members),
            GroupTopology(None),
            GroupEpoch(None),
        ]

    # Permission to commit and fetch offsets

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, *, is_transactional: bool,
        partitions: Iterable[tuple[str, int]],
    ) -> None:  # fmt: skip
        """Check that a member in this epoch may commit these (topic, partition)s.

        Raises ApiError with one of these:
        - UNKNOWN_MEMBER_ID;
        - STALE_MEMBER_EPOCH, unless the epoch is the member's, or an older one in which the member already had the
          active task that reads the partition;
        - UNSUPPORTED_VERSION before OffsetCommit v9.
        """
        if epoch < 0 and not self.members:
            return
        if is_transactional and epoch < 0 and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not is_transactional and version < MEMBER_EPOCHS_FROM:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the streams group protocol",
            )
        if epoch == member.epoch:
            return
        if epoch > member.epoch:
            raise _stale(f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.")
        for topic, partition in partitions:
            self._check_older(member, epoch, topic, partition)

    def _check_older(self, member: Member, epoch: int, topic: str, partition: int) -> None:
        subtopology_id = self.readers.get(topic)
        if subtopology_id is None:
            raise _stale(f"Topic {topic} is not in the topology.")
        task = f"{subtopology_id}-{partition}"
        assigned_in = member.assignment_epoch(TaskId(subtopology_id, partition))
        if assigned_in is None:
            raise _stale(f"Task {task} is not assigned or pending revocation for member.")
        if epoch < assigned_in:
            raise _stale(f"Received member epoch {epoch} is older than assignment epoch {assigned_in} for task {task}.")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member in this epoch may fetch offsets; a client that names no member always may.

        Raises ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH.
        """
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise _stale(f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.")

    # Records

    def replay(self, record: Record) -> None:
        """Apply a record."""
        REPLAY[type(record)](self, record)

    def _replay_epoch(self, record: GroupEpoch) -> None:
        self.is_gone = record.epoch is None
        if record.epoch is not None:
            self.epoch = record.epoch
            self.metadata_hash = record.metadata_hash
            self.validated_topology_epoch = record.validated_topology_epoch
            self.assignment_configs = record.assignment_configs

    def _replay_member_metadata(self, record: MemberMetadata) -> None:
        before = self.members.get(record.member_id)
        if record.member is not None:
            known = Member(record.member_id) if before is None else before
            self._put(before, known.with_metadata_of(record.member))
        elif before is not None:
            self._put(before, None)

    def _replay_current_assignment(self, record: CurrentAssignment) -> None:
        before = self.members.get(record.member_id)
        if record.member is not None:
            known = Member(record.member_id) if before is None else before
            self._put(before, known.with_current_of(record.member))
        elif before is not None:
            gone = Member(record.member_id, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH)
            self._put(before, before.with_current_of(gone))

    def _replay_target_epoch(self, record: TargetEpoch) -> None:
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH if record.epoch is None else record.epoch
        self.assignment_timestamp_ms = record.timestamp_ms

    def _replay_target_assignment(self, record: TargetAssignment) -> None:
        if record.tasks is None:
            self.target.pop(record.member_id, None)
        else:
            self.target[record.member_id] = record.tasks

    def _replay_topology(self, record: GroupTopology) -> None:
        self.topology = record.topology
        self.readers = {} if record.topology is None else record.topology.readers()
        self.configured = None

    def _put(self, before: Member | None, after: Member | None) -> None:
        """Replace a member, and the tasks that it has."""
        if before is not None:
            self.owners.remove(before)
        if after is not None:
            self.members[after.member_id] = after
            self.owners.add(after)
        elif before is not None:
            del self.members[before.member_id]
            if not self.members:
                self.shutdown_member_id = None

    def invariants(self) -> None:
        """Assert the invariants of the module; for tests, debugging and simulation."""
        assert self.owners == TaskOwners.of(self.members.values()), "inv. 1"
        assert self.readers == ({} if self.topology is None else self.topology.readers()), "inv. 2"


def _stale(message: str) -> ApiError:
    return ApiError(ErrorCode.STALE_MEMBER_EPOCH, message)


#: The states, and when a group is in one of them, if it is in none before.
STATES: Final[tuple[tuple[GroupState, Callable[[StreamsGroup], bool]], ...]] = (
    (GroupState.DEAD, lambda group: group.is_gone),
    (GroupState.EMPTY, lambda group: not group.members),
    (GroupState.NOT_READY, lambda group: not group.is_validated),
    (GroupState.ASSIGNING, lambda group: group.epoch > group.assignment_epoch),
    (GroupState.RECONCILING, lambda group: not group.is_reconciled),
    (GroupState.STABLE, lambda _group: True),
)

REPLAY: Mapping[type[Any], Callable[[StreamsGroup, Any], None]] = {
    GroupEpoch: StreamsGroup._replay_epoch,
    MemberMetadata: StreamsGroup._replay_member_metadata,
    CurrentAssignment: StreamsGroup._replay_current_assignment,
    TargetEpoch: StreamsGroup._replay_target_epoch,
    TargetAssignment: StreamsGroup._replay_target_assignment,
    GroupTopology: StreamsGroup._replay_topology,
}
