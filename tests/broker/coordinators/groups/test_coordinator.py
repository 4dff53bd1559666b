"""The group coordinator and its shards over a log in memory: writes, waits, loading, moving, expiry.

Tests `coordinators/groups/shard.py` with its parts, `coordinators/groups/core.py`,
`coordinators/groups/classic_groups.py`, `coordinators/groups/consumer_groups.py` and
`coordinators/groups/group_offsets.py`, and with `coordinators/groups/context.py`, `coordinators/groups/loader.py`,
`coordinators/groups/timers.py`, `coordinators/groups/sensors.py`, `coordinators/gauges.py` and
`coordinators/runtime/partitioning.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.events import GroupState
from barnabas.broker.coordinators.consumer import topic_regexes
from barnabas.broker.coordinators.consumer.values import Heartbeat
from barnabas.broker.coordinators.groups.group_offsets import (
    Committer,
    DeletedOffsets,
    FetchedOffsets,
    OffsetCommit,
    OffsetQuery,
)
from barnabas.broker.coordinators.offsets import records as records
from barnabas.broker.coordinators.offsets.store import CommittedOffset, TopicQuery
from barnabas.broker.coordinators.runtime.partitioning import java_hash, partition_for
from barnabas.broker.coordinators.transactions.marker import Marker
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker, iter_headers
from barnabas.protocol.records.compression import CompressionType
from tests.broker.coordinators.fake_log import World, snapshot, transactional_batch
from tests.broker.coordinators.group_rig import RANGE

NONE = ErrorCode.NONE
NO_ID = bytes(16)


class Client:
    """Sends what a client would; `answers` has what came back, in order."""

    def __init__(self, world: World, group_id: str = "g") -> None:
        self.world = world
        self.group_id = group_id
        self.answers: list[Any] = []

    def take(self) -> Any:
        (answer,) = self.answers
        self.answers.clear()
        return answer

    def join(self, member_id: str = "", new_id: str = "m", *, version: int = 3, instance_id: str | None = None) -> None:
        self.world.coordinator.join(
            self.group_id,
            ev.Join(
                member_id, new_id, instance_id, "c", "/h", 10_000, 30_000, "consumer", RANGE, version, None,
                self.answers.append,
            ),
        )  # fmt: skip

    def sync(self, member_id: str, generation_id: int, **assignments: bytes) -> None:
        self.world.coordinator.sync(
            self.group_id, ev.Sync(member_id, None, generation_id, None, None, assignments, self.answers.append)
        )

    def heartbeat(self, member_id: str = "m", generation_id: int = 1) -> ErrorCode:
        return self.world.coordinator.heartbeat(self.group_id, member_id, None, generation_id)

    def leave(self, member_id: str = "m") -> None:
        self.world.coordinator.leave(self.group_id, ev.Leave((ev.LeavingMember(member_id),), self.answers.append))

    def commit(
        self, offset: int, *, member_id: str = "", generation_id: int = -1, partition: int = 0, version: int = 8,
        topic: str = "t",
    ) -> None:  # fmt: skip
        who = Committer(self.group_id, member_id, None, generation_id, version)
        what = OffsetCommit(topic, partition, CommittedOffset(offset, 1, "", self.world.coordinator.now_ms))
        self.world.coordinator.commit_offsets(who, [what], self.answers.append)

    def commit_in_transaction(self, offset: int) -> None:
        who = Committer(self.group_id, "", None, -1, 3)
        what = OffsetCommit("t", 0, CommittedOffset(offset, 1, "", self.world.coordinator.now_ms))
        self.world.coordinator.commit_in_transaction(who, Producer(7, 0), [what], None, self.answers.append)

    def fetch(self, *, stable: bool = False) -> None:
        def answered(fetched: FetchedOffsets) -> None:
            self.answers.append(fetched.error or fetched.topics[0].partitions[0].offset)

        query = OffsetQuery(self.group_id, [TopicQuery(NO_ID, "t", [0])], stable)
        self.world.coordinator.fetch_offsets(query, answered)

    def fetched(self) -> Any:
        self.fetch()
        return self.take()

    def make_stable(self) -> Client:
        self.join()
        assert self.take().error == NONE
        self.sync("m", 1, m=b"mine")
        assert self.take().assignment == b"mine"
        return self


def same_partition(world: World, group_id: str) -> str:
    """The id of another group on the same partition."""
    partition_for = world.coordinator.partition_for
    return next(f"{group_id}{n}" for n in range(99) if partition_for(f"{group_id}{n}") == partition_for(group_id))


def state_of(world: World, group_id: str = "g") -> Any:
    return world.coordinator.describe(group_id, lambda group: group.state)[1]


class TestPartitions:
    @pytest.mark.parametrize(
        ("text", "value"),
        [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)],
    )
    def test_java_hash(self, text: str, value: int) -> None:
        assert java_hash(text) == value  # as jshell says

    def test_the_smallest_int_has_no_absolute_value(self) -> None:
        assert partition_for("polygenelubricants", 50) == 0
        assert partition_for("a", 50) == 47

    def test_the_topic_says_how_many_there_are(self) -> None:
        world = World()
        assert world.coordinator.partition_for("a") == 97 % 2


class TestGate:
    def test_nobody_else_answers_for_a_group(self) -> None:
        client = Client(World(leads=False))
        client.join()
        assert client.take().error == ErrorCode.NOT_COORDINATOR
        client.sync("m", 1)
        assert client.take().error == ErrorCode.NOT_COORDINATOR
        client.leave()
        assert client.take().error == ErrorCode.NOT_COORDINATOR
        client.commit(1)
        assert client.take() == ErrorCode.NOT_COORDINATOR
        assert client.fetched() == ErrorCode.NOT_COORDINATOR
        assert client.heartbeat() == ErrorCode.NOT_COORDINATOR
        assert client.world.coordinator.list_groups([]) == (NONE, [])

    def test_loading(self) -> None:
        world = World(leads=False)
        client = Client(world)
        for partition in (0, 1):
            world.lead(partition, loads=False)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        client.join()
        assert client.take().error == loading
        client.commit(1)
        assert client.take() == loading
        assert client.fetched() == loading
        assert client.heartbeat() == NONE  # on trust
        assert world.coordinator.list_groups([]) == (loading, [])
        world.coordinator.run_pending_jobs()
        client.join()
        assert client.take().error == NONE

    def test_an_empty_group_id(self) -> None:
        client = Client(World(), "")
        client.join()
        assert client.take().error == ErrorCode.INVALID_GROUP_ID
        assert client.heartbeat() == ErrorCode.INVALID_GROUP_ID
        client.commit(4)  # as it always was
        assert client.take() == NONE

    def test_session_timeouts_have_bounds(self) -> None:
        client = Client(World(group_min_session_timeout_ms=10_001))
        client.join()
        assert client.take().error == ErrorCode.INVALID_SESSION_TIMEOUT

    def test_members_of_unknown_groups(self) -> None:
        client = Client(World())
        client.join("ghost")
        assert client.take().error == ErrorCode.UNKNOWN_MEMBER_ID
        client.sync("ghost", 1)
        assert client.take().error == ErrorCode.UNKNOWN_MEMBER_ID
        assert client.heartbeat("ghost") == ErrorCode.UNKNOWN_MEMBER_ID
        client.leave("ghost")
        assert client.take().members[0].error == ErrorCode.UNKNOWN_MEMBER_ID
        client.commit(1, member_id="ghost", generation_id=1)
        assert client.take() == ErrorCode.ILLEGAL_GENERATION
        client.commit(1, member_id="ghost", generation_id=1, version=9)
        assert client.take() == ErrorCode.GROUP_ID_NOT_FOUND


class TestWrites:
    def test_the_log_tells_the_story_of_a_group(self) -> None:
        world = World()
        client = Client(world).make_stable()
        client.commit(5, member_id="m", generation_id=1)
        client.leave()
        assert [answer if isinstance(answer, ErrorCode) else answer.error for answer in client.answers] == [NONE, NONE]
        written = world.log_of("g").records()
        kinds = [records.GroupRecord, records.GroupRecord, records.OffsetRecord, records.GroupRecord]
        assert [type(record) for record in written] == kinds
        assert [r.group.generation_id for r in written if isinstance(r, records.GroupRecord)] == [0, 1, 2]
        assert world.replicas.woken  # followers' fetches

    @pytest.mark.parametrize("codec", CompressionType)
    def test_batches_are_compressed_as_the_settings_say(self, codec: CompressionType) -> None:
        world = World(offsets_topic_compression_codec=codec.value)
        Client(world).make_stable().commit(5, member_id="m", generation_id=1)
        headers = [header for batch in world.log_of("g").batches for _, header in iter_headers(batch)]
        assert {header.compression_type for header in headers} == {codec}
        world.fail_over()
        assert Client(world).fetched() == 5

    def test_a_commit_is_seen_when_it_is_committed_and_not_before(self) -> None:
        world = World()
        client = Client(world)
        world.replicas.holds = True
        client.commit(5)
        assert client.answers == []
        assert client.fetched() == -1
        world.replicas.release()
        assert client.take() == NONE
        assert client.fetched() == 5

    def test_a_stable_fetch_waits_for_commits_on_their_way(self) -> None:
        world = World()
        client, other = Client(world), Client(world)
        world.replicas.holds = True
        client.commit(5)
        other.fetch(stable=True)
        assert other.answers == []
        world.replicas.release()
        assert other.take() == 5

    def test_a_stable_fetch_waits_for_no_commit_of_another_group(self) -> None:
        """That one may wait for long: until enough replicas are in sync."""
        world = World()
        client, other = Client(world), Client(world, same_partition(world, "g"))
        other.commit(6)
        assert other.take() == NONE
        world.replicas.holds = True
        client.commit(5)
        other.fetch(stable=True)
        assert other.take() == 6
        world.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
        other.fetch(stable=True)
        assert other.take() == 6

    def test_a_stable_fetch_beside_an_open_transaction_waits_for_no_other_group(self) -> None:
        world = World()
        client, other = Client(world), Client(world, same_partition(world, "g"))
        log = world.log_of("g")
        record = SimpleRecord(1, *records.offset_commit("g", "t", 1, CommittedOffset(9, -1, "", 1)))
        log.append(transactional_batch([record], 4))
        log.high_watermark = log.log_end_offset
        client.commit(3)
        assert client.take() == NONE
        world.replicas.holds = True
        other.commit(7)
        world.fail_over()
        client = Client(world)
        client.fetch(stable=True)
        assert client.take() == 3

    def test_a_stable_fetch_waits_for_the_end_of_a_transaction_on_its_way(self) -> None:
        world = World()
        client = Client(world)
        log = world.log_of("g")
        record = SimpleRecord(1, *records.offset_commit("g", "t", 0, CommittedOffset(9, -1, "", 1)))
        log.append(transactional_batch([record], 4))
        log.high_watermark = log.log_end_offset
        world.fail_over()
        world.replicas.holds = True
        marker = Marker(4, 0, True, 1, 2)
        tp = world.tp(world.coordinator.partition_for("g"))
        world.coordinator.end_transaction(tp, marker, lambda _error: None)
        client.fetch(stable=True)
        assert client.answers == []
        world.replicas.release()
        assert client.take() == 9

    def test_a_stable_fetch_gives_up_when_the_commit_does(self) -> None:
        world = World()
        client, other = Client(world), Client(world)
        world.replicas.holds = True
        client.commit(5)
        other.fetch(stable=True)
        world.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
        assert client.take() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert other.take() == ErrorCode.NOT_COORDINATOR
        other.fetch(stable=True)
        assert other.take() == ErrorCode.NOT_COORDINATOR

    def test_a_commit_that_timed_out_counts_once_it_is_replicated(self) -> None:
        world = World()
        client = Client(world)
        world.replicas.holds = True
        client.commit(5)
        world.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
        assert client.take() == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert client.fetched() == -1
        log = world.log_of("g")
        log.high_watermark = log.log_end_offset
        assert client.fetched() == 5

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_refused_appends(self, error: ErrorCode, expected: ErrorCode) -> None:
        world = World(group_initial_rebalance_delay_ms=3000)
        client = Client(world)
        world.replicas.refuses = error
        client.commit(5)
        assert client.take() == expected
        client.join(version=3)
        assert client.take().error == expected

    def test_an_assignment_is_handed_out_when_it_is_committed(self) -> None:
        world = World()
        client = Client(world)
        client.join()
        client.take()
        world.replicas.holds = True
        client.sync("m", 1, m=b"mine")
        assert client.answers == []
        assert state_of(world) is GroupState.COMPLETING_REBALANCE
        world.replicas.release()
        assert client.take().assignment == b"mine"
        assert state_of(world) is GroupState.STABLE

    def test_a_failed_assignment_sends_members_back_to_join(self) -> None:
        world = World()
        client = Client(world)
        client.join()
        client.take()
        world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        client.sync("m", 1, m=b"mine")
        assert client.take().error == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert state_of(world) is GroupState.PREPARING_REBALANCE


class TestTimers:
    def test_a_silent_member_is_dropped_and_its_group_becomes_empty(self) -> None:
        world = World()
        client = Client(world).make_stable()
        world.advance_ms(9999)
        assert client.heartbeat() == NONE
        world.advance_ms(9999)
        assert client.heartbeat() == NONE
        world.advance_ms(10_001)
        assert client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
        assert state_of(world) is GroupState.EMPTY

    def test_a_renewed_session_leaves_its_task_on_the_wheel(self) -> None:
        world = World()
        client = Client(world).make_stable()
        tasks = len(world.coordinator._timer)
        for _ in range(100):
            client.heartbeat()
        assert len(world.coordinator._timer) == tasks

    def test_the_initial_delay(self) -> None:
        world = World(group_initial_rebalance_delay_ms=3000)
        client = Client(world)
        client.join()
        world.advance_ms(2999)
        assert client.answers == []
        world.advance_ms(2)
        assert client.take().generation_id == 1


class TestMoving:
    def test_replay_gives_the_same_state(self) -> None:
        world = World()
        client = Client(world).make_stable()
        client.commit(5, member_id="m", generation_id=1)
        client.commit(6, member_id="m", generation_id=1, partition=1)
        client.answers.clear()
        world.fail_over()
        assert client.heartbeat() == NONE
        assert client.fetched() == 5
        client.sync("m", 1)
        assert client.answers.pop().assignment == b"mine"
        world.advance_ms(10_001)  # sessions start again after loading, and expire as usual
        assert client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    def test_after_loading_no_response_is_sent_before_all_read_records_are_committed(self) -> None:
        """The old coordinator may have sent it or not: neither may be undone."""
        world = World()
        client = Client(world)
        client.commit(5)
        world.replicas.holds = True
        client.commit(6)
        world.fail_over()
        client.answers.clear()
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert client.fetched() == loading
        client.fetch(stable=True)
        assert client.take() == loading
        deleted: list[Any] = []
        world.coordinator.delete_groups(["g"], deleted.append)
        world.coordinator.delete_offsets("g", {"t": [0]}, deleted.append)
        assert deleted == [{"g": loading}, DeletedOffsets(loading)]
        client.commit(7)  # the others need not wait
        log = world.log_of("g")
        log.high_watermark = log.log_end_offset - 1
        assert client.fetched() == 6
        log.high_watermark = log.log_end_offset
        assert Client(world).fetched() == 7
        assert client.take() == NONE

    def test_offsets_of_groups_that_were_committed_before_are_served_at_once(self) -> None:
        """The others wait for a replica, maybe for long; these cannot change any more without a new record."""
        world = World()
        client, other = Client(world), Client(world, same_partition(world, "g"))
        client.commit(5)
        other.commit(6)
        world.replicas.holds = True
        client.commit(7)
        world.fail_over()
        client.answers.clear()
        other.answers.clear()
        assert client.fetched() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert other.fetched() == 6
        other.fetch(stable=True)
        assert other.take() == 6
        log = world.log_of("g")
        log.high_watermark = log.log_end_offset
        assert client.fetched() == 7

    def test_modern_groups_that_were_committed_before_are_described_at_once(self) -> None:
        world = World()
        world.cache.snapshot = snapshot({"t": 1})
        other = same_partition(world, "g")
        beat = Heartbeat("m", 0, None, None, 1000, frozenset("t"), owned={})
        world.coordinator.consumer_heartbeat(other, beat, lambda _answer: None)
        world.replicas.holds = True
        world.coordinator.consumer_heartbeat("g", beat, lambda _answer: None)
        world.fail_over()
        assert world.coordinator.describe_consumer_group(other, lambda group: group.epoch) == 2
        with pytest.raises(ApiError) as raised:
            world.coordinator.describe_consumer_group("g", lambda group: group.epoch)
        assert raised.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    @pytest.mark.parametrize("group_id", ["g", "the other"])
    def test_a_marker_that_is_not_committed_yet_may_change_the_offsets_of_any_group(self, group_id: str) -> None:
        world = World()
        other_id = same_partition(world, "g")
        log = world.log_of("g")
        log.append(
            end_txn_marker(
                ControlType.COMMIT, producer_id=4, producer_epoch=0, coordinator_epoch=1, timestamp_ms=1
            )
        )  # fmt: skip
        world.fail_over()
        client = Client(world, "g" if group_id == "g" else other_id)
        assert client.fetched() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.high_watermark = log.log_end_offset
        assert client.fetched() == -1

    @pytest.mark.parametrize(("kind", "offset"), [(ControlType.COMMIT, 9), (ControlType.ABORT, 5)])
    def test_a_marker_that_is_not_committed_yet_ends_nothing_after_loading(
        self, kind: ControlType, offset: int
    ) -> None:
        world = World()
        client = Client(world)
        client.commit(5)
        client.answers.clear()
        log = world.log_of("g")
        record = SimpleRecord(1, *records.offset_commit("g", "t", 0, CommittedOffset(9, -1, "", 1)))
        log.append(transactional_batch([record], 4))
        log.append(end_txn_marker(kind, producer_id=4, producer_epoch=0, coordinator_epoch=1, timestamp_ms=1))
        world.fail_over()
        assert client.fetched() == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.high_watermark = log.log_end_offset
        assert client.fetched() == offset

    def test_a_member_in_mid_join_is_sent_away(self) -> None:
        world = World(group_initial_rebalance_delay_ms=3000)
        client = Client(world)
        client.join()
        world.coordinator.on_resignation(world.tp(world.coordinator.partition_for("g")), 2)
        assert client.take().error == ErrorCode.NOT_COORDINATOR
        client.join()
        assert client.take().error == ErrorCode.NOT_COORDINATOR

    def test_a_commit_on_its_way_is_answered_and_not_applied(self) -> None:
        world = World()
        client = Client(world)
        world.replicas.holds = True
        client.commit(5)
        world.coordinator.on_resignation(world.tp(world.coordinator.partition_for("g")), None)
        assert client.take() == ErrorCode.NOT_COORDINATOR
        world.replicas.release()
        assert client.answers == []

    def test_an_old_resignation_is_ignored(self) -> None:
        world = World()
        client = Client(world).make_stable()
        for partition in (0, 1):
            world.coordinator.on_leadership(world.tp(partition), 7)
            world.coordinator.on_resignation(world.tp(partition), 6)
        assert client.heartbeat() == NONE

    def test_resigned_while_loading(self) -> None:
        world = World(leads=False)
        world.lead(0, loads=False)
        world.coordinator.on_resignation(world.tp(0), 2)
        world.coordinator.run_pending_jobs()
        assert world.coordinator.list_groups([]) == (NONE, [])

    def test_other_topics_do_not_matter(self) -> None:
        world = World(leads=False)
        world.coordinator.on_leadership(TopicPartition("t", 0), 1)
        world.coordinator.on_resignation(TopicPartition("t", 0), 1)
        assert world.coordinator._jobs.empty()

    def test_a_log_that_cannot_be_read_closes_the_shard_only(self) -> None:
        world = World(leads=False)
        world.lead(0)
        world.replicas.logs[world.tp(0)].append(build_batch([SimpleRecord(1, b"\x00\x01\x00", b"")]))
        world.coordinator.on_resignation(world.tp(0), None)
        world.lead(0)
        world.lead(1)
        broken = next(name for name in "abcdef" if world.coordinator.partition_for(name) == 0)
        fine = next(name for name in "abcdef" if world.coordinator.partition_for(name) == 1)
        assert Client(world, broken).heartbeat() == ErrorCode.NOT_COORDINATOR
        assert Client(world, fine).heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID

    @pytest.mark.parametrize(("kind", "offset"), [(ControlType.COMMIT, 9), (ControlType.ABORT, -1)])
    def test_transactions_in_the_log(self, kind: ControlType, offset: int) -> None:
        world = World()
        log = world.log_of("g")
        record = SimpleRecord(1, *records.offset_commit("g", "t", 0, CommittedOffset(9, -1, "", 1)))
        log.append(transactional_batch([record], 4))
        log.append(end_txn_marker(kind, producer_id=4, producer_epoch=0, coordinator_epoch=1, timestamp_ms=1))
        log.high_watermark = log.log_end_offset
        world.fail_over()
        assert Client(world).fetched() == offset

    def test_an_open_transaction_is_unstable(self) -> None:
        world = World()
        record = SimpleRecord(1, *records.offset_commit("g", "t", 0, CommittedOffset(9, -1, "", 1)))
        log = world.log_of("g")
        log.append(transactional_batch([record], 4))
        log.high_watermark = log.log_end_offset
        world.fail_over()
        errors: list[ErrorCode] = []
        world.coordinator.fetch_offsets(
            OffsetQuery("g", [TopicQuery(NO_ID, "t", [0])], True),
            lambda fetched: errors.append(fetched.topics[0].partitions[0].error),
        )
        assert errors == [ErrorCode.UNSTABLE_OFFSET_COMMIT]


class TestRemoval:
    def test_delete_groups(self) -> None:
        world = World()
        client, simple = Client(world).make_stable(), Client(world, "simple")
        simple.commit(3)
        assert simple.take() == NONE
        results: list[dict[str, ErrorCode]] = []
        world.coordinator.delete_groups(["g", "simple", "nobody"], results.append)
        assert results == [{"g": ErrorCode.NON_EMPTY_GROUP, "simple": NONE, "nobody": ErrorCode.GROUP_ID_NOT_FOUND}]
        assert simple.fetched() == -1
        assert client.heartbeat() == NONE
        world.fail_over()
        assert simple.fetched() == -1
        assert [group.group_id for group in world.coordinator.list_groups([])[1]] == ["g"]

    def test_delete_groups_waits_for_commits_on_their_way(self) -> None:
        world = World()
        client = Client(world)
        client.commit(1)
        client.take()
        world.replicas.holds = True
        client.commit(2, partition=1)
        results: list[dict[str, ErrorCode]] = []
        world.coordinator.delete_groups(["g"], results.append)
        world.replicas.release()
        assert results == []
        world.replicas.release()
        assert results == [{"g": NONE}]
        world.fail_over()
        assert world.coordinator.list_groups([]) == (NONE, [])

    def begin_to_delete(self, world: World) -> list[Any]:
        """Ask for an offset of group g to be deleted, and for the group, while a commit is on its way."""
        answers: list[Any] = []
        client = Client(world)
        client.commit(1)
        world.replicas.holds = True
        client.commit(2, partition=1)
        world.coordinator.delete_offsets("g", {"t": [0]}, answers.append)
        world.coordinator.delete_groups(["g"], answers.append)
        assert answers == []
        return answers

    def test_what_waits_to_delete_is_sent_to_the_new_coordinator(self) -> None:
        world = World()
        answers = self.begin_to_delete(world)
        world.coordinator.on_resignation(world.tp(world.coordinator.partition_for("g")), None)
        assert answers == [DeletedOffsets(ErrorCode.NOT_COORDINATOR), {"g": ErrorCode.NOT_COORDINATOR}]
        world.fail_over()
        world.replicas.release()
        assert Client(world).fetched() == 1

    def test_what_waits_to_delete_gives_up_when_the_commit_does(self) -> None:
        world = World()
        answers = self.begin_to_delete(world)
        world.replicas.release(ErrorCode.REQUEST_TIMED_OUT)
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert answers == [DeletedOffsets(error), {"g": error}]

    def test_delete_groups_is_answered_when_the_shard_is_replaced_meanwhile(self) -> None:
        world = World()
        ids = [f"g{i}" for i in range(9) if world.coordinator.partition_for(f"g{i}") == 0]

        def group_ids() -> Iterator[str]:
            yield ids[0]
            world.coordinator.on_resignation(world.tp(0), None)
            world.lead(0, 2)
            yield ids[1]

        results: list[dict[str, ErrorCode]] = []
        world.coordinator.delete_groups(cast("list[str]", group_ids()), results.append)
        assert results == [{ids[0]: ErrorCode.NOT_COORDINATOR, ids[1]: ErrorCode.GROUP_ID_NOT_FOUND}]

    def test_delete_groups_elsewhere(self) -> None:
        results: list[dict[str, ErrorCode]] = []
        World(leads=False).coordinator.delete_groups(["g"], results.append)
        assert results == [{"g": ErrorCode.NOT_COORDINATOR}]

    def test_delete_offsets(self) -> None:
        world = World()
        client = Client(world)
        client.commit(1)
        client.commit(2, partition=1)
        client.commit(3, topic="u")
        results: list[Any] = []
        world.coordinator.delete_offsets("g", {"t": [0, 7]}, results.append)
        assert results == [DeletedOffsets(NONE)]
        assert client.answers == [NONE] * 3
        client.answers.clear()
        assert client.fetched() == -1
        assert world.registry_value(catalogue.NUM_OFFSETS) == 2

    def test_offsets_of_subscribed_topics_stay(self) -> None:
        world = World()
        client = Client(world).make_stable()
        client.commit(1, member_id="m", generation_id=1)
        results: list[Any] = []
        world.coordinator.delete_offsets("g", {"t": [0], "u": [0]}, results.append)
        assert results == [DeletedOffsets(NONE, {"t": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})]
        client.answers.clear()
        assert client.fetched() == 1

    def test_delete_offsets_of_no_group(self) -> None:
        results: list[Any] = []
        World().coordinator.delete_offsets("g", {"t": [0]}, results.append)
        World().coordinator.delete_offsets("", {"t": [0]}, results.append)
        assert results == [DeletedOffsets(ErrorCode.GROUP_ID_NOT_FOUND), DeletedOffsets(ErrorCode.INVALID_GROUP_ID)]

    def test_offsets_of_deleted_topics_go(self) -> None:
        world = World()
        client = Client(world)
        client.commit(1)
        client.commit(2, topic="u")
        client.answers.clear()
        world.cache.snapshot = snapshot({"u": 1, GROUP_METADATA_TOPIC: 2})
        world.coordinator.on_metadata_update({"t": NO_ID, "v": NO_ID})  # never known: nothing is removed
        world.coordinator.run_pending_jobs()
        assert world.registry_value(catalogue.NUM_OFFSETS) == 2
        world.coordinator.on_metadata_update({"t": b"t" * 16, "v": NO_ID})
        world.coordinator.run_pending_jobs()
        assert client.fetched() == -1
        assert world.registry_value(catalogue.NUM_OFFSETS) == 1

    def test_offsets_expire_and_the_group_with_them(self) -> None:
        world = World(offsets_retention_minutes=15)
        client = Client(world)
        client.commit(1)
        client.take()
        world.advance_ms(600_001)
        assert client.fetched() == 1
        world.advance_ms(600_001)
        assert client.fetched() == -1
        assert world.coordinator.list_groups([]) == (NONE, [])
        world.fail_over()
        assert world.coordinator.list_groups([]) == (NONE, [])

    @pytest.mark.parametrize("is_transactional", [False, True])
    def test_no_offset_expires_while_a_newer_one_is_on_its_way(self, is_transactional: bool) -> None:
        world = World(offsets_retention_minutes=15)
        client = Client(world)
        client.commit(1)
        client.commit(1, partition=1)
        world.clock.advance_ms(900_001)
        world.replicas.holds = True
        if is_transactional:
            client.commit_in_transaction(2)
        else:
            client.commit(2)
        client.answers.clear()
        world.coordinator.expire()
        world.replicas.holds = False
        world.replicas.release()
        assert client.take() == NONE
        tombstones = [record.partition for record in world.log_of("g").records() if record.committed is None]
        assert tombstones == [1]
        if is_transactional:
            tp = world.tp(world.coordinator.partition_for("g"))
            world.coordinator.end_transaction(tp, Marker(7, 0, True, 1), lambda _error: None)
        assert client.fetched() == 2
        world.fail_over()
        assert client.fetched() == 2

    def test_a_commit_that_was_refused_is_not_on_its_way(self) -> None:
        world = World(offsets_retention_minutes=15)
        client = Client(world)
        client.commit(1)
        world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
        client.commit(2)
        client.commit_in_transaction(2)
        world.replicas.refuses = NONE
        client.answers.clear()
        world.clock.advance_ms(900_001)
        world.coordinator.expire()
        assert client.fetched() == -1
        assert world.coordinator.list_groups([]) == (NONE, [])

    def test_an_empty_group_is_removed_although_others_write(self) -> None:
        world = World(offsets_retention_minutes=15)
        client = Client(world)
        client.commit(1)
        busy = Client(world, "busy")
        while world.coordinator.partition_for(busy.group_id) != world.coordinator.partition_for("g"):
            busy.group_id += "y"
        world.clock.advance_ms(900_001)
        world.replicas.holds = True
        busy.commit(1)
        world.coordinator.expire()
        assert [group.group_id for group in world.coordinator.list_groups([])[1]] == []
        world.replicas.release()
        assert [group.group_id for group in world.coordinator.list_groups([])[1]] == [busy.group_id]

    def test_a_group_stays_while_its_first_commit_is_on_its_way(self) -> None:
        world = World(offsets_retention_minutes=15)
        client = Client(world).make_stable()
        client.leave()
        client.take()
        world.replicas.holds = True
        client.commit(1)
        world.coordinator.expire()
        assert state_of(world) is GroupState.EMPTY

    def test_a_named_member_keeps_its_group(self) -> None:
        world = World()
        client = Client(world)
        client.join(version=4)
        assert client.take().error == ErrorCode.MEMBER_ID_REQUIRED
        world.coordinator._shards[world.coordinator.partition_for("g")].expire()
        client.join("m", version=4)
        assert client.take().generation_id == 1


class TestManyTombstones:
    """More than one record batch may hold: the log refuses a batch that is too large."""

    COUNT = 6000
    TOPIC = "t" * 200

    @pytest.fixture
    def world(self) -> World:
        world = World(offsets_retention_minutes=15)
        who = Committer("g", "", None, -1, 8)
        for start in range(0, self.COUNT, 1000):
            commits = [
                OffsetCommit(self.TOPIC, p, CommittedOffset(1, 1, "", world.coordinator.now_ms))
                for p in range(start, start + 1000)
            ]
            world.coordinator.commit_offsets(who, commits, lambda _error: None)
        assert world.registry_value(catalogue.NUM_OFFSETS) == self.COUNT
        return world

    def test_expiry(self, world: World) -> None:
        world.clock.advance_ms(900_001)
        world.coordinator.expire()
        assert world.registry_value(catalogue.NUM_OFFSETS) == 0
        assert world.coordinator.list_groups([]) == (NONE, [])
        world.fail_over()
        assert (world.registry_value(catalogue.NUM_OFFSETS), world.coordinator.list_groups([])) == (0, (NONE, []))

    def test_a_deleted_topic(self, world: World) -> None:
        world.coordinator.on_metadata_update({self.TOPIC: b"t" * 16})
        world.coordinator.run_pending_jobs()
        assert world.registry_value(catalogue.NUM_OFFSETS) == 0

    def test_a_deleted_group(self, world: World) -> None:
        answers: list[Any] = []
        world.replicas.holds = True
        world.coordinator.delete_groups(["g"], answers.append)
        assert answers == []
        world.replicas.release()
        assert answers == [{"g": NONE}]
        assert world.registry_value(catalogue.NUM_OFFSETS) == 0

    def test_it_is_answered_once_with_the_first_error(self, world: World) -> None:
        answers: list[Any] = []
        append = world.replicas.append_internal
        batches: list[bytes] = []

        def append_two(tp: TopicPartition, batch: bytes, *arguments: Any, **options: Any) -> int:
            batches.append(batch)
            world.replicas.refuses = ErrorCode.NOT_ENOUGH_REPLICAS if len(batches) == 2 else NONE
            return append(tp, batch, *arguments, **options)

        world.replicas.append_internal = append_two  # type: ignore[method-assign]
        world.coordinator.delete_groups(["g"], answers.append)
        assert (answers, len(batches)) == ([{"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}], 2)
        assert 0 < world.registry_value(catalogue.NUM_OFFSETS) < self.COUNT
        world.coordinator.delete_groups(["g"], answers.append)
        assert answers.pop() == {"g": NONE}
        assert world.registry_value(catalogue.NUM_OFFSETS) == 0


class TestExpressions:
    """Of consumer groups: another thread matches them."""

    def join(self, world: World, member_id: str, regex: str, can_describe: Callable[[str], bool] | None = None) -> None:
        request = Heartbeat(
            member_id, 0, rebalance_timeout_ms=60_000, topic_names=frozenset(), topic_regex=regex, owned={},
            can_describe=can_describe,
        )  # fmt: skip
        world.coordinator.consumer_heartbeat("g", request, lambda _answer: None)

    def resign(self, world: World) -> None:
        world.coordinator.on_resignation(world.tp(world.coordinator.partition_for("g")), None)

    def test_a_topic_that_is_created_while_the_expression_waits_is_matched(self) -> None:
        world = World()
        world.cache.snapshot = snapshot({"t": 1})
        self.join(world, "a", "t|v")
        world.cache.snapshot = snapshot({"t": 1, "v": 1})
        world.coordinator.run_pending_jobs()
        (resolved,) = world.coordinator.shard_of("g").consumer_groups["g"].resolved_regexes.values()
        assert resolved.topics == {"t", "v"}
        assert resolved.version == world.coordinator._context.consumers.watch.latest().number

    def test_a_match_that_fails_is_tried_again(self) -> None:
        world = World()
        world.cache.snapshot = snapshot({"t": 1})

        def fails(_topic: str) -> bool:
            raise RuntimeError("the authorizer")

        self.join(world, "a", "t", fails)
        with pytest.raises(RuntimeError):  # the thread logs it
            world.coordinator.run_pending_jobs()
        self.join(world, "a", "t")
        world.coordinator.run_pending_jobs()
        (resolved,) = world.coordinator.shard_of("g").consumer_groups["g"].resolved_regexes.values()
        assert resolved.topics == {"t"}

    def test_none_is_matched_for_a_shard_that_has_ended(self) -> None:
        """A stop of the broker waits for the thread."""
        world = World()
        seen: list[str] = []
        self.join(world, "a", "t.*", lambda topic: bool(seen.append(topic)))
        self.resign(world)
        world.coordinator.run_pending_jobs()
        assert seen == []

    def test_the_rest_is_left_when_the_shard_ends_meanwhile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        world = World()
        self.join(world, "a", "t.*")
        world.coordinator.run_pending_jobs()
        world.advance_ms(10_001)
        self.join(world, "b", "u.*")
        seen: list[str] = []

        def matching(regex: str, _topics: Sequence[str]) -> list[str]:
            seen.append(regex)
            self.resign(world)
            return []

        monkeypatch.setattr(topic_regexes, "matching_names", matching)
        world.coordinator.run_pending_jobs()
        assert len(seen) == 1


class TestShown:
    @pytest.mark.parametrize("topics", [[TopicQuery(NO_ID, "t", [0])], None], ids=["one topic", "all topics"])
    def test_no_group_has_the_offsets_of_the_group_without_a_name(self, topics: list[TopicQuery] | None) -> None:
        world = World()
        unnamed = Client(world, "")
        unnamed.commit(7)
        assert unnamed.take() == NONE
        assert unnamed.fetched() == 7
        partition_of = world.coordinator.partition_for
        nobody = next(name for name in "abc" if partition_of(name) == partition_of(""))
        world.coordinator.fetch_offsets(OffsetQuery(nobody, topics, False), unnamed.answers.append)
        fetched = unnamed.take()
        assert fetched.error == NONE
        assert [p.offset for topic in fetched.topics for p in topic.partitions] == ([] if topics is None else [-1])

    def test_list_by_state(self) -> None:
        world = World()
        Client(world).make_stable()
        Client(world, "simple").commit(3)
        assert sorted(world.coordinator.list_groups([])[1]) == [
            ("g", "consumer", "Stable", "classic"),
            ("simple", "", "Empty", "classic"),
        ]
        assert world.coordinator.list_groups([" STABLE "])[1] == [("g", "consumer", "Stable", "classic")]
        assert world.coordinator.list_groups(["Dead"])[1] == []

    def test_gauges(self) -> None:
        world = World()
        Client(world).make_stable()
        Client(world, "simple").commit(3)
        assert world.registry_value(catalogue.NUM_GROUPS) == 2
        assert world.registry_value(catalogue.NUM_GROUPS_STABLE) == 1
        assert world.registry_value(catalogue.NUM_GROUPS_EMPTY) == 1
        assert world.registry_value(catalogue.NUM_GROUPS_DEAD) == 0
        assert world.registry_value(catalogue.NUM_OFFSETS) == 1


def test_threads_start_load_and_stop() -> None:
    world = World(leads=False)
    world.coordinator.start()
    world.lead(0, loads=False)
    world.lead(1, loads=False)
    world.coordinator.shutdown()
    client = Client(world)
    assert client.heartbeat() == ErrorCode.NOT_COORDINATOR
