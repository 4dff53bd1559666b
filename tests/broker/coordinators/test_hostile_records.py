"""Hostile records in a coordinator's topic affect only their shard.

Every record is input. Hypothesis draws batches of nonsense; the broker loads them, serves requests, lets time pass, and
loads its own writes again. Nothing may raise, and the neighbouring shard serves all the time.
Tests `coordinators/runtime/log_replay.py` and the loaders.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from barnabas.broker.apis.k89_streams_group_describe import describe as describe_streams
from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.consumer import records as consumer_group_records
from barnabas.broker.coordinators.consumer import values as t
from barnabas.broker.coordinators.consumer.values import Heartbeat
from barnabas.broker.coordinators.groups.group_offsets import Committer, FetchedOffsets, OffsetCommit, OffsetQuery
from barnabas.broker.coordinators.groups.shard import Shard
from barnabas.broker.coordinators.offsets.store import CommittedOffset
from barnabas.broker.coordinators.runtime.partitioning import partition_for
from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.broker.coordinators.share_groups import records as share_group_records
from barnabas.broker.coordinators.share_groups import values as share
from barnabas.broker.coordinators.share_groups.group import ShareGroup
from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateBatch
from barnabas.broker.coordinators.streams_groups import records as streams_group_records
from barnabas.broker.coordinators.streams_groups import values as streams
from barnabas.broker.coordinators.transactions.transaction import Producer
from barnabas.protocol.coordinator_records.offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.protocol.coordinator_records.record import encode_versioned
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.broker.coordinators.fake_log import World, snapshot
from tests.broker.coordinators.group_rig import RANGE
from tests.broker.coordinators.hostile_records import (
    BLOBS,
    OF_GROUPS,
    OF_SHARE_STATE,
    OF_TRANSACTIONS,
    Recipe,
    recipes,
)
from tests.broker.coordinators.share_state.shard_rig import ShareStateRig
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology
from tests.broker.coordinators.transaction_rig import T0, TP, TransactionShardRig

SHARD = partition_for("g", 2)  # where what speaks of group "g" is
NEIGHBOUR = next(name for name in "abcdef" if partition_for(name, 2) != SHARD)
TOPOLOGY = topology(subtopology("0", "t", changelogs="u"))
SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


class Requests:
    """What clients ask of group "g"; every answer is heard, and counted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.numbers = count()
        self.answers: dict[int, list[Any]] = {}

    def reply(self) -> Any:
        heard = self.answers.setdefault(next(self.numbers), [])
        return lambda *answer: heard.append(answer)

    def ask_everything(self, blob: bytes) -> None:
        coordinator = self.world.coordinator
        for member_id, generation_id in (("m", 1), ("n", 2), ("", -1)):
            protocols = (("range", blob),)
            for instance_id in (None, "i"):
                coordinator.join(
                    "g",
                    ev.Join(
                        member_id, f"new-{next(self.numbers)}", instance_id, "c", "/h", 10_000, 0, "consumer",
                        protocols, 3, None, self.reply(),
                    ),
                )  # fmt: skip
            coordinator.sync(
                "g", ev.Sync(member_id, None, generation_id, None, None, {"m": blob, "new": blob}, self.reply())
            )
            coordinator.heartbeat("g", member_id, None, generation_id)
            who = Committer("g", member_id, None, generation_id, 9)
            what = [OffsetCommit("t", 0, CommittedOffset(7, 1, "", coordinator.now_ms))]
            coordinator.commit_offsets(who, what, self.reply())
            for epoch in (0, generation_id, -1):
                beat = Heartbeat(member_id or "k", epoch, None, None, 1000, frozenset({"t", "u"}), owned={})
                coordinator.consumer_heartbeat("g", beat, self.reply())
        coordinator.fetch_offsets(OffsetQuery("g", None, True), self.reply())
        coordinator.list_groups([])
        coordinator.delete_offsets("g", {"t": [0]}, self.reply())
        self.world.coordinator.run_pending_jobs()

    def ask_share_group(self) -> None:
        shard = self.world.coordinator.shard_of("g")
        for member_id in ("m", "k"):
            for epoch in (0, 1, -1, 0):
                beat = share.Heartbeat(member_id, epoch, topic_names=frozenset({"t", "u"}) if epoch == 0 else None)
                self.change(shard, lambda shares, reply, beat=beat: shares.heartbeat("g", beat, reply))
        if shard.state is ShardState.ACTIVE:
            try:
                shard.describe_share_group("g", ShareGroup.tombstones)
            except ApiError as error:
                assert error.code == ErrorCode.GROUP_ID_NOT_FOUND  # noqa: PT017
        for _ in range(2):  # with members; without any
            for offsets in ({"t": {0: 7, 9: 7}}, {"u": {0: 1}, "t": {1: -1}}):
                self.change(shard, lambda shares, reply, to=offsets: shares.changes.alter_offsets("g", to, reply))
            self.change(shard, lambda shares, reply: shares.changes.delete_offsets("g", ["t", "gone"], reply))
            for member_id in list(shard.share_groups["g"].members) if "g" in shard.share_groups else ():
                leaving = share.Heartbeat(member_id, -1)
                self.change(shard, lambda shares, reply, beat=leaving: shares.heartbeat("g", beat, reply))
        self.world.coordinator.run_pending_jobs()

    def ask_streams_group(self) -> None:
        shard = self.world.coordinator.shard_of("g")
        for member_id in ("m", "k"):
            for epoch in (0, 1, 2, -1, 0):
                joins = {"topology": TOPOLOGY, "rebalance_timeout_ms": 1000} if epoch == 0 else {}
                beat = streams.Heartbeat(member_id, epoch, owned=streams.Tasks(), endpoint_epoch=-1, **joins)
                shard.streams_heartbeat("g", beat, self.reply())
        if shard.state is ShardState.ACTIVE:
            try:
                shard.describe_streams_group("g", describe_streams)
            except ApiError as error:
                assert error.code == ErrorCode.GROUP_ID_NOT_FOUND  # noqa: PT017

    def change(self, shard: Shard, change: Any) -> None:
        reply = self.reply()
        shard.change_shares(lambda shares: change(shares, reply), reply)

    def leave_and_delete(self) -> None:
        coordinator = self.world.coordinator
        members = (ev.LeavingMember("m"), ev.LeavingMember("", "i"), ev.LeavingMember("new-0"))
        coordinator.leave("g", ev.Leave(members, self.reply()))
        coordinator.delete_groups(["g"], self.reply())


