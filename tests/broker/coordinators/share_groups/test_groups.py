"""Share groups in a shard: answers, failover, sessions, groups of other kinds, listing, deletion.

Tests `coordinators/share_groups/state_changes.py` and `coordinators/share_groups/context.py`, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.consumer.metadata_watch import UNKNOWN_TOPICS_MAX
from barnabas.broker.coordinators.consumer.values import Heartbeat as ConsumerHeartbeat
from barnabas.broker.coordinators.groups.group_offsets import Committer, OffsetCommit
from barnabas.broker.coordinators.offsets.store import CommittedOffset
from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_groups.state_changes import TopicOutcome
from barnabas.broker.coordinators.share_groups.values import (
    GroupEpoch,
    Heartbeat,
    HeartbeatResult,
    SharePartitions,
    StatePartitions,
    TopicPart,
)
from barnabas.broker.coordinators.share_state.values import SharePartitionKey
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot

T, U = b"t" * 16, b"u" * 16
NAMES = frozenset("t")
BOTH = {T: TopicPart("t", frozenset({0, 1}))}


def unwanted(_error: ErrorCode) -> None:
    """An answer that does not matter."""


class ShareWorld(World):
    """A coordinator with share coordinators behind it."""

    def beat(self, member_id: str = "a", epoch: int | None = None, **fields: Any) -> Any:
        """Send a heartbeat; returns the answer, None while there is none, or the error."""
        if epoch is None:
            epoch = self.group.members[member_id].epoch
        answers: list[HeartbeatResult | ApiError] = []
        request = Heartbeat(member_id, epoch, client_id="c", client_host="/h", **fields)
        self.change(lambda shares: shares.heartbeat("g", request, answers.append), answers)
        if not answers:
            return None
        answer = answers[0]
        return answer.code if isinstance(answer, ApiError) else answer

    def join(self, member_id: str = "a", names: str = "t") -> Any:
        return self.beat(member_id, 0, topic_names=frozenset(names))

    def alter(self, **offsets: Mapping[int, int]) -> Any:
        answers: list[Sequence[TopicOutcome] | ApiError] = []
        self.change(lambda shares: shares.changes.alter_offsets("g", offsets, answers.append), answers)
        return self._outcome(answers)

    def delete_offsets(self, *names: str) -> Any:
        answers: list[Sequence[TopicOutcome] | ApiError] = []
        self.change(lambda shares: shares.changes.delete_offsets("g", names, answers.append), answers)
        return self._outcome(answers)

    def change(self, change: Any, answers: list[Any]) -> None:
        shard = self.coordinator.shard_of("g")
        shard.change_shares(change, lambda error: answers.append(ApiError(error)))

    @staticmethod
    def _outcome(answers: list[Any]) -> Any:
        if not answers:
            return None
        return answers[0].code if isinstance(answers[0], ApiError) else answers[0]

    def delete_group(self, *group_ids: str) -> Any:
        answers: list[Mapping[str, ErrorCode]] = []
        self.coordinator.delete_groups(group_ids or ("g",), answers.append)
        return answers[0] if answers else None

    @property
    def group(self) -> ShareGroup:
        return self.coordinator.shard_of("g").share_groups["g"]

    def stable(self) -> ShareWorld:
        """One member has the partitions of `t`."""
        self.join()
        self.beat()
        return self


@pytest.fixture
def world() -> ShareWorld:
    return ShareWorld()


class TestHeartbeat:
    def test_a_member_gets_its_partitions_once_they_are_initialised(self, world: ShareWorld) -> None:
        assert world.join() == HeartbeatResult("a", 2, 5000, {})
        assert world.persister.asked == [("initialize", "t", 0, 2, -1), ("initialize", "t", 1, 2, -1)]
        assert world.group.partitions == SharePartitions(initialized=BOTH)
        assert world.beat() == HeartbeatResult("a", 3, 5000, {T: {0, 1}})
        assert world.beat() == HeartbeatResult("a", 3, 5000, None)
        assert world.registry.sensor(catalogue.SHARE_GROUP_REBALANCE) is not None

    def test_the_share_coordinators_are_asked_when_the_records_are_committed(self, world: ShareWorld) -> None:
        world.replicas.holds = True
        assert world.join() is None
        assert world.persister.asked == []
        world.replicas.release()
        assert len(world.persister.asked) == 2

    def test_the_answer_does_not_wait_for_the_share_coordinators(self, world: ShareWorld) -> None:
        world.persister.holds = True
        assert world.join() == HeartbeatResult("a", 2, 5000, {})
        assert world.beat().assigned is None
        assert len(world.persister.asked) == 2, "they are asked once"
        world.persister.release()
        assert world.beat().assigned == {T: {0, 1}}

    def test_partitions_that_could_not_be_initialised_are_tried_again(self, world: ShareWorld) -> None:
        world.persister.refuses = {1: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        world.join()
        assert world.group.partitions == SharePartitions(initialized={T: TopicPart("t", frozenset({0}))})
        world.persister.refuses = {}
        assert world.beat().assigned == {T: {0}}
        assert world.persister.asked[2:] == [("initialize", "t", 1, 3, -1)]
        assert world.beat().assigned == {T: {0, 1}}

    def test_state_of_a_newer_epoch_is_caught_up_with(self, world: ShareWorld) -> None:
        """The group's records were lost, and those of its share partitions were not."""
        world.persister.states[SharePartitionKey("g", T, 1)] = (5, 40)
        world.join()
        assert world.group.partitions == SharePartitions(
            {T: TopicPart("t", frozenset({1}))}, {T: TopicPart("t", frozenset({0}))}
        )
        for _ in range(4):
            world.beat()
        assert world.group.partitions == SharePartitions(initialized=BOTH)
        assert world.group.members["a"].assigned == {T: {0, 1}}
        assert world.persister.states[SharePartitionKey("g", T, 1)] == (5, -1)

    def test_a_group_is_not_subscribed_to_countless_topics_that_do_not_exist(self, world: ShareWorld) -> None:
        """With 2 million names a heartbeat with another rack took 5 seconds under the shard's lock."""
        topics = len(world.cache.snapshot.topics)
        names = [f"none{number}" for number in range(UNKNOWN_TOPICS_MAX + topics)]
        assert world.beat("a", 0, topic_names=frozenset(names)).member_id == "a"
        assert world.join("b") == ErrorCode.INVALID_REQUEST
        assert world.beat("b", 0, topic_names=frozenset(names[1:])).member_id == "b"
        assert world.beat("a", topic_names=frozenset("t")).member_id == "a"
        assert world.join("c").member_id == "c"

    def test_a_write_that_is_refused_has_not_happened(self, world: ShareWorld) -> None:
        world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert world.join() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.coordinator.shard_of("g").share_groups == {}
        assert world.persister.asked == []
        world.replicas.refuses = ErrorCode.NONE
        assert world.join().epoch == 2

    def test_a_write_that_times_out_is_repeated(self, world: ShareWorld) -> None:
        world.replicas.holds = True
        world.join()
        world.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
        world.replicas.holds = False
        assert world.persister.asked == []
        world.beat()
        assert world.persister.asked == [("initialize", "t", 0, 3, -1), ("initialize", "t", 1, 3, -1)]

    def test_the_outcome_that_cannot_be_written_is_asked_for_again(self, world: ShareWorld) -> None:
        world.persister.holds = True
        world.join()
        world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        world.persister.release()
        world.replicas.refuses = ErrorCode.NONE
        assert world.group.partitions == SharePartitions(initializing=BOTH)
        world.beat()
        world.persister.release()
        assert world.beat().assigned == {T: {0, 1}}

    def test_only_a_member_that_joins_makes_a_group(self, world: ShareWorld) -> None:
        assert world.beat("a", 3) == ErrorCode.GROUP_ID_NOT_FOUND
        assert world.beat("a", -1) == ErrorCode.GROUP_ID_NOT_FOUND

    def test_silence_removes_a_member(self, world: ShareWorld) -> None:
        world.stable()
        world.advance_ms(44_000)
        world.beat()
        world.advance_ms(44_000)
        assert world.group.members.keys() == {"a"}
        world.advance_ms(2000)
        assert world.group.members == {}
        assert world.beat("a", 3) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_removal_that_cannot_be_written_is_tried_again(self, world: ShareWorld) -> None:
        world.stable()
        world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        world.advance_ms(46_000)
        assert world.group.members.keys() == {"a"}
        world.replicas.refuses = ErrorCode.NONE
        world.advance_ms(501)
        assert world.group.members == {}


