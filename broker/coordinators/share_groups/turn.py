"""One decision about a share group: what it reads and collects, and the steps it may take. Pure.

A turn reads the group and produces records, timers, and share partitions to be initialised. The shard carries it out if
the log takes the records; otherwise it has not happened.

Rules
1. A time in the log may be in the future, since clocks are set back. Such a time delays nothing.
2. A partition whose initialisation another coordinator has begun is initialised again in a newer epoch. So a late
   request of that coordinator is fenced, and cannot reset the partition after records were delivered.

Source: Kafka's GroupMetadataManager (share groups, 4.3).

Different from Apache Kafka: rule 2 (Kafka tries again after 30 seconds, in the same epoch); it looks for partitions to
initialise or assign only after a change, not with every heartbeat.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from barnabas.broker.coordinators.assignors.simple import assign_simple
from barnabas.broker.coordinators.assignors.specs import MemberSpec
from barnabas.broker.coordinators.consumer.metadata_watch import metadata_hash, subscribes_anew
from barnabas.broker.coordinators.consumer.values import NO_TIMESTAMP, Assignment, MemberExpired, Timeout
from barnabas.broker.coordinators.share_groups import partitions as parts
from barnabas.broker.coordinators.share_groups import values as v
from barnabas.broker.coordinators.share_groups.environment import Environment
from barnabas.broker.coordinators.share_groups.group import EPOCH_MAX, ShareGroup
from barnabas.broker.coordinators.share_groups.values import Member, Record, TopicPart
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")

NOTHING: Assignment = {}


class Turn:
    """See the module. The steps may raise ApiError."""

    def __init__(self, group: ShareGroup, environment: Environment) -> None:
        self.group = group
        self.environment = environment
        self.records: list[Record] = []
        self.timeouts: list[Timeout] = []
        self.initializes: dict[bytes, frozenset[int]] = {}  # topic id -> share partitions, once the records are written
        self.epoch = group.epoch  # the group's, after this turn
        self.is_rebalance = False  # the epoch rises for another reason than a leaving member, as Kafka counts
        self.has_compared_topics = False  # with the metadata image, to detect changed topics
        self.is_settled = False  # nothing is to be initialised or assigned until something changes

    # Members

    def check_capacity(self, member_id: str) -> None:
        """Check group.share.max.size for a member that may be new. Raises ApiError(GROUP_MAX_SIZE_REACHED)."""
        max_size = self.environment.settings.max_size
        if len(self.group.members) >= max_size and member_id not in self.group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The share group has reached its maximum capacity of {max_size} members.",
            )

    def write_member(self, before: Member, after: Member) -> bool:
        """Write the member if it changed; returns whether its topic names changed. Raises ApiError(INVALID_REQUEST)."""
        if after == before:
            return False
        snapshot = self.environment.image.snapshot
        is_changed = subscribes_anew(self.group.topic_names, before.topic_names, after.topic_names, snapshot)
        self.records.append(v.MemberMetadata(after.member_id, after))
        return is_changed

    def start_session(self, member_id: str) -> None:
        """Start the member's session again."""
        expired = MemberExpired(member_id, "its session timed out")
        self.timeouts.append(Timeout("session", member_id, self.environment.times.session_timeout_ms, expired))

    def remove(self, member: Member) -> None:
        """Remove a member; the group epoch rises, so that the others get its share."""
        names = Counter(self.group.topic_names)
        names.subtract(member.topic_names)
        self.records += [
            v.CurrentAssignment(member.member_id, None),
            v.TargetAssignment(member.member_id, None),
            v.MemberMetadata(member.member_id, None),
        ]
        self.timeouts.append(Timeout("session", member.member_id))
        self._raise_epoch(+names, must_rise=True)
        self.is_rebalance = False

    # The group epoch

    @property
    def _must_look(self) -> bool:
        """Whether something may have to be initialised or assigned."""
        return self.group.settled != (self.environment.image.number, self.group.changes) or bool(self.records)

    def advance_epoch(self, before: Member, after: Member, *, is_changed: bool) -> None:
        """Raise the group epoch if the subscriptions, their topics or the initialised partitions have changed."""
        group, image = self.group, self.environment.image
        must_rise = is_changed or (self._must_look and (self._is_assignment_pending() or self._has_abandoned()))
        if not must_rise and group.image_compared == image.number:
            return
        self._raise_epoch(self._names_after(before, after), must_rise=must_rise)

    def _names_after(self, before: Member, after: Member) -> Iterable[str]:
        """Return the topics that the group is subscribed to once the member has changed."""
        names = Counter(self.group.topic_names)
        names.subtract(before.topic_names)
        names.update(after.topic_names)
        return +names

    def _raise_epoch(self, topic_names: Iterable[str], *, must_rise: bool) -> None:
        group = self.group
        self.has_compared_topics = True
        digest = metadata_hash(topic_names, self.environment.image.snapshot)
        if not must_rise and digest == group.metadata_hash:
            return
        if group.epoch >= EPOCH_MAX:  # only another program's record can hold it
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The epoch of group {group.group_id} cannot go up further.")
        self.epoch = group.epoch + 1
        self.is_rebalance = True
        self.records.append(v.GroupEpoch(self.epoch, digest))
        log.info("Share group %s is in epoch %d", group.group_id, self.epoch)

    def _is_assignment_pending(self) -> bool:
        """Return whether no member has an initialised partition of a subscribed topic, and no assignment is to come."""
        group = self.group
        if not group.members or group.epoch > group.assignment_epoch:
            return False
        assigned: dict[bytes, set[int]] = {}
        for assignment in group.target.values():
            for topic_id, partitions in assignment.items():
                assigned.setdefault(topic_id, set()).update(partitions)
        return any(
            assigned.get(topic_id, set()) != partitions
            for topic_id, partitions in self._assignable(group.topic_names).items()
        )

    def _has_abandoned(self) -> bool:
        """Return whether partitions are to be initialised that another coordinator has begun with (rule 2)."""
        group = self.group
        missing = parts.uninitialized(group.partitions, group.attempts, self._counts(group.topic_names))
        initializing = group.partitions.initializing
        return any(not found.isdisjoint(parts.partitions_in(initializing, id_)) for id_, found in missing.items())

    # The target assignment

    def assign(self, member: Member) -> tuple[int, Assignment]:
        """Run the assignor if the target is older than the group; returns the target's epoch and the member's part."""
        group, environment = self.group, self.environment
        if group.assignment_epoch >= self.epoch or not self._may_assign():
            return group.assignment_epoch, group.target.get(member.member_id, NOTHING)
        members = {**group.members, member.member_id: member}
        snapshot = environment.image.snapshot
        known: dict[frozenset[str], frozenset[bytes]] = {}
        for names in {one.topic_names for one in members.values()}:
            known[names] = frozenset(self._counts(names))
        specs = {
            member_id: MemberSpec(known[one.topic_names], group.target.get(member_id, NOTHING))
            for member_id, one in members.items()
        }
        topics = {snapshot.topic_names[topic_id] for topic_ids in known.values() for topic_id in topic_ids}
        target = assign_simple(specs, self._assignable(topics))
        for member_id, assignment in target.items():
            if assignment != group.target.get(member_id):
                self.records.append(v.TargetAssignment(member_id, assignment))
        self.records.append(v.TargetEpoch(self.epoch, environment.now_ms))
        log.info("Assigned share group %s for epoch %d", group.group_id, self.epoch)
        return self.epoch, target[member.member_id]

    def _may_assign(self) -> bool:
        now_ms, last_ms = self.environment.now_ms, self.group.assignment_timestamp_ms
        rests = last_ms <= now_ms < last_ms + self.environment.times.assignment_interval_ms  # rule 1
        return last_ms == NO_TIMESTAMP or not rests

    def _counts(self, topic_names: Iterable[str]) -> dict[bytes, int]:
        """Return the partition counts of the topics that exist, by id."""
        topics = self.environment.image.snapshot.topics
        found = (topics.get(name) for name in topic_names)
        return {topic.id: len(topic.partitions) for topic in found if topic is not None}

    def _assignable(self, topic_names: Iterable[str]) -> dict[bytes, frozenset[int]]:
        """Return the initialised partitions of the topics that exist."""
        initialized = self.group.partitions.initialized
        return {
            topic_id: frozenset(p for p in parts.partitions_in(initialized, topic_id) if 0 <= p < count)
            for topic_id, count in self._counts(topic_names).items()
        }

    # The member's step

    def reconcile(self, member: Member, target_epoch: int, target: Assignment, *, is_changed: bool) -> Member:
        """Move the member to the target, without the topics that it is no longer subscribed to."""
        if member.epoch == target_epoch and not is_changed:
            return member
        wanted = self._counts(member.topic_names)
        assigned = {topic_id: partitions for topic_id, partitions in target.items() if topic_id in wanted}
        after = replace(member, assigned=assigned)
        if member.epoch != target_epoch:
            after = replace(after, epoch=target_epoch, previous_epoch=member.epoch)
        if after != member:
            self.records.append(v.CurrentAssignment(after.member_id, after))
        return after

    # Share partitions

    def initialize_missing(self, before: Member, after: Member) -> None:
        """Initialise the partitions of the topics that are subscribed to from now on, if they are not yet."""
        if not self._must_look:
            self.is_settled = True
            return
        group = self.group
        counts = self._counts(self._names_after(before, after))
        missing = parts.uninitialized(group.partitions, group.attempts, counts)
        if missing:
            self.begin_initializing(missing)
        self.is_settled = not self.records

    def begin_initializing(self, wanted: Mapping[bytes, frozenset[int]]) -> None:
        """Initialise these partitions, of existing topics."""
        names = self.environment.image.snapshot.topic_names
        topics = {topic_id: TopicPart(names[topic_id], partitions) for topic_id, partitions in wanted.items()}
        after = parts.begin_initializing(self.group.partitions, topics)
        if after != self.group.partitions:
            self.records.append(v.StatePartitions(after))
        self.initializes = dict(wanted)
