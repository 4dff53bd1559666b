"""What decisions about a consumer group are made of: gather records, timers and what else is to be done. Pure.

Theory
A turn takes one event. It reads the group, which it does not change, and gathers records; these change the group, by
`ConsumerGroup.replay`, once the log has taken them. So a turn that fails (ApiError) or whose records the log refuses
leaves nothing behind. Whatever the event, three steps follow one another:
    1. the member is written if it changed; the group epoch goes up if subscriptions, or the topics behind them, did
    2. the assignor runs if the target assignment is older than the group (and the last run is long enough ago)
    3. the member takes a step towards its target (`consumer_group_reconcile.py`)

Threads: owner is the group's shard, under its lock.
Source: Kafka's GroupMetadataManager (4.3): consumerGroupHeartbeat, maybeUpdateTargetAssignment, maybeReconcile.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from barnabas.broker.coordinators import consumer_group_types as t
from barnabas.broker.coordinators.assignor_types import MemberSpec
from barnabas.broker.coordinators.assignors import ASSIGNORS
from barnabas.broker.coordinators.consumer_group import NOTHING, ConsumerGroup
from barnabas.broker.coordinators.consumer_group_migration import may_downgrade, to_classic_group
from barnabas.broker.coordinators.consumer_group_reconcile import Aim, reconcile
from barnabas.broker.coordinators.consumer_group_situation import Situation
from barnabas.broker.coordinators.consumer_group_types import Assignment, Member, MemberState, Record, Timeout
from barnabas.broker.coordinators.group import Group
from barnabas.broker.coordinators.metadata_watch import metadata_hash
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")

REGEX_REFRESH_MIN_MS = 10_000
EPOCH_MAX = 2**31 - 1


class Turn:
    """See the module."""

    def __init__(self, group: ConsumerGroup, situation: Situation) -> None:
        self.group = group
        self.situation = situation
        self.records: list[Record] = []
        self.timeouts: list[Timeout] = []
        self.regexes_wanted: frozenset[str] = frozenset()  # to be matched with all topics, elsewhere
        self.is_rebalance = False  # the epoch goes up, and not because somebody goes: so Kafka counts
        self.has_looked = False  # at the cluster's picture, for topics that changed
        self.downgraded: Group | None = None  # the classic group that this one becomes; the records remove this one
        self.must_rebalance = False  # it begins with a rebalance
        self._replaced_id: str | None = None  # the member whose place, as a static one, the present member takes

    # Who it is

    def _check_room(self, member_id: str) -> None:
        max_size = self.situation.settings.max_size
        if len(self.group.members) >= max_size and member_id not in self.group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {max_size} members.",
            )

    def _static_member(self, instance_id: str, member_id: str) -> Member:
        """The static member, if it has this member id; raises ApiError otherwise."""
        member = self.group.static_member(instance_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def _replace_static(self, old: Member, new_id: str) -> Member:
        """Put a new member into the place of a static one, with all it has, in epoch 0."""
        new = replace(old, member_id=new_id, epoch=t.JOIN_EPOCH, previous_epoch=0)
        self._replaced_id = old.member_id
        self._remove(old.member_id)
        self.records += [
            t.MemberMetadata(new_id, new),
            t.TargetAssignment(new_id, self.group.target.get(old.member_id, NOTHING)),
            t.CurrentAssignment(new_id, new),
        ]
        return new

    def _remove(self, member_id: str) -> None:
        self.records += [
            t.CurrentAssignment(member_id, None),
            t.TargetAssignment(member_id, None),
            t.MemberMetadata(member_id, None),
        ]

    # 1. Subscriptions and the group epoch

    def _write_member(self, before: Member, after: Member) -> bool:
        """Write the member if it changed; tells whether it names other topics now."""
        if after == before:
            return False
        self.records.append(t.MemberMetadata(after.member_id, after))
        return after.topic_names != before.topic_names

    def _raise_epoch(self, before: Member, after: Member, must_rise: bool) -> int:
        """Raise the group epoch if it must, or if the topics are not what they were; returns it."""
        group, picture = self.group, self.situation.picture
        if not must_rise and group.picture_seen == picture.number:
            return group.epoch
        names = Counter(group.topic_names)
        names.subtract(before.topic_names)
        names.update(after.topic_names)
        old_regex = before.topic_regex
        if old_regex and old_regex != after.topic_regex and group.regexes[old_regex] == 1:
            names.subtract(group.resolved_regexes.get(old_regex, t.NO_TOPICS).topics)
        epoch = self._epoch_after(+names, must_rise)
        if group.has_partition_metadata_record:
            self.records.append(t.PartitionMetadata(exists=False))
        return epoch

    def _epoch_after(self, topic_names: Iterable[str], must_rise: bool) -> int:
        group = self.group
        self.has_looked = True
        digest = metadata_hash(topic_names, self.situation.picture.snapshot)
        if not must_rise and digest == group.metadata_hash:
            return group.epoch
        if group.epoch >= EPOCH_MAX:  # only a foreign record can have brought it there
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The epoch of group {group.group_id} cannot go up further.")
        epoch = group.epoch + 1
        self.is_rebalance = True
        self.records.append(t.GroupEpoch(epoch, digest))
        log.info("Consumer group %s is in epoch %d", group.group_id, epoch)
        return epoch

    # 2. The target assignment

    def _assign(self, epoch: int, member: Member) -> tuple[int, Assignment]:
        """Have the assignor run if the target is older than `epoch`; returns its epoch and the member's part."""
        group, situation = self.group, self.situation
        if group.assignment_epoch >= epoch or not self._may_assign():
            return group.assignment_epoch, group.target.get(self._replaced_id or member.member_id, NOTHING)
        members = {**group.members, member.member_id: member}
        if self._replaced_id not in (None, member.member_id):
            del members[self._replaced_id]
        default = situation.settings.assignors[0]
        name = group.preferred_assignor(members.values(), default)
        if name not in ASSIGNORS:  # asked of a broker that had it
            name = default
        specs, counts = self._specs(members.values())
        target = ASSIGNORS[name](specs, counts)
        for member_id, assignment in target.items():
            if assignment != group.target.get(member_id):
                self.records.append(t.TargetAssignment(member_id, assignment))
        self.records.append(t.TargetEpoch(epoch, situation.now_ms))
        log.info("Assigned consumer group %s for epoch %d with %s", group.group_id, epoch, name)
        return epoch, target[member.member_id]

    def _may_assign(self) -> bool:
        last_ms, interval_ms = self.group.assignment_timestamp_ms, self.situation.times.assignment_interval_ms
        return last_ms == t.NO_TIMESTAMP or interval_ms == 0 or self.situation.now_ms >= last_ms + interval_ms

    def _specs(self, members: Iterable[Member]) -> tuple[dict[str, MemberSpec], dict[bytes, int]]:
        """What the assignor is told: every member, and the partition counts of all their topics."""
        specs: dict[str, MemberSpec] = {}
        known: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
        for member in members:
            subscription = (member.topic_names, member.topic_regex)
            if subscription not in known:
                known[subscription] = self._topic_ids(member)
            before_id = self._replaced_id if member.member_id not in self.group.members else None
            held = self.group.target.get(before_id or member.member_id, NOTHING)
            specs[member.member_id] = MemberSpec(known[subscription], held, member.instance_id)
        snapshot = self.situation.picture.snapshot
        counts = {
            topic_id: len(snapshot.topics[snapshot.topic_names[topic_id]].partitions)
            for topic_ids in known.values()
            for topic_id in topic_ids
        }
        return specs, counts

    def _topic_ids(self, member: Member) -> frozenset[bytes]:
        """The topics it is subscribed to, if they exist."""
        names = member.topic_names
        if member.topic_regex:
            names = names | self.group.resolved_regexes.get(member.topic_regex, t.NO_TOPICS).topics
        snapshot = self.situation.picture.snapshot
        found = (snapshot.topic_id(name) for name in names)
        return frozenset(topic_id for topic_id in found if topic_id in snapshot.topic_names)

    # 3. The member's step

    def _reconcile(
        self, member: Member, target_epoch: int, target: Assignment, owned: Assignment | None, *, is_changed: bool
    ) -> Member:
        """Let the member take its step, if there is one to take, and watch how long a revocation takes."""
        if not is_changed and member.is_reconciled_to(target_epoch):
            return member
        itself = (member.member_id, self._replaced_id or member.member_id)
        aim = Aim(
            target_epoch, target, self._topic_ids(member), is_changed,
            lambda topic_id, partition: self.group.is_free(topic_id, partition, *itself), owned,
        )  # fmt: skip
        after = reconcile(member, aim)
        if after == member:
            return member
        self.records.append(t.CurrentAssignment(after.member_id, after))
        if not after.uses_classic_protocol:  # those are watched from join to sync
            self._watch_revocation(after)
        return after

    def _watch_revocation(self, member: Member) -> None:
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            timeout_ms = member.rebalance_timeout_ms
            event = t.RevocationExpired(member.member_id, member.epoch, timeout_ms)
            self.timeouts.append(Timeout("rebalance", member.member_id, timeout_ms, event))
        else:
            self.timeouts.append(Timeout("rebalance", member.member_id))

    def _start_session(self, member_id: str, timeout_ms: int) -> None:
        expired = t.MemberExpired(member_id, "its session timed out")
        self.timeouts.append(Timeout("session", member_id, timeout_ms, expired))

    # Members that go

    def _fence(self, members: Sequence[Member]) -> None:
        """Remove members; the group epoch goes up, so that others get what they had."""
        if not members:
            return
        group = self.group
        leaving = {member.member_id for member in members}
        if may_downgrade(group, leaving, self.situation.settings):
            self._downgrade(leaving, must_rebalance=True)
            return
        for member in members:
            self._remove(member.member_id)
            self.timeouts += [Timeout(kind, member.member_id) for kind in ("session", "rebalance", "join", "sync")]
        names = Counter(group.topic_names)
        for member in members:
            names.subtract(member.topic_names)
        regexes = Counter(member.topic_regex for member in members if member.topic_regex)
        for regex, count in regexes.items():
            if group.regexes[regex] == count:
                self.records.append(t.RegexTopics(regex, None))
                names.subtract(group.resolved_regexes.get(regex, t.NO_TOPICS).topics)
        self._epoch_after(+names, must_rise=True)
        self.is_rebalance = False

    def _downgrade(self, leaving: Set[str], *, must_rebalance: bool, joining: Member | None = None) -> None:
        """Make a classic group of those who stay and who joins in the place of one that leaves."""
        log.info("Consumer group %s becomes a classic group", self.group.group_id)
        self.downgraded = to_classic_group(
            self.group, leaving, self.situation.picture.snapshot, self.situation.now_ms, joining, self._replaced_id
        )
        self.must_rebalance = must_rebalance
        self.records = self.group.tombstones()
        self.timeouts = []