class TestFailover:
    def test_the_group_is_loaded(self, world: ShareWorld) -> None:
        world.stable()
        before = world.group
        world.fail_over()
        group = world.group
        assert group is not before
        assert (group.members, group.target, group.partitions) == (before.members, before.target, before.partitions)
        assert world.beat() == HeartbeatResult("a", 3, 5000, None)
        world.advance_ms(46_000)
        assert world.group.members == {}

    def test_what_the_former_coordinator_began_is_repeated_and_it_is_fenced(self, world: ShareWorld) -> None:
        world.persister.holds = True
        world.join()
        late, world.persister.waiting = world.persister.waiting, []
        world.fail_over()
        world.beat("a", 2)
        world.persister.release()
        assert world.persister.states[SharePartitionKey("g", T, 0)] == (3, -1)
        for request in late:
            request()
        assert world.persister.states[SharePartitionKey("g", T, 0)] == (3, -1)
        assert world.beat("a", 3).assigned == {T: {0, 1}}

    def test_answers_that_come_after_the_end_change_nothing(self, world: ShareWorld) -> None:
        world.persister.holds = True
        world.join()
        log = world.log_of("g")
        written = log.log_end_offset
        world.coordinator.shutdown()
        world.persister.release()
        assert log.log_end_offset == written

    def test_a_topic_that_was_replaced_meanwhile_is_forgotten(self, world: ShareWorld) -> None:
        world.stable()
        topics = snapshot({"t": 1, "__consumer_offsets": 2})
        topics.topics["t"] = topics.topics["t"]._replace(id=b"T" * 16)
        topics.topic_names.pop(T)
        topics.topic_names[b"T" * 16] = "t"
        world.cache.snapshot = topics
        world.fail_over()
        assert world.group.partitions == SharePartitions()

    @pytest.mark.parametrize("first", ["share", "consumer", "classic"])
    def test_the_last_kind_that_the_log_names_counts(self, world: ShareWorld, first: str) -> None:
        """A log that other programs wrote may name groups of several kinds."""
        records = []
        for kind in ("share", "consumer", "classic"):
            other = ShareWorld()
            _make(other, kind)
            records.append((kind != first, kind, other.log_of("g").batches))
        for _, _, batches in sorted(records, key=lambda entry: entry[0], reverse=True):
            for batch in batches:
                world.log_of("g").append(batch)
        world.log_of("g").high_watermark = world.log_of("g").log_end_offset
        world.fail_over()
        shard = world.coordinator.shard_of("g")
        kinds = {"share": shard.share_groups, "consumer": shard.consumer_groups, "classic": shard.groups}
        assert [kind for kind, groups in kinds.items() if "g" in groups] == [first]
        shard.invariants()


