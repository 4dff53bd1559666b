"""One decision about a consumer group: the steps that requests share, and the records that they collect. Pure.

Theory
A turn handles one event. It reads the group without changing it, and collects records. They change the group
(`ConsumerGroup.replay`) once the log has taken them. So a turn that fails (ApiError), or whose records the log refuses,
leaves no trace. A turn of a member takes three steps:
    1. the member is written if it changed; the group epoch rises if subscriptions, or the subscribed topics, changed
    2. the assignor runs if the target assignment is older than the group, and the last run is long enough ago
    3. the member takes a step towards its target assignment (`reconcile.py`)
The requests of the consumer protocol are in `heartbeats.py`, those of the classic protocol in `classic_requests.py`.
Each of their public functions is one turn's decision.

Rule
1. A group's timestamps are wall time, and may be in the future: clocks are set back, and the next coordinator's clock
   may be behind. Such a timestamp delays nothing. In Kafka the group gets no assignment until the clock has caught up.

Threads: owner is the group's shard, under its lock.
Source: Kafka's GroupMetadataManager (4.3): consumerGroupHeartbeat, maybeUpdateRegularExpressions,
maybeUpdateTargetAssignment, maybeReconcile.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace

from barnabas.broker.coordinators.assignors.assignors import ASSIGNORS
from barnabas.broker.coordinators.assignors.specs import MemberSpec
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.consumer import values as v
from barnabas.broker.coordinators.consumer.environment import Environment
from barnabas.broker.coordinators.consumer.group import NOTHING, ConsumerGroup
from barnabas.broker.coordinators.consumer.metadata_watch import metadata_hash, subscribes_anew
from barnabas.broker.coordinators.consumer.migration import may_downgrade, to_classic_group
from barnabas.broker.coordinators.consumer.reconcile import Aim, reconcile
from barnabas.broker.coordinators.consumer.values import Assignment, Member, MemberState, Record, Timeout
from barnabas.common.regex.pattern import PatternError, check_pattern
from barnabas.protocol.errors import ApiError, ErrorCode

log = logging.getLogger("barnabas.group")

REGEX_REFRESH_MIN_MS = 10_000
EPOCH_MAX = 2**31 - 1


class Turn:
    """What one decision reads and collects, and the steps it may take; see the module. The steps may raise ApiError."""

    def __init__(self, group: ConsumerGroup, environment: Environment) -> None:
        self.group = group
        self.environment = environment
        self.records: list[Record] = []
        self.timeouts: list[Timeout] = []
        self.regexes_wanted: frozenset[str] = frozenset()  # to be matched with all topics, in the background
        self.can_describe: Callable[[str], bool] | None = None  # the topics that they may match; None: all
        self.is_rebalance = False  # the epoch rises for another reason than a leaving member, as Kafka counts
        self.has_compared_topics = False  # with the metadata image, to detect changed topics
        self.downgraded: Group | None = None  # the classic group that this one becomes; the records remove this one
        self.must_rebalance = False  # the classic group starts with a rebalance
        self.replaced_id: str | None = None  # the former id of a static member that returns

    # Identity

    def check_capacity(self, member_id: str) -> None:
        """Check group.consumer.max.size for a member that may be new. Raises ApiError(GROUP_MAX_SIZE_REACHED)."""
        max_size = self.environment.settings.max_size
        if len(self.group.members) >= max_size and member_id not in self.group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {max_size} members.",
            )

    def static_member(self, instance_id: str, member_id: str) -> Member:
        """Return the static member, if it has this member id; raises ApiError otherwise."""
        member = self.group.static_member(instance_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
            )
        return member

    def replace_static(self, old: Member, new_id: str) -> Member:
        """Replace a static member by one with a new id, which keeps its assignment, in epoch 0."""
        new = replace(old, member_id=new_id, epoch=v.JOIN_EPOCH, previous_epoch=0)
        self.replaced_id = old.member_id
        self._remove(old.member_id)
        self.records += [
            v.MemberMetadata(new_id, new),
            v.TargetAssignment(new_id, self.group.target.get(old.member_id, NOTHING)),
            v.CurrentAssignment(new_id, new),
        ]
        return new

    def _remove(self, member_id: str) -> None:
        self.records += [
            v.CurrentAssignment(member_id, None),
            v.TargetAssignment(member_id, None),
            v.MemberMetadata(member_id, None),
        ]

    # 1. Subscriptions and the group epoch

    def write_member(self, before: Member, after: Member) -> bool:
        """Write the member if it changed; returns whether its topic names changed. Raises ApiError(INVALID_REQUEST)."""
        if after == before:
            return False
        snapshot = self.environment.image.snapshot
        is_changed = subscribes_anew(self.group.topic_names, before.topic_names, after.topic_names, snapshot)
        self.records.append(v.MemberMetadata(after.member_id, after))
        return is_changed

    def take_regex(self, before: Member, after: Member) -> tuple[bool, bool]:
        """Handle a change of the member's regular expression; returns (it changed, its topics are known)."""
        old, new = before.topic_regex, after.topic_regex
        is_changed = old != new
        is_known = False
        is_first = False
        if is_changed:
            if old and self.group.regexes[old] == 1:
                self.records.append(v.RegexTopics(old, None))
            if new:
                is_first = not self.group.regexes[new]
                is_known = not is_first and new in self.group.resolved_regexes
                if is_first:
                    _check_regex(new)
            else:
                is_known = bool(old)
        self._maybe_match(before, after, is_first)
        return is_changed, is_known

    def _maybe_match(self, before: Member, after: Member, is_first: bool) -> None:
        """Request matching when it is due: there is a new expression, a new topic, or the last match is old."""
        group, environment = self.group, self.environment
        if not (is_first or group.regexes) or group.is_resolving:
            return
        resolved = group.resolved_regexes.values()
        now_ms = environment.now_ms
        last_ms = max((one.timestamp_ms for one in resolved if one.timestamp_ms <= now_ms), default=None)  # rule 1
        if last_ms is not None and now_ms <= last_ms + REGEX_REFRESH_MIN_MS:
            return
        regexes = Counter(group.regexes)
        if before.topic_regex:
            regexes[before.topic_regex] -= 1
        if after.topic_regex:
            regexes[after.topic_regex] += 1
        wanted = frozenset(+regexes)
        is_due = (
            is_first
            or len(wanted) != len(group.resolved_regexes)
            or max((one.version for one in resolved), default=0) < environment.image.creation
            or last_ms is None
            or now_ms > last_ms + environment.settings.regex_refresh_ms
        )
        if is_due:
            self.regexes_wanted = wanted

    def raise_epoch(self, before: Member, after: Member, must_rise: bool) -> int:
        """Raise the group epoch if it must rise, or if the subscribed topics have changed; returns it."""
        group, image = self.group, self.environment.image
        if not must_rise and group.image_compared == image.number:
            return group.epoch
        names = Counter(group.topic_names)
        names.subtract(before.topic_names)
        names.update(after.topic_names)
        old_regex = before.topic_regex
        if old_regex and old_regex != after.topic_regex and group.regexes[old_regex] == 1:
            names.subtract(group.resolved_regexes.get(old_regex, v.NO_TOPICS).topics)
        epoch = self.epoch_after(+names, must_rise)
        if group.has_partition_metadata_record:
            self.records.append(v.PartitionMetadata(exists=False))
        return epoch

    def epoch_after(self, topic_names: Iterable[str], must_rise: bool) -> int:
        """Raise the group epoch if it must rise, or if the metadata of these topics has changed; returns it."""
        group = self.group
        self.has_compared_topics = True
        digest = metadata_hash(topic_names, self.environment.image.snapshot)
        if not must_rise and digest == group.metadata_hash:
            return group.epoch
        if group.epoch >= EPOCH_MAX:  # only another program's record can hold it
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The epoch of group {group.group_id} cannot go up further.")
        epoch = group.epoch + 1
        self.is_rebalance = True
        self.records.append(v.GroupEpoch(epoch, digest))
        log.info("Consumer group %s is in epoch %d", group.group_id, epoch)
        return epoch

    # 2. The target assignment

    def assign(self, epoch: int, member: Member) -> tuple[int, Assignment]:
        """Run the assignor if the target is older than `epoch`; returns the target's epoch and the member's part."""
        group, environment = self.group, self.environment
        if group.assignment_epoch >= epoch or not self._may_assign():
            return group.assignment_epoch, group.target.get(self.replaced_id or member.member_id, NOTHING)
        members = {**group.members, member.member_id: member}
        if self.replaced_id not in (None, member.member_id):
            del members[self.replaced_id]
        default = environment.settings.assignors[0]
        name = group.preferred_assignor(members.values(), default)
        if name not in ASSIGNORS:  # accepted by a broker that had it
            name = default
        specs, counts = self._specs(members.values())
        target = ASSIGNORS[name](specs, counts)
        for member_id, assignment in target.items():
            if assignment != group.target.get(member_id):
                self.records.append(v.TargetAssignment(member_id, assignment))
        self.records.append(v.TargetEpoch(epoch, environment.now_ms))
        log.info("Assigned consumer group %s for epoch %d with %s", group.group_id, epoch, name)
        return epoch, target[member.member_id]

    def _may_assign(self) -> bool:
        now_ms, last_ms = self.environment.now_ms, self.group.assignment_timestamp_ms
        rests = last_ms <= now_ms < last_ms + self.environment.times.assignment_interval_ms  # rule 1
        return last_ms == v.NO_TIMESTAMP or not rests

    def _specs(self, members: Iterable[Member]) -> tuple[dict[str, MemberSpec], dict[bytes, int]]:
        """Return the assignor's input: every member, and the partition count of each of their topics."""
        specs: dict[str, MemberSpec] = {}
        known: dict[tuple[frozenset[str], str | None], frozenset[bytes]] = {}
        for member in members:
            subscription = (member.topic_names, member.topic_regex)
            if subscription not in known:
                known[subscription] = self._topic_ids(member)
            before_id = self.replaced_id if member.member_id not in self.group.members else None
            held = self.group.target.get(before_id or member.member_id, NOTHING)
            specs[member.member_id] = MemberSpec(known[subscription], held, member.instance_id)
        snapshot = self.environment.image.snapshot
        counts = {
            topic_id: len(snapshot.topics[snapshot.topic_names[topic_id]].partitions)
            for topic_ids in known.values()
            for topic_id in topic_ids
        }
        return specs, counts

    def _topic_ids(self, member: Member) -> frozenset[bytes]:
        """Return the existing topics that the member is subscribed to."""
        names = member.topic_names
        if member.topic_regex:
            names = names | self.group.resolved_regexes.get(member.topic_regex, v.NO_TOPICS).topics
        snapshot = self.environment.image.snapshot
        found = (snapshot.topic_id(name) for name in names)
        return frozenset(topic_id for topic_id in found if topic_id in snapshot.topic_names)

    # 3. The member's step

    def reconcile(
        self, member: Member, target_epoch: int, target: Assignment, owned: Assignment | None, *, is_changed: bool
    ) -> Member:
        """Take the member's next step, if there is one, and start or stop the timer of its revocation."""
        if not is_changed and member.is_reconciled_to(target_epoch):
            return member
        itself = (member.member_id, self.replaced_id or member.member_id)
        aim = Aim(
            target_epoch, target, self._topic_ids(member), is_changed,
            lambda topic_id, partition: self.group.is_free(topic_id, partition, *itself), owned,
        )  # fmt: skip
        after = reconcile(member, aim)
        if after == member:
            return member
        self.records.append(v.CurrentAssignment(after.member_id, after))
        if not after.uses_classic_protocol:  # classic members have timers for join and sync instead
            self.watch_revocation(after)
        return after

    def watch_revocation(self, member: Member) -> None:
        """Start the timer of the member's revocation, or stop it if the member has nothing to revoke."""
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            timeout_ms = member.rebalance_timeout_ms
            event = v.RevocationExpired(member.member_id, member.epoch, timeout_ms)
            self.timeouts.append(Timeout("rebalance", member.member_id, timeout_ms, event))
        else:
            self.timeouts.append(Timeout("rebalance", member.member_id))

    def start_session(self, member_id: str, timeout_ms: int) -> None:
        """Start the member's session again."""
        expired = v.MemberExpired(member_id, "its session timed out")
        self.timeouts.append(Timeout("session", member_id, timeout_ms, expired))

    # Leaving members

    def fence(self, members: Sequence[Member]) -> None:
        """Remove members; the group epoch rises, so that the others get their partitions."""
        if not members:
            return
        group = self.group
        leaving = {member.member_id for member in members}
        if may_downgrade(group, leaving, self.environment.settings):
            self.downgrade(leaving, must_rebalance=True)
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
                self.records.append(v.RegexTopics(regex, None))
                names.subtract(group.resolved_regexes.get(regex, v.NO_TOPICS).topics)
        self.epoch_after(+names, must_rise=True)
        self.is_rebalance = False

    def downgrade(self, leaving: Set[str], *, must_rebalance: bool, joining: Member | None = None) -> None:
        """Turn the group into a classic one of the remaining members and, if given, the joining one."""
        log.info("Consumer group %s becomes a classic group", self.group.group_id)
        self.downgraded = to_classic_group(
            self.group, leaving, self.environment.image.snapshot, self.environment.now_ms, joining, self.replaced_id
        )
        self.must_rebalance = must_rebalance
        self.records = self.group.tombstones()
        self.timeouts = []


def _check_regex(regex: str) -> None:
    try:
        check_pattern(regex)
    except PatternError as error:
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from None