def state(world: World, partition: int = SHARD) -> ShardState:
    return world.coordinator._shards[partition].state


class LogLines(logging.Handler):
    """What was logged at error and above."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def errors() -> Any:
    handler = LogLines()
    loggers = [
        logging.getLogger(name)
        for name in ("barnabas.group", "barnabas.transaction", "barnabas.share-state", "barnabas.timer")
    ]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.lines
    for logger in loggers:
        logger.removeHandler(handler)


def neighbour_serves(world: World) -> None:
    heard: list[ErrorCode] = []
    what = [OffsetCommit("t", 0, CommittedOffset(7, 1, "", world.coordinator.now_ms))]
    world.coordinator.commit_offsets(Committer(NEIGHBOUR, "", None, -1, 9), what, heard.append)
    assert heard == [ErrorCode.NONE]


def check_line(lines: list[str], topic: str) -> None:
    """One line says which partition, which offset, and what is wrong; there is no second one."""
    assert len(lines) == 1, lines
    assert f"{topic}-" in lines[0], lines
    assert "the record at offset" in lines[0], lines
    assert "\n" not in lines[0]


@SETTINGS
@given(recipes, st.sampled_from(BLOBS), st.sampled_from(("consumer", "share", "streams")))
def test_group_records(errors: list[str], batches: list[Recipe], blob: bytes, first: str) -> None:
    errors.clear()
    world = World(leads=False, checks_invariants=False)
    world.cache.snapshot = snapshot({"t": 2, "u": 1, "__consumer_offsets": 2})
    world.lead(1 - SHARD)
    world.lead(SHARD, loads=False)
    log = world.log_of("g")
    for recipe in batches:
        log.append(recipe.batch(OF_GROUPS))
    log.high_watermark = log.log_end_offset
    for _ in range(2):  # what it writes itself is read by the next leader
        world.coordinator.run_pending_jobs()
        if state(world) is ShardState.FAILED:
            check_line(errors, "__consumer_offsets")
            requests = Requests(world)
            world.coordinator.fetch_offsets(OffsetQuery("g", None, False), requests.reply())
            assert list(requests.answers.values()) == [[(FetchedOffsets(ErrorCode.NOT_COORDINATOR),)]]
            neighbour_serves(world)
            return
        requests = Requests(world)
        if first == "share":
            requests.ask_share_group()
        if first == "streams":
            requests.ask_streams_group()
        for _ in range(2):
            requests.ask_everything(blob)
            requests.ask_share_group()
            requests.ask_streams_group()
            world.advance_ms(50_000)
        world.advance_ms(700_000)
        requests.leave_and_delete()
        world.advance_ms(700_000)
        assert [line for line in errors if "Regular expression" not in line and "is not removed" not in line] == []
        assert state(world) is ShardState.ACTIVE
        neighbour_serves(world)
        world.fail_over()
        assert all(len(heard) == 1 for heard in requests.answers.values())


@SETTINGS
@given(recipes)
@example([Recipe(0, 12, 1, "none", "plain")])
def test_transaction_records(errors: list[str], batches: list[Recipe]) -> None:
    errors.clear()
    rig = TransactionShardRig()
    log = rig.manager.logs[TP]
    for recipe in batches:
        log.append(recipe.batch(OF_TRANSACTIONS))
    log.high_watermark = log.log_end_offset
    try:
        rig.move()
    except Exception as error:  # what the coordinator does about it is shown below
        assert "the record at offset" in str(error)  # noqa: PT017
        return
    for transactional_id in ("g", "m", "", "t"):
        for producer in (None, Producer(1, 1), Producer(0, 0), Producer(5, 3)):
            answers: list[Any] = []
            rig.shard.init_producer_id(transactional_id, 1000, producer, answers.append)
            named = producer or Producer(2, 2)
            rig.shard.add_partitions(transactional_id, named, [T0], 2, answers.append)
            rig.shard.end(transactional_id, named, True, 2, answers.append)
            rig.shard.verify(transactional_id, named, [T0])
            rig.markers.deliver()
            assert len(answers) == 3
    rig.clock.advance_ms(100_000)
    rig.shard.abort_timed_out()
    rig.markers.deliver()
    rig.shard.retry()
    rig.clock.advance_ms(100_000)
    rig.shard.remove_expired()
    assert rig.shard.state is ShardState.ACTIVE
    assert errors == []


@SETTINGS
@given(recipes)
def test_share_state_records(errors: list[str], batches: list[Recipe]) -> None:
    errors.clear()
    rig = ShareStateRig(updates_per_snapshot=1)
    rig.known = {bytes(16), b"t" * 16, b"u" * 16}
    for recipe in batches:
        rig.log.append(recipe.batch(OF_SHARE_STATE))
    rig.log.high_watermark = rig.log.log_end_offset
    try:
        rig.move()
    except Exception as error:  # what the coordinator does about it is shown below
        assert "the record at offset" in str(error)  # noqa: PT017
        return
    for _ in range(2):  # what it writes itself is read by the next leader
        keys = [SharePartitionKey("g", b"t" * 16, 1), *dict(rig.shard.look())]
        for key in keys:
            answers = [rig.initialize(key, state_epoch=100), rig.read(100, key), rig.summary(key)]
            answers += [rig.write(StateBatch(0, 9, 2, 1), key=key) for _ in range(3)]
            assert all(len(heard) == 1 for heard in answers)
        rig.clock.advance_ms(1000)
        rig.shard.snapshot_cold(1000)
        assert rig.shard.needed_offset() != 0
        rig.move()
    rig.known.clear()
    rig.shard.remove_topics(frozenset({b"t" * 16}))
    assert rig.shard.state is ShardState.ACTIVE
    assert [line for line in errors if "cannot be written" not in line] == []


def group_record(*members: tuple[str, str | None], generation: int = 1) -> SimpleRecord:
    value = GroupMetadataValue(
        protocol_type="consumer", generation=generation, protocol="range", leader="m", current_state_timestamp=1,
        members=[
            MemberMetadata(
                member_id=member_id, group_instance_id=instance_id, client_id="c", client_host="/h",
                rebalance_timeout=1000, session_timeout=10_000, subscription=RANGE[0][1], assignment=b"",
            )
            for member_id, instance_id in members
        ],
    )  # fmt: skip
    return SimpleRecord(1, encode_versioned(GroupMetadataKey(group="g")), encode_versioned(value, 3))


@pytest.mark.parametrize(
    ("members", "left"),
    [([("m", None), ("m", None)], {"m"}), ([("m", "i"), ("n", "i")], {"n"}), ([("m", "i"), ("m", "j")], {"m"})],
)
def test_a_group_that_names_a_member_twice_goes_on(members: list[tuple[str, str | None]], left: set[str]) -> None:
    world = World(leads=False, checks_invariants=False)
    world.lead(SHARD, loads=False)
    world.log_of("g").append(build_batch([group_record(*members)]))
    world.coordinator.run_pending_jobs()
    error, found = world.coordinator.describe("g", lambda group: set(group.members.by_id))
    assert (error, found) == (ErrorCode.NONE, left)
    world.coordinator.describe("g", lambda group: group.members.invariants())


def test_the_last_generation_is_followed_by_the_first() -> None:
    world = World(leads=False, checks_invariants=False)
    world.lead(SHARD, loads=False)
    world.log_of("g").append(build_batch([group_record(("m", None), generation=2**31 - 1)]))
    world.coordinator.run_pending_jobs()
    world.advance_ms(20_000)  # nobody is heard of
    assert world.coordinator.describe("g", lambda group: (group.generation_id, group.state.value))[1] == (1, "Empty")


def test_a_failed_shard_is_loaded_again_by_the_next_leader_epoch(errors: list[str]) -> None:
    world = World(leads=False, checks_invariants=False)
    world.lead(SHARD, loads=False)
    log = world.log_of("g")
    log.append(build_batch([group_record(("m", None))]))
    log.append(build_batch([SimpleRecord(1, b"\x00\x02\x00\x01g", b"\x00\x03\x00")]))
    world.coordinator.run_pending_jobs()
    assert state(world) is ShardState.FAILED
    assert "__consumer_offsets-" in errors[0]
    assert "the record at offset 1 " in errors[0]
    log.batches[1] = build_batch([SimpleRecord(1, b"\x00\x63", b"")], base_offset=1)  # as if it had been compacted away
    world.coordinator.on_leadership(world.tp(SHARD), 2)
    world.coordinator.run_pending_jobs()
    assert state(world) is ShardState.ACTIVE


def test_a_failing_event_takes_only_its_shard_offline(errors: list[str]) -> None:
    world = World()
    shard = world.coordinator._shards[SHARD]

    def stumble() -> None:
        raise IndexError("list index out of range")

    waiting = Requests(world)
    world.coordinator.join(
        "g",
        ev.Join("", "new", None, "c", "/h", 10_000, 60_000, "consumer", RANGE, 3, None, waiting.reply()),
    )
    shard._lock.post(stumble)
    assert shard.state is ShardState.FAILED
    assert "IndexError: list index out of range" in errors[0]
    assert [len(heard) for heard in waiting.answers.values()] == [1]
    neighbour_serves(world)


def test_an_unreadable_state_of_a_transaction_takes_its_shard_offline() -> None:
    rig = TransactionShardRig()
    rig.manager.logs[TP].append(build_batch([SimpleRecord(1, b"\0\0\0\1x", b"\0\0\0")]))
    with pytest.raises(Exception, match="__transaction_state-0: the record at offset 0 cannot be replayed"):
        rig.open()
    with rig.shard.isolate_failures():
        raise ValueError("the load failed")
    with pytest.raises(ApiError, match="not the coordinator"):
        rig.shard.listed()


def test_a_group_whose_epoch_cannot_go_up_harms_nobody_else(errors: list[str]) -> None:
    world = World(leads=False, checks_invariants=False)
    world.lead(1 - SHARD)
    world.lead(SHARD, loads=False)
    said = (t.GroupEpoch(2**31 - 1), t.MemberMetadata("m", t.Member("m", topic_names=frozenset({"t"}))))
    key_values = [consumer_group_records.encode("g", record) for record in said]
    log = world.log_of("g")
    log.append(build_batch([SimpleRecord(1, key, value) for key, value in key_values]))
    log.high_watermark = log.log_end_offset
    world.coordinator.run_pending_jobs()
    world.advance_ms(50_000)  # the member's session is over: it should go, which would raise the epoch
    assert "Member m is not removed" in errors[0]
    heard: list[Any] = []
    beat = Heartbeat("new", 0, None, None, 1000, frozenset({"t"}), owned={})
    world.coordinator.consumer_heartbeat("g", beat, heard.append)
    assert heard[0].code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert state(world) is ShardState.ACTIVE
    neighbour_serves(world)


def test_a_share_group_whose_epoch_cannot_go_up_harms_nobody_else(errors: list[str]) -> None:
    world = World(leads=False, checks_invariants=False)
    world.lead(1 - SHARD)
    world.lead(SHARD, loads=False)
    said = (share.GroupEpoch(2**31 - 1), share.MemberMetadata("m", share.Member("m", topic_names=frozenset({"t"}))))
    log = world.log_of("g")
    log.append(build_batch([SimpleRecord(1, *share_group_records.encode("g", record)) for record in said]))
    log.high_watermark = log.log_end_offset
    world.coordinator.run_pending_jobs()
    requests = Requests(world)
    requests.ask_share_group()
    world.advance_ms(50_000)  # the member's session is over: it should go, which would raise the epoch
    assert "Member m is not removed" in errors[0]
    requests.ask_share_group()
    assert all(len(heard) == 1 for heard in requests.answers.values())
    assert requests.answers[0][0][0].code == ErrorCode.UNKNOWN_SERVER_ERROR  # m joins with other topics
    assert state(world) is ShardState.ACTIVE
    neighbour_serves(world)


def test_a_streams_group_whose_epoch_cannot_go_up_harms_nobody_else(errors: list[str]) -> None:
    world = World(leads=False, checks_invariants=False)
    world.lead(1 - SHARD)
    world.lead(SHARD, loads=False)
    said = (
        streams.GroupTopology(TOPOLOGY),
        streams.GroupEpoch(2**31 - 1),
        streams.MemberMetadata("m", streams.Member("m")),
    )
    log = world.log_of("g")
    log.append(build_batch([SimpleRecord(1, *streams_group_records.encode("g", record)) for record in said]))
    log.high_watermark = log.log_end_offset
    world.coordinator.run_pending_jobs()
    requests = Requests(world)
    requests.ask_streams_group()
    world.advance_ms(50_000)  # the member's session is over: it should go, which would raise the epoch
    assert "Member m is not removed" in errors[0]
    assert all(len(heard) == 1 for heard in requests.answers.values())
    assert requests.answers[0][0][0].code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert state(world) is ShardState.ACTIVE
    neighbour_serves(world)