def _make(world: ShareWorld, kind: str) -> None:
    if kind == "share":
        world.join()
    elif kind == "consumer":
        request = ConsumerHeartbeat("m", 0, rebalance_timeout_ms=9, topic_names=NAMES, owned={})
        world.coordinator.consumer_heartbeat("g", request, lambda _answer: None)
    else:
        world.coordinator.join(
            "g", ev.Join("", "m", None, "c", "/h", 9000, 9000, "consumer", (("range", b""),), 0, None, lambda _a: None)
        )


class TestOtherKinds:
    def test_requests_of_other_kinds_are_refused(self, world: ShareWorld) -> None:
        world.stable()
        coordinator = world.coordinator
        answers: list[Any] = []
        coordinator.consumer_heartbeat("g", ConsumerHeartbeat("m", 0, topic_names=NAMES), answers.append)
        assert answers.pop().code == ErrorCode.GROUP_ID_NOT_FOUND
        join = ev.Join("", "m", None, "c", "/h", 9000, 9000, "consumer", (("range", b""),), 3, None, answers.append)
        coordinator.join("g", join)
        assert answers.pop() == ev.JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        assert coordinator.heartbeat("g", "a", None, 1) == ErrorCode.UNKNOWN_MEMBER_ID
        coordinator.commit_offsets(
            Committer("g", "", None, -1, 9), [OffsetCommit("t", 0, CommittedOffset(1, -1, "", 0))], answers.append
        )
        assert answers.pop() == ErrorCode.GROUP_ID_NOT_FOUND
        coordinator.delete_offsets("g", {"t": {0}}, answers.append)
        assert answers.pop().error == ErrorCode.GROUP_ID_NOT_FOUND
        assert coordinator.describe("g", lambda group: group)[0] == ErrorCode.GROUP_ID_NOT_FOUND
        coordinator.invariants()

    @pytest.mark.parametrize("kind", ["consumer", "classic"])
    def test_groups_of_other_kinds_are_no_share_groups(self, world: ShareWorld, kind: str) -> None:
        _make(world, kind)
        assert world.join() == ErrorCode.GROUP_ID_NOT_FOUND
        assert world.alter(t={0: 5}) == ErrorCode.GROUP_ID_NOT_FOUND
        assert world.delete_offsets("t") == ErrorCode.GROUP_ID_NOT_FOUND
        world.coordinator.invariants()

    def test_share_groups_are_listed_and_counted(self, world: ShareWorld) -> None:
        world.stable()
        (listed,) = world.coordinator.list_groups(["stable"])[1]
        assert listed == ("g", "share", "Stable", "share")
        assert world.coordinator.list_groups(["empty"])[1] == []
        assert world.registry_value(catalogue.NUM_GROUPS) == 1

    def test_an_empty_group_does_not_expire(self, world: ShareWorld) -> None:
        world.stable()
        world.beat("a", -1)
        world.coordinator.expire()
        assert world.group.state.value == "Empty"


