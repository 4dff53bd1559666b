"""A share group (KIP-932): its members, epochs, assignments and share partitions. Only records change it. Pure.

Theory
    group epoch       rises when the members, their subscriptions, the topics they are subscribed to, or the initialised
                      share partitions change
    assignment epoch  the epoch of the target assignment; it follows the group epoch when the assignor has run
    member epoch      follows the assignment epoch with the member's next heartbeat
Members share partitions, so no member waits for another one to give up a partition.

Rules
1. Only `replay` changes the state that the log holds, and it never fails. The log may be half compacted, so a record
   about something that no longer exists does nothing.
2. Decisions (`turn.py`, `heartbeats.py`) read the group and produce records.

Invariant (asserted by `invariants()`): the counts agree with the members.

Threads: owner is the group's shard, under its lock.
Source: Kafka's ShareGroup, ModernGroup (4.3), KIP-932.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from barnabas.broker.coordinators.consumer.values import NO_TIMESTAMP, Assignment
from barnabas.broker.coordinators.share_groups.values import (
    NO_PARTITIONS,
    CurrentAssignment,
    GroupEpoch,
    GroupState,
    Member,
    MemberMetadata,
    Record,
    SharePartitions,
    StatePartitions,
    TargetAssignment,
    TargetEpoch,
)
from barnabas.protocol.errors import ApiError, ErrorCode

FIRST_EPOCH = 1
EPOCH_MAX = 2**31 - 1
NO_ASSIGNMENT_EPOCH = 1  # as if there were one without partitions: no assignor runs in the first epoch


class ShareGroup:
    """One share group; see the module."""

    TYPE = "share"  # Kafka's name for groups of this kind

    __slots__ = (
        "assignment_epoch", "assignment_timestamp_ms", "attempts", "changes", "epoch", "group_id", "image_compared",
        "is_gone", "members", "metadata_hash", "partitions", "settled", "target", "topic_names",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0  # of the subscribed topics when the epoch last rose
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH
        self.assignment_timestamp_ms = NO_TIMESTAMP  # wall
        self.target: dict[str, Assignment] = {}  # by member id
        self.members: dict[str, Member] = {}
        self.topic_names: Counter[str] = Counter()  # members by subscribed topic
        self.partitions: SharePartitions = NO_PARTITIONS
        self.is_gone = False
        # Not in the log
        self.image_compared = -1  # the number of the metadata image that the metadata hash was last compared with
        self.attempts: Counter[tuple[bytes, int]] = Counter()  # by (topic id, partition): requests that initialise it
        self.changes = 0  # rises with every change
        self.settled = (-1, -1)  # (metadata image, changes) for which nothing is to be initialised or assigned

    # Queries

    @property
    def protocol_type(self) -> str:
        """The protocol type, as clients see it."""
        return self.TYPE

    @property
    def state(self) -> GroupState:
        """The state; it follows from the members."""
        if self.is_gone:
            return GroupState.DEAD
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def member(self, member_id: str) -> Member:
        """Return the member. Raises ApiError(UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def change_error(self) -> ErrorCode:
        """Return the error for a change or a deletion of its share partitions' state, or NONE."""
        return ErrorCode.NON_EMPTY_GROUP if self.members else ErrorCode.NONE

    def delete_error(self) -> ErrorCode:
        """Return the error for the removal of the group, or NONE.

        Share partitions whose state is not deleted keep it. Else a later group of this name would begin in an older
        epoch than their state, and could not initialise them.
        """
        has_state = bool(self.members or self.partitions.initializing or self.partitions.initialized)
        return ErrorCode.NON_EMPTY_GROUP if has_state else ErrorCode.NONE

    def tombstones(self) -> list[Record]:
        """Return the records that remove the group from the log."""
        members = list(self.members)
        return [
            *(CurrentAssignment(member_id, None) for member_id in members),
            *(TargetAssignment(member_id, None) for member_id in self.target),
            TargetEpoch(None),
            *(MemberMetadata(member_id, None) for member_id in members),
            StatePartitions(None),
            GroupEpoch(None),
        ]

    # Records

    def replay(self, record: Record) -> None:
        """Apply a record."""
        self.changes += 1
        REPLAY[type(record)](self, record)

    def _replay_epoch(self, record: GroupEpoch) -> None:
        self.is_gone = record.epoch is None
        if record.epoch is not None:
            self.epoch = record.epoch
            self.metadata_hash = record.metadata_hash

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
            self._put(before, before.with_current_of(Member(record.member_id, epoch=-1)))

    def _replay_target_epoch(self, record: TargetEpoch) -> None:
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH if record.epoch is None else record.epoch
        self.assignment_timestamp_ms = record.timestamp_ms

    def _replay_target_assignment(self, record: TargetAssignment) -> None:
        if record.assignment is None:
            self.target.pop(record.member_id, None)
        else:
            self.target[record.member_id] = record.assignment

    def _replay_state_partitions(self, record: StatePartitions) -> None:
        self.partitions = NO_PARTITIONS if record.partitions is None else record.partitions

    def _put(self, before: Member | None, after: Member | None) -> None:
        """Replace a member, and update the counts."""
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self.members[after.member_id] = after
            self._count(after, 1)
        elif before is not None:
            del self.members[before.member_id]

    def _count(self, member: Member, by: int) -> None:
        for name in member.topic_names:
            self.topic_names[name] += by
            if not self.topic_names[name]:
                del self.topic_names[name]

    def invariants(self) -> None:
        """Assert the invariant of the module; for tests, debugging and simulation."""
        assert self.topic_names == Counter(name for m in self.members.values() for name in m.topic_names), "counts"


REPLAY: Mapping[type[Any], Callable[[ShareGroup, Any], None]] = {
    GroupEpoch: ShareGroup._replay_epoch,
    MemberMetadata: ShareGroup._replay_member_metadata,
    CurrentAssignment: ShareGroup._replay_current_assignment,
    TargetEpoch: ShareGroup._replay_target_epoch,
    TargetAssignment: ShareGroup._replay_target_assignment,
    StatePartitions: ShareGroup._replay_state_partitions,
}
