"""A consumer group (KIP-848): its members, epochs and assignments. Only records change it. Pure.

Theory
    group epoch       rises when the members, their subscriptions, or the topics they are subscribed to change
    assignment epoch  the epoch of the target assignment; it follows the group epoch when the assignor has run
    member epoch      follows the assignment epoch when the member has reconciled
There is no generation and no barrier: each member moves at its own pace, by its heartbeats.

Rules
1. Only `replay` changes the state that the log holds, and it never fails. The log may be half compacted, so a record
   about something that no longer exists does nothing.
2. Decisions (`turn.py` and its subclasses) read the group and produce records.

Invariants (asserted by `invariants()`)
1. A partition has at most one owner: a member that is assigned it, or has yet to revoke it.
2. The counts and indexes agree with the members.

Threads: owner is the group's shard, under its lock.
Source: Kafka's ConsumerGroup, ModernGroup (4.3), KIP-848, KIP-1251.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.broker.coordinators.classic.members import CONSUMER_PROTOCOL_TYPE
from barnabas.broker.coordinators.consumer.values import (
    NO_TIMESTAMP,
    Assignment,
    CurrentAssignment,
    GroupEpoch,
    GroupState,
    Member,
    MemberMetadata,
    PartitionMetadata,
    Record,
    RegexTopics,
    ResolvedRegex,
    TargetAssignment,
    TargetEpoch,
    partitions_of,
)
from barnabas.protocol.errors import ApiError, ErrorCode

FIRST_EPOCH = 1
NO_ASSIGNMENT_EPOCH = 1  # as if there were one without partitions: no assignor runs in the first epoch
MEMBER_EPOCHS_FROM = 9  # OffsetCommit version
NOTHING: Assignment = {}


class ConsumerGroup:
    """One consumer group; see the module."""

    TYPE = "consumer"  # Kafka's name for groups of this kind

    __slots__ = (
        "assignment_epoch",
        "assignment_timestamp_ms",
        "classic_protocol_votes",
        "epoch",
        "group_id",
        "has_partition_metadata_record",
        "image_compared",
        "is_gone",
        "is_resolving",
        "members",
        "metadata_hash",
        "owners",
        "regexes",
        "resolved_regexes",
        "static_members",
        "target",
        "topic_names",
    )  # fmt: skip

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0  # of the subscribed topics when the epoch last rose
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH
        self.assignment_timestamp_ms = NO_TIMESTAMP  # wall
        self.target: dict[str, Assignment] = {}  # by member id
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.owners: dict[tuple[bytes, int], str] = {}  # (topic id, partition) -> member id; see invariant 1
        self.topic_names: Counter[str] = Counter()  # subscriptions by topic, of members and of resolved expressions
        self.regexes: Counter[str] = Counter()  # members by regular expression
        self.resolved_regexes: dict[str, ResolvedRegex] = {}
        self.classic_protocol_votes: Counter[str] = Counter()  # classic members by supported assignor
        self.has_partition_metadata_record = False
        self.is_gone = False
        # Not in the log
        self.image_compared = -1  # the number of the metadata image that the metadata hash was last compared with
        self.is_resolving = False  # its regular expressions are being matched

    # Queries

    @property
    def protocol_type(self) -> str:
        """The protocol type, as clients see it: consumers."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def state(self) -> GroupState:
        """The state; it follows from the epochs."""
        if self.is_gone:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        members = list(self.members.values())  # a copy in one step: metrics are scraped without the lock
        is_stable = all(member.is_reconciled_to(self.assignment_epoch) for member in members)
        return GroupState.STABLE if is_stable else GroupState.RECONCILING

    def member(self, member_id: str) -> Member:
        """Return the member. Raises ApiError(UNKNOWN_MEMBER_ID)."""
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        """Return the member with this instance id, if there is one."""
        return None if instance_id is None else self.members.get(self.static_members.get(instance_id, ""))

    @property
    def classic_member_count(self) -> int:
        """The number of members that speak the classic protocol."""
        return sum(member.uses_classic_protocol for member in self.members.values())

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member consumes the topic, so that its offsets must be kept."""
        return topic in self.topic_names

    def is_free(self, topic_id: bytes, partition: int, *except_for: str) -> bool:
        """Return whether no member, except these, owns the partition."""
        owner = self.owners.get((topic_id, partition))
        return owner is None or owner in except_for

    def waits_for_others(self, member: Member) -> bool:
        """Return whether another member still owns a partition of this member's target assignment."""
        return any(
            partition not in member.assigned.get(topic_id, ()) and not self.is_free(topic_id, partition)
            for topic_id, partitions in self.target.get(member.member_id, NOTHING).items()
            for partition in partitions
        )

    def preferred_assignor(self, members: Iterable[Member], default: str) -> str:
        """Return the assignor that most of these members ask for; on a tie, the one asked for first."""
        votes = Counter(member.server_assignor for member in members if member.server_assignor is not None)
        return votes.most_common(1)[0][0] if votes else default

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
            *(RegexTopics(regex, None) for regex in self.resolved_regexes),
            PartitionMetadata(exists=False),
            GroupEpoch(None),
        ]

    # Permission to commit and fetch offsets

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, *, is_transactional: bool,
        partitions: Iterable[tuple[bytes, int]],
    ) -> None:  # fmt: skip
        """Check that a member in this epoch may commit these (topic id, partition)s (KIP-1251).

        Raises ApiError with one of these:
        - UNKNOWN_MEMBER_ID;
        - STALE_MEMBER_EPOCH (ILLEGAL_GENERATION for a member of the classic protocol), unless the epoch is the
          member's, or an older one in which the member already had the partition;
        - UNSUPPORTED_VERSION before OffsetCommit v9.
        """
        if epoch < 0 and not self.members:
            return
        if is_transactional and epoch < 0 and not member_id and instance_id is None:
            return
        member = self.member(member_id)
        if not is_transactional and not member.uses_classic_protocol and version < MEMBER_EPOCHS_FROM:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if epoch == member.epoch:
            return
        if epoch > member.epoch:
            raise _stale(member, f"Received epoch {epoch} is newer than the member's epoch {member.epoch}.")
        for topic_id, partition in partitions:
            assigned_in = member.assignment_epoch(topic_id, partition)
            if assigned_in is None or epoch < assigned_in:
                raise _stale(member, f"Received epoch {epoch} is older than the assignment of partition {partition}.")

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that a member in this epoch may fetch offsets; a client that names no member always may.

        Raises ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION (for the classic protocol).
        """
        if member_id is None and epoch < 0:
            return
        member = self.member(member_id or "")
        if epoch != member.epoch:
            raise _stale(member, f"The received epoch {epoch} is not the member's epoch {member.epoch}.")

    # Records

    def replay(self, record: Record) -> None:
        """Apply a record."""
        REPLAY[type(record)](self, record)

    def _replay_epoch(self, record: GroupEpoch) -> None:
        if record.epoch is None:
            self.is_gone = True
        else:
            self.is_gone = False
            self.epoch = record.epoch
            self.metadata_hash = record.metadata_hash

    def _replay_partition_metadata(self, record: PartitionMetadata) -> None:
        self.has_partition_metadata_record = record.exists

    def _replay_member_metadata(self, record: MemberMetadata) -> None:
        before = self.members.get(record.member_id)
        if record.member is not None:
            known = Member(record.member_id) if before is None else before
            self._put(record.member_id, before, known.with_metadata_of(record.member))
        elif before is not None:
            self._put(record.member_id, before, None)

    def _replay_current_assignment(self, record: CurrentAssignment) -> None:
        before = self.members.get(record.member_id)
        if record.member is not None:
            known = Member(record.member_id) if before is None else before
            self._put(record.member_id, before, known.with_current_of(record.member))
        elif before is not None:
            self._put(record.member_id, before, before.with_current_of(Member(record.member_id, epoch=-1)))

    def _replay_target_epoch(self, record: TargetEpoch) -> None:
        self.assignment_epoch = NO_ASSIGNMENT_EPOCH if record.epoch is None else record.epoch
        self.assignment_timestamp_ms = record.timestamp_ms

    def _replay_target_assignment(self, record: TargetAssignment) -> None:
        if record.assignment is None:
            self.target.pop(record.member_id, None)
        else:
            self.target[record.member_id] = record.assignment

    def _replay_regex(self, record: RegexTopics) -> None:
        before = self.resolved_regexes.pop(record.regex, None)
        if before is not None:
            _count(self.topic_names, before.topics, -1)
        if record.resolved is not None:
            self.resolved_regexes[record.regex] = record.resolved
            _count(self.topic_names, record.resolved.topics, 1)

    def _put(self, member_id: str, before: Member | None, after: Member | None) -> None:
        """Replace a member, and update the counts and indexes."""
        if before is not None:
            self._count_member(before, -1)
            for tp in (*partitions_of(before.assigned), *partitions_of(before.pending_revocation)):
                if self.owners.get(tp) == member_id:
                    del self.owners[tp]
            if before.instance_id is not None and self.static_members.get(before.instance_id) == member_id:
                del self.static_members[before.instance_id]
        if after is None:
            del self.members[member_id]
            return
        self.members[member_id] = after
        self._count_member(after, 1)
        for tp in (*partitions_of(after.assigned), *partitions_of(after.pending_revocation)):
            self.owners[tp] = member_id
        if after.instance_id is not None:
            self.static_members[after.instance_id] = member_id

    def _count_member(self, member: Member, by: int) -> None:
        _count(self.topic_names, member.topic_names, by)
        if member.topic_regex:
            _count(self.regexes, (member.topic_regex,), by)
        if member.classic is not None:
            _count(self.classic_protocol_votes, {name for name, _ in member.classic.protocols}, by)

    def invariants(self) -> None:
        """Assert the invariants of the module; for tests, debugging and simulation."""
        members = self.members.values()
        held = Counter(tp for m in members for tp in (*partitions_of(m.assigned), *partitions_of(m.pending_revocation)))
        assert not any(count > 1 for count in held.values()), "inv. 1"
        assert self.owners.keys() == held.keys(), "inv. 2"
        names = Counter(name for m in members for name in m.topic_names)
        names.update(name for resolved in self.resolved_regexes.values() for name in resolved.topics)
        assert self.topic_names == names, "inv. 2"
        assert self.regexes == Counter(m.topic_regex for m in members if m.topic_regex), "inv. 2"
        static = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert self.static_members == static, "inv. 2"


def _count(counter: Counter[str], names: Iterable[str], by: int) -> None:
    for name in names:
        counter[name] += by
        if not counter[name]:
            del counter[name]


def _stale(member: Member, message: str) -> ApiError:
    is_classic = member.uses_classic_protocol
    return ApiError(ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH, message)


REPLAY: Mapping[type[Any], Callable[[ConsumerGroup, Any], None]] = {
    GroupEpoch: ConsumerGroup._replay_epoch,
    PartitionMetadata: ConsumerGroup._replay_partition_metadata,
    MemberMetadata: ConsumerGroup._replay_member_metadata,
    CurrentAssignment: ConsumerGroup._replay_current_assignment,
    TargetEpoch: ConsumerGroup._replay_target_epoch,
    TargetAssignment: ConsumerGroup._replay_target_assignment,
    RegexTopics: ConsumerGroup._replay_regex,
}