class TestTopics:
    def test_many_groups_forget_a_deleted_topic(self, world: ShareWorld) -> None:
        """The log refuses a batch that is too large, so the records of all do not go into one."""
        world.cache.snapshot = snapshot({"t": 3000, "u": 1})
        shard = world.coordinator.shard_of("g")
        ids = [f"g{n}" for n in range(400) if world.coordinator.shard_of(f"g{n}") is shard][:100]
        known = {T: TopicPart("t", frozenset(range(3000))), U: TopicPart("u", frozenset({0}))}
        found = [GroupEpoch(1), StatePartitions(SharePartitions(initialized=known))]
        for group_id in ids:
            group = ShareGroup(group_id)
            shard.change_shares(lambda shares, one=group: shares.append([(one, found)], unwanted), unwanted)
        world.cache.snapshot = snapshot({"t": 3000})
        world.coordinator.on_metadata_update({"u": U})
        world.coordinator.run_pending_jobs()
        assert [group.partitions.initialized.keys() for group in shard.share_groups.values()] == [{T}] * len(ids)

    def test_a_deleted_topic_is_forgotten(self, world: ShareWorld) -> None:
        world.stable()
        world.cache.snapshot = snapshot({"u": 1, "__consumer_offsets": 2})
        world.coordinator.on_metadata_update({"t": T})
        world.coordinator.run_pending_jobs()
        assert world.group.partitions == SharePartitions()
        assert world.beat().assigned == {}

    def test_a_topic_that_grows_is_initialised_further(self, world: ShareWorld) -> None:
        world.stable()
        world.cache.snapshot = snapshot({"t": 3, "__consumer_offsets": 2})
        world.beat()
        assert world.persister.asked[2:] == [("initialize", "t", 2, 4, -1)]
        assert world.beat().assigned == {T: {0, 1, 2}}


