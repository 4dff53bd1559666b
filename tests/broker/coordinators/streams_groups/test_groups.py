"""Streams groups in a shard: answers, failover, timers, offsets, groups of other kinds, listing, deletion.

Tests `coordinators/streams_groups/context.py` and `coordinators/streams_groups/requests.py`, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.consumer.values import Heartbeat as ConsumerHeartbeat
from barnabas.broker.coordinators.groups.group_offsets import Committer, FetchedOffsets, OffsetCommit, OffsetQuery
from barnabas.broker.coordinators.offsets.store import CommittedOffset
from barnabas.broker.coordinators.share_groups.values import Heartbeat as ShareHeartbeat
from barnabas.broker.coordinators.streams_groups import turn
from barnabas.broker.coordinators.streams_groups.assignment.target import assign_tasks
from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.broker.coordinators.streams_groups.requests import StreamsGroupRequests
from barnabas.broker.coordinators.streams_groups.values import (
    Endpoint,
    GroupState,
    Heartbeat,
    HeartbeatResult,
    StatusCode,
    Tasks,
)
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.broker.coordinators.fake_log import World, snapshot
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology

TOPOLOGY = topology(subtopology("0", "t"))
NOTHING = Tasks()
BOTH = Tasks({"0": frozenset({0, 1})})
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


class StreamsWorld(World):
    """A coordinator with a streams group."""

    def beat(self, member_id: str = "a", epoch: int | None = None, **fields: Any) -> Any:
        """Send a heartbeat; returns the answer, None while there is none, or the error."""
        if epoch is None:
            member = self.group.members[member_id]
            epoch = member.epoch
            fields = {"owned": member.assigned.without_epochs(), **fields}
        answers: list[HeartbeatResult | ApiError] = []
        request = Heartbeat(member_id, epoch, client_id="c", client_host="/h", **fields)
        requests = StreamsGroupRequests(self.config, self.coordinator, self.cache)  # type: ignore[arg-type]
        requests.heartbeat("g", request, answers.append)
        if not answers:
            return None
        return answers[0].code if isinstance(answers[0], ApiError) else answers[0]

    def join(self, member_id: str = "a", **fields: Any) -> Any:
        given = {"topology": TOPOLOGY, "rebalance_timeout_ms": 60_000, "owned": NOTHING, "process_id": member_id}
        return self.beat(member_id, 0, **{**given, **fields})

    def settle(self) -> None:
        for _ in range(6):
            for member_id in list(self.group.members):
                self.beat(member_id)

    def classic_join(self, member_id: str = "") -> ev.JoinResult | None:
        answers: list[ev.JoinResult] = []
        protocols = (("range", b""),)
        join = ev.Join(
            member_id, "classic-1", None, "c", "/h", 10_000, 10_000, "consumer", protocols, 3, None, answers.append
        )
        self.coordinator.join("g", join)
        return answers[0] if answers else None

    def commit(
        self, member_id: str = "", epoch: int = -1, version: int = 9, topic: str = "t", **kind: Any
    ) -> ErrorCode:
        answers: list[ErrorCode] = []
        who = Committer("g", member_id, None, epoch, version)
        what = [OffsetCommit(topic, 0, CommittedOffset(7, 1, "", self.coordinator.now_ms))]
        if kind:
            self.coordinator.commit_in_transaction(who, Producer(5, 0), what, None, answers.append)
        else:
            self.coordinator.commit_offsets(who, what, answers.append)
        return answers[0]

    def fetch(self, member_id: str | None = None, epoch: int = -1) -> FetchedOffsets:
        answers: list[FetchedOffsets] = []
        self.coordinator.fetch_offsets(OffsetQuery("g", None, False, member_id, epoch), answers.append)
        return answers[0]

    def delete_group(self) -> ErrorCode:
        answers: list[Mapping[str, ErrorCode]] = []
        self.coordinator.delete_groups(["g"], answers.append)
        return answers[0]["g"]

    @property
    def groups(self) -> dict[str, StreamsGroup]:
        return self.coordinator.shard_of("g").streams_groups

    @property
    def group(self) -> StreamsGroup:
        return self.groups["g"]


@pytest.fixture
def world() -> StreamsWorld:
    return StreamsWorld()


class TestHeartbeat:
    def test_a_member_gets_its_tasks_when_they_are_committed(self, world: StreamsWorld) -> None:
        world.replicas.holds = True
        answers: list[Any] = []
        shard = world.coordinator.shard_of("g")
        request = Heartbeat("a", 0, topology=TOPOLOGY, owned=NOTHING, rebalance_timeout_ms=1)
        shard.streams_heartbeat("g", request, answers.append)
        assert answers == []
        world.replicas.release()
        assert answers == [HeartbeatResult("a", 2, 5000, BOTH)]

    def test_a_write_that_is_refused_changes_nothing(self, world: StreamsWorld) -> None:
        world.replicas.refuses = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert world.join() == ErrorCode.NOT_COORDINATOR
        assert world.groups == {}
        world.replicas.refuses = ErrorCode.NONE
        assert world.join().tasks == BOTH

    def test_an_assignment_that_the_log_refuses_is_not_made_again_with_every_heartbeat(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[int] = []

        def counted(*arguments: Any) -> Any:
            made.append(1)
            return assign_tasks(*arguments)

        monkeypatch.setattr(turn, "assign_tasks", counted)
        world = StreamsWorld(streams_assignment_interval_ms=1000)
        world.join()
        world.advance_ms(1000)
        world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        assert [world.join("b") for _ in range(3)] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
        assert len(made) == 2
        world.replicas.refuses = ErrorCode.NONE
        assert [status.code for status in world.join("b").statuses] == [StatusCode.ASSIGNMENT_DELAYED]
        world.advance_ms(1000)
        world.settle()
        assert (len(made), world.group.state) == (3, GroupState.STABLE)

    def test_a_group_goes_on_with_the_next_coordinator(self, world: StreamsWorld) -> None:
        world.join()
        world.join("b")
        world.settle()
        before = world.group
        world.fail_over()
        after = world.group
        assert after is not before
        assert (after.members, after.target, after.epoch, after.topology) == (
            before.members, before.target, before.epoch, before.topology,
        )  # fmt: skip
        assert world.beat("a") == HeartbeatResult("a", 3, 5000)
        assert after.state is GroupState.STABLE

    def test_the_topics_are_compared_once_for_each_picture_of_the_cluster(self, world: StreamsWorld) -> None:
        world.join()
        configured = world.group.configured
        world.beat()
        assert world.group.configured is configured
        world.cache.snapshot = snapshot({"t": 3, "__consumer_offsets": 2})
        assert world.beat().tasks == Tasks({"0": frozenset({0, 1, 2})})

    def test_a_group_that_is_not_there_has_no_members(self, world: StreamsWorld) -> None:
        assert world.beat("a", 1) == NOT_FOUND
        assert world.beat("a", -1) == NOT_FOUND
        assert world.groups == {}

    def test_a_new_group_reports_no_endpoints_yet(self, world: StreamsWorld) -> None:
        first = world.join(user_endpoint=Endpoint("h", 1))
        assert (first.endpoint_epoch, first.endpoints is None) == (0, False)
        assert (world.group.endpoint_epoch, world.beat().endpoints) == (0, None)

    def test_rebalances_are_counted(self, world: StreamsWorld) -> None:
        sensor = world.registry.sensor(catalogue.STREAMS_GROUP_REBALANCE)
        world.join()
        world.join("b")
        world.beat("b", -1)
        assert sensor.count == 2


class TestTimers:
    def test_a_silent_member_is_removed(self, world: StreamsWorld) -> None:
        world.join()
        world.advance_ms(44_999)
        world.beat()
        world.advance_ms(44_999)
        assert set(world.group.members) == {"a"}
        world.advance_ms(1)
        assert world.group.members == {}

    def test_a_removal_that_cannot_be_written_is_tried_again(self, world: StreamsWorld) -> None:
        world.join()
        world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        world.advance_ms(45_000)
        assert set(world.group.members) == {"a"}
        world.replicas.refuses = ErrorCode.NONE
        world.advance_ms(500)
        assert world.group.members == {}

    def test_a_member_that_does_not_revoke_is_removed(self, world: StreamsWorld) -> None:
        world.join("a", rebalance_timeout_ms=30_000)
        world.join("b")
        owned = world.group.members["a"].assigned.without_epochs()
        world.beat("a")
        world.advance_ms(29_999)
        world.beat("a", 2, owned=owned)
        world.beat("b")
        assert set(world.group.members) == {"a", "b"}
        world.advance_ms(1)
        assert set(world.group.members) == {"b"}
        assert world.beat("b").tasks == BOTH

    def test_members_of_a_loaded_group_get_their_full_session(self, world: StreamsWorld) -> None:
        world.join()
        world.advance_ms(40_000)
        world.fail_over()
        world.advance_ms(44_999)
        assert set(world.group.members) == {"a"}
        world.advance_ms(1)
        assert world.group.members == {}

    def test_the_first_members_are_assigned_after_the_delay(self) -> None:
        world = StreamsWorld(streams_initial_rebalance_delay_ms=3000)
        assert [status.code for status in world.join().statuses] == [StatusCode.ASSIGNMENT_DELAYED]
        world.advance_ms(2999)
        world.join("b")
        assert world.group.target == {}
        world.advance_ms(1)
        assert set(world.group.target) == {"a", "b"}
        world.settle()
        assert world.group.state is GroupState.STABLE

    def test_topics_that_change_during_the_delay_are_noticed_by_the_next_heartbeat(self) -> None:
        world = StreamsWorld(streams_initial_rebalance_delay_ms=3000)
        world.join()
        world.cache.snapshot = snapshot({"t": 3, "__consumer_offsets": 2})
        before = world.group.metadata_hash
        world.advance_ms(3000)
        assert world.group.target == {"a": Tasks({"0": frozenset({0, 1, 2})})}
        assert world.group.metadata_hash == before
        world.beat()
        assert world.group.metadata_hash != before
        world.cache.snapshot = snapshot({"t": 3, "other": 1, "__consumer_offsets": 2})
        world.settle()
        epoch = world.group.epoch
        world.cache.snapshot = snapshot({"t": 3, "__consumer_offsets": 2})
        world.beat()
        assert world.group.epoch == epoch

    def test_a_first_assignment_that_cannot_be_written_comes_with_a_heartbeat(self) -> None:
        world = StreamsWorld(streams_initial_rebalance_delay_ms=3000)
        world.join()
        world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        world.advance_ms(3000)
        world.replicas.refuses = ErrorCode.NONE
        assert world.beat("a", 0, topology=TOPOLOGY).tasks == BOTH

    def test_a_deleted_group_is_assigned_nothing(self) -> None:
        world = StreamsWorld(streams_initial_rebalance_delay_ms=3000)
        world.join()
        world.beat("a", -1)
        assert world.delete_group() == ErrorCode.NONE
        world.advance_ms(3000)
        assert world.groups == {}


class TestOffsets:
    # the committer and the group's members -> plain, in a transaction
    @pytest.mark.parametrize(
        ("member_id", "epoch", "version", "plain", "transactional"),
        [
            ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE),
            ("x", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
            ("a", 3, 9, ErrorCode.NONE, ErrorCode.NONE),
            ("a", 3, 8, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE),
            ("a", 4, 9, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION),
            ("a", 2, 9, ErrorCode.NONE, ErrorCode.NONE),
            ("a", 1, 9, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION),
        ],
    )
    def test_a_member_commits_in_its_epoch(
        self, member_id: str, epoch: int, version: int, plain: ErrorCode, transactional: ErrorCode
    ) -> None:
        world = StreamsWorld()
        world.join()
        world.config.streams_num_standby_replicas = 1  # the next epoch
        world.beat()
        assert world.group.members["a"].epoch == 3
        assert world.commit(member_id, epoch, version) == plain
        assert world.commit(member_id, epoch, version, transactional=True) == transactional

    def test_an_old_epoch_is_no_right_to_topics_of_others(self, world: StreamsWorld) -> None:
        world.join()
        world.config.streams_num_standby_replicas = 1
        world.beat()
        assert world.commit("a", 2, topic="u") == ErrorCode.STALE_MEMBER_EPOCH

    def test_without_members_anybody_commits(self, world: StreamsWorld) -> None:
        world.join()
        world.beat("a", -1)
        assert world.commit() == ErrorCode.NONE
        assert [topic.name for topic in world.fetch().topics] == ["t"]

    def test_a_member_fetches_in_its_epoch(self, world: StreamsWorld) -> None:
        world.join()
        assert world.fetch().error == ErrorCode.NONE
        assert world.fetch("a", 2).error == ErrorCode.NONE
        assert world.fetch("a", 1).error == ErrorCode.STALE_MEMBER_EPOCH
        assert world.fetch("x", 1).error == ErrorCode.UNKNOWN_MEMBER_ID

    def test_offsets_of_source_topics_are_kept_while_there_are_members(self, world: StreamsWorld) -> None:
        world.join()
        assert world.commit("a", 2) == ErrorCode.NONE
        assert world.commit("a", 2, topic="u") == ErrorCode.NONE
        shard = world.coordinator.shard_of("g")
        for _ in range(100):
            world.advance_ms(40_000)
            world.beat()
        assert {tp.topic for tp in shard.offsets.all_partitions("g")} == {"t"}
        world.beat("a", -1)
        world.advance_ms(600_000)
        assert shard.offsets.count == 0
        assert shard.streams_groups == {}

    def test_offsets_of_source_topics_are_not_deleted(self, world: StreamsWorld) -> None:
        world.join()
        world.commit("a", 2)
        answers: list[Any] = []
        world.coordinator.delete_offsets("g", {"t": [0]}, answers.append)
        assert answers[0].errors == {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


class TestOtherKinds:
    def test_an_empty_classic_group_becomes_a_streams_group_and_keeps_its_offsets(self, world: StreamsWorld) -> None:
        assert world.commit() == ErrorCode.NONE
        shard = world.coordinator.shard_of("g")
        assert set(shard.groups) == {"g"}
        assert world.join().tasks == BOTH
        assert (shard.groups, shard.offsets.count) == ({}, 1)
        world.fail_over()
        shard = world.coordinator.shard_of("g")
        assert (set(shard.streams_groups), shard.groups, shard.offsets.count) == ({"g"}, {}, 1)

    def test_a_classic_group_with_members_stays(self, world: StreamsWorld) -> None:
        world.classic_join()
        assert world.join() == NOT_FOUND

    def test_an_empty_streams_group_becomes_a_classic_group_and_keeps_its_offsets(self, world: StreamsWorld) -> None:
        world.join()
        world.commit("a", 2)
        refused = world.classic_join()
        assert refused is not None
        assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        world.beat("a", -1)
        assert world.classic_join("a") == ev.JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "a")
        world.classic_join()
        shard = world.coordinator.shard_of("g")
        assert (set(shard.groups), shard.streams_groups, shard.offsets.count) == ({"g"}, {}, 1)

    def test_an_id_belongs_to_one_kind(self, world: StreamsWorld) -> None:
        world.join()
        answers: list[Any] = []
        world.coordinator.consumer_heartbeat("g", ConsumerHeartbeat("m", 0, owned={}), answers.append)
        shard = world.coordinator.shard_of("g")
        share = ShareHeartbeat("m", 0, topic_names=frozenset("t"))
        shard.change_shares(lambda shares: shares.heartbeat("g", share, answers.append), answers.append)
        assert [answer.code for answer in answers] == [NOT_FOUND, NOT_FOUND]
        assert world.coordinator.is_modern_group("g")

    @pytest.mark.parametrize("kind", ["consumer", "share"])
    def test_a_group_of_another_kind_takes_no_streams_member(self, world: StreamsWorld, kind: str) -> None:
        shard = world.coordinator.shard_of("g")
        if kind == "consumer":
            beat = ConsumerHeartbeat("m", 0, None, None, 1000, frozenset("t"), owned={})
            world.coordinator.consumer_heartbeat("g", beat, lambda _answer: None)
        else:
            share = ShareHeartbeat("m", 0, topic_names=frozenset("t"))
            shard.change_shares(lambda shares: shares.heartbeat("g", share, lambda _: None), lambda _: None)
        assert world.join() == NOT_FOUND
        with pytest.raises(ApiError, match="Group g is not a streams group"):
            shard.describe_streams_group("g", lambda group: group)


class TestGroups:
    def test_it_is_listed_and_described(self, world: StreamsWorld) -> None:
        world.join()
        (listed,) = world.coordinator.list_groups([])[1]
        assert listed == ("g", "streams", "Stable", "streams")
        assert world.coordinator.list_groups(["NotReady"])[1] == []
        requests = StreamsGroupRequests(world.config, world.coordinator, world.cache)  # type: ignore[arg-type]
        assert requests.describe("g", lambda group: group.epoch) == 2
        with pytest.raises(ApiError, match="Group x not found"):
            requests.describe("x", lambda group: group.epoch)

    def test_it_is_deleted_when_it_has_no_members(self, world: StreamsWorld) -> None:
        world.join()
        assert world.delete_group() == ErrorCode.NON_EMPTY_GROUP
        world.beat("a", -1)
        assert world.delete_group() == ErrorCode.NONE
        assert world.groups == {}
        world.fail_over()
        assert world.groups == {}
        assert world.delete_group() == NOT_FOUND

    def test_states_are_counted(self, world: StreamsWorld) -> None:
        world.join()
        (table,) = (table for table in world.registry.tables() if catalogue.STREAMS_GROUP_COUNT in table.rows)
        counts = {labels[0]: number for labels, (number,) in table.read()}
        assert counts == {"Empty": 0, "NotReady": 0, "Assigning": 0, "Reconciling": 0, "Stable": 1, "Dead": 0}

    @pytest.mark.parametrize(
        ("protocols", "level", "expected"),
        [
            (("classic", "streams"), 1, True),
            (("classic", "streams"), 0, False),
            (("classic", "consumer"), 1, False),
        ],
    )
    def test_the_configuration_and_the_feature_allow_it(
        self, protocols: tuple[str, ...], level: int, expected: bool
    ) -> None:
        world = StreamsWorld(group_coordinator_rebalance_protocols=protocols)
        world.cache.finalized_features = FinalizedFeatures({"streams.version": level}, 3)
        requests = StreamsGroupRequests(world.config, world.coordinator, world.cache)  # type: ignore[arg-type]
        assert requests.is_enabled is expected