class TestAlter:
    def test_offsets_of_a_group_that_does_not_exist_make_it(self, world: ShareWorld) -> None:
        assert world.alter(t={1: 7}) == [TopicOutcome("t", T, errors={1: ErrorCode.NONE})]
        assert world.persister.asked == [("initialize", "t", 1, 2, 7)]
        assert world.group.partitions == SharePartitions(initialized={T: TopicPart("t", frozenset({1}))})
        world.fail_over()
        assert world.group.state.value == "Empty"
        world.join()
        assert world.persister.asked[1:] == [("initialize", "t", 0, 3, -1)]

    def test_what_cannot_be_altered_is_refused_alone(self, world: ShareWorld) -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        outcome = world.alter(t={0: 7, 2: 7, -1: 7, 1: -2}, w={0: 7})
        assert outcome == [
            TopicOutcome("t", T, errors={0: ErrorCode.NONE, 2: unknown, -1: unknown, 1: ErrorCode.INVALID_REQUEST}),
            TopicOutcome("w", errors={0: unknown}),
        ]
        assert world.persister.asked == [("initialize", "t", 0, 2, 7)]
        assert world.alter(w={0: 7}) == [TopicOutcome("w", errors={0: unknown})]

    def test_members_forbid_it(self, world: ShareWorld) -> None:
        world.stable()
        assert world.alter(t={0: 7}) == ErrorCode.NON_EMPTY_GROUP
        world.beat("a", -1)
        assert world.alter(t={0: 7}) == [TopicOutcome("t", T, errors={0: ErrorCode.NONE})]
        assert world.persister.states[SharePartitionKey("g", T, 0)] == (5, 7)
        assert world.alter(t={0: 3}) == [TopicOutcome("t", T, errors={0: ErrorCode.NONE})]
        assert world.persister.states[SharePartitionKey("g", T, 0)] == (6, 3)
        assert world.group.partitions == SharePartitions(initialized=BOTH)

    def test_errors_of_share_coordinators_are_those_of_partitions(self, world: ShareWorld) -> None:
        world.persister.refuses = {1: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        outcome = world.alter(t={0: 7, 1: 7})
        assert outcome == [TopicOutcome("t", T, errors={0: ErrorCode.NONE, 1: ErrorCode.COORDINATOR_NOT_AVAILABLE})]
        assert world.group.partitions == SharePartitions(initialized={T: TopicPart("t", frozenset({0}))})

    def test_it_is_answered_when_the_outcome_is_committed(self, world: ShareWorld) -> None:
        world.persister.holds = True
        answers: list[Any] = []
        world.change(lambda shares: shares.changes.alter_offsets("g", {"t": {0: 7}}, answers.append), answers)
        world.replicas.holds = True
        world.persister.release()
        assert answers == []
        world.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
        assert answers == [[TopicOutcome("t", T, errors={0: ErrorCode.COORDINATOR_NOT_AVAILABLE})]]

    def test_a_write_that_is_refused_is_answered_with_the_error(self, world: ShareWorld) -> None:
        world.replicas.refuses = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert world.alter(t={0: 7}) == [TopicOutcome("t", T, errors={0: ErrorCode.NOT_COORDINATOR})]
        assert world.persister.asked == []

    def test_of_two_requests_the_later_one_decides(self, world: ShareWorld) -> None:
        """The first one fails late; the partition must stay initialised at the second one's offset."""
        world.persister.holds = True
        answers: list[Any] = []
        for offset in (5, 9):
            change = partial(_alter, offset, answers)
            world.change(change, answers)
        first, second = world.persister.waiting
        world.persister.waiting = []
        world.persister.refuses = {0: ErrorCode.COORDINATOR_NOT_AVAILABLE}
        first()
        world.persister.refuses = {}
        second()
        assert [outcome[0].errors[0] for outcome in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NONE]
        assert world.group.partitions == SharePartitions(initialized={T: TopicPart("t", frozenset({0}))})
        assert world.persister.states[SharePartitionKey("g", T, 0)] == (3, 9)

    def test_an_overtaken_one_fails_with_the_write_that_it_waits_for(self, world: ShareWorld) -> None:
        world.persister.holds = True
        answers: list[Any] = []
        world.change(partial(_alter, 5, answers), answers)
        world.replicas.holds = True
        world.change(partial(_alter, 9, answers), answers)
        world.persister.release()
        world.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
        assert [outcome[0].errors[0] for outcome in answers] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2

    def test_an_epoch_that_cannot_rise_is_an_error(self, world: ShareWorld) -> None:
        world.alter(t={0: 5})
        world.group.replay(GroupEpoch(2**31 - 1))
        assert world.alter(t={0: 5}) == ErrorCode.UNKNOWN_SERVER_ERROR


def _alter(offset: int, answers: list[Any], shares: Any) -> None:
    shares.changes.alter_offsets("g", {"t": {0: offset}}, answers.append)


class TestDeleteOffsets:
    def test_the_state_of_a_topic_is_deleted(self, world: ShareWorld) -> None:
        world.stable()
        assert world.delete_offsets("t") == ErrorCode.NON_EMPTY_GROUP
        world.beat("a", -1)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert world.delete_offsets("t", "u", "w") == [
            TopicOutcome("t", T),
            TopicOutcome("u", error=unknown, message="There is no offset information to delete."),
            TopicOutcome("w", error=unknown, message=unknown.message),
        ]
        assert world.persister.states == {}
        assert world.group.partitions == SharePartitions()

    def test_an_unknown_group_is_an_error(self, world: ShareWorld) -> None:
        assert world.delete_offsets("t") == ErrorCode.GROUP_ID_NOT_FOUND

    def test_a_deletion_that_failed_can_be_repeated(self, world: ShareWorld) -> None:
        world.stable()
        world.beat("a", -1)
        error = world.persister.refuses[1] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.delete_offsets("t") == [TopicOutcome("t", T, error, error.message)]
        assert world.group.partitions == SharePartitions(deleting={T: "t"})
        world.fail_over()
        world.persister.refuses = {}
        assert world.delete_offsets("t") == [TopicOutcome("t", T)]
        assert world.persister.states == {}
        assert world.group.partitions == SharePartitions()

    def test_a_late_deletion_of_the_former_coordinator_leaves_what_the_next_one_initialised(
        self, world: ShareWorld
    ) -> None:
        world.stable()
        world.beat("a", -1)
        world.persister.holds = True
        assert world.delete_offsets("t") is None
        late, world.persister.waiting = world.persister.waiting, []
        world.persister.holds = False
        world.fail_over()
        world.join()
        assert world.group.partitions == SharePartitions(initialized=BOTH)
        for run in late:
            run()
        assert world.persister.states.keys() == {SharePartitionKey("g", T, 0), SharePartitionKey("g", T, 1)}

    def test_a_member_that_comes_meanwhile_gets_fresh_state(self, world: ShareWorld) -> None:
        world.stable()
        world.beat("a", -1)
        world.persister.holds = True
        assert world.delete_offsets("t") is None
        world.join()
        world.persister.release()
        assert world.group.partitions == SharePartitions(initialized=BOTH)
        assert world.persister.states.keys() == {SharePartitionKey("g", T, 0), SharePartitionKey("g", T, 1)}


class TestDeleteGroup:
    def test_the_group_goes_with_its_state(self, world: ShareWorld) -> None:
        world.stable()
        assert world.delete_group() == {"g": ErrorCode.NON_EMPTY_GROUP}
        world.beat("a", -1)
        assert world.delete_group("g", "h") == {"g": ErrorCode.NONE, "h": ErrorCode.GROUP_ID_NOT_FOUND}
        assert world.persister.states == {}
        assert world.coordinator.shard_of("g").share_groups == {}
        world.fail_over()
        assert world.coordinator.shard_of("g").share_groups == {}

    def test_the_group_stays_until_its_state_is_deleted(self, world: ShareWorld) -> None:
        world.stable()
        world.beat("a", -1)
        error = world.persister.refuses[0] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert world.delete_group() == {"g": error}
        assert world.group.partitions == SharePartitions(deleting={T: "t"})
        world.persister.refuses = {}
        assert world.delete_group() == {"g": ErrorCode.NONE}
        assert world.coordinator.shard_of("g").share_groups == {}

    def test_a_topic_that_vanished_unseen_keeps_no_group(self, world: ShareWorld) -> None:
        """It was deleted while no coordinator had the group, so no push named it as deleted."""
        world.stable()
        world.beat("a", -1)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.persister.refuses = dict.fromkeys((0, 1), unknown)
        world.cache.snapshot = snapshot({"u": 1})
        world.fail_over()
        assert world.group.partitions == SharePartitions(initialized=BOTH)
        assert world.delete_group() == {"g": ErrorCode.NONE}
        assert world.coordinator.shard_of("g").share_groups == {}

    def test_a_share_coordinator_that_does_not_know_a_topic_yet_keeps_the_group(self, world: ShareWorld) -> None:
        world.stable()
        world.beat("a", -1)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        world.persister.refuses = dict.fromkeys((0, 1), unknown)
        assert world.delete_group() == {"g": unknown}
        assert world.group.partitions == SharePartitions(deleting={T: "t"})

    def test_a_group_without_state_needs_no_share_coordinator(self, world: ShareWorld) -> None:
        world.join("a", "w")
        world.beat("a", -1)
        assert world.delete_group() == {"g": ErrorCode.NONE}
        assert world.persister.asked == []

    def test_members_that_come_meanwhile_keep_the_group(self, world: ShareWorld) -> None:
        world.stable()
        world.beat("a", -1)
        world.persister.holds = True
        answers: list[Any] = []
        world.coordinator.delete_groups(["g"], answers.append)
        world.join()
        world.beat("a", -1)
        world.persister.release()
        assert answers == [{"g": ErrorCode.NON_EMPTY_GROUP}]
        assert world.group.partitions == SharePartitions(initialized=BOTH)

    def test_a_group_whose_state_came_back_is_not_removed(self, world: ShareWorld) -> None:
        """An administrator alters it while the removal waits for the write of another group."""
        world.stable()
        world.beat("a", -1)
        world.persister.holds = True
        answers: list[Any] = []
        world.coordinator.delete_groups(["g"], answers.append)
        world.replicas.holds = True
        request = Heartbeat("m", 0, topic_names=frozenset("w"))
        world.change(lambda shares: shares.heartbeat("other", request, lambda _answer: None), answers)
        world.persister.release()
        world.alter(t={0: 1})
        assert answers == []
        world.replicas.release()
        assert answers == [{"g": ErrorCode.NON_EMPTY_GROUP}]
        assert "g" in world.coordinator.shard_of("g").share_groups

    def test_a_shard_that_ends_meanwhile_answers(self, world: ShareWorld) -> None:
        world.stable()
        world.beat("a", -1)
        world.persister.holds = True
        answers: list[Any] = []
        world.coordinator.delete_groups(["g"], answers.append)
        world.coordinator.shutdown()
        world.persister.release()
        assert answers == [{"g": ErrorCode.NOT_COORDINATOR}]


def test_a_shard_that_is_not_led_here_refuses() -> None:
    world = ShareWorld(leads=False)
    with pytest.raises(ApiError) as refusal:
        world.coordinator.shard_of("g")
    assert refusal.value.code == ErrorCode.NOT_COORDINATOR
    with pytest.raises(ApiError) as refusal:
        world.coordinator.shard_of("")
    assert refusal.value.code == ErrorCode.INVALID_GROUP_ID
