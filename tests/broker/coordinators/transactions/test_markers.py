"""Markers reach the current leader of each partition, until every partition has one.

Tests `coordinators/transactions/marker.py`, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.coordinators.transactions.marker import Marker
from barnabas.broker.coordinators.transactions.markers import (
    MISSES_UNTIL_DELETED,
    NO_LEADER_DESTINATION,
    MarkerBatch,
    MarkerSender,
    MarkerWriter,
    Order,
)
from barnabas.broker.coordinators.transactions.shard import PendingCompletion
from barnabas.broker.metadata.metadata_cache import (
    GROUP_METADATA_TOPIC,
    BrokerInfo,
    Endpoint,
    MetadataCache,
    MetadataSnapshot,
    PartitionInfo,
    TopicInfo,
)
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas.protocol.records.batch import ControlType, iter_records, parse_end_txn_marker

T0, T1, T2, GONE = (TopicPartition(name, index) for name, index in (("t", 0), ("t", 1), ("t", 2), ("gone", 0)))
OFFSETS = TopicPartition(GROUP_METADATA_TOPIC, 3)
NONE = ErrorCode.NONE
Errors = dict[TopicPartition, ErrorCode]


def snapshot(leaders: dict[TopicPartition, int], alive: Collection[int] = (0, 1, 2)) -> MetadataSnapshot:
    brokers = {id_: BrokerInfo(id_, None, {"PLAINTEXT": Endpoint(f"b{id_}", 9, 0)}) for id_ in alive}
    topics: dict[str, dict[int, PartitionInfo]] = {}
    for tp, leader in leaders.items():
        topics.setdefault(tp.topic, {})[tp.partition] = PartitionInfo(tp.partition, leader, 1, 1, (), (), ())
    return MetadataSnapshot(brokers, {name: TopicInfo(name, b"", parts) for name, parts in topics.items()})


class FakeShard:
    """What a completion reports to."""

    def __init__(self) -> None:
        self.done: set[TopicPartition] = set()
        self.is_abandoned = False
        self.wants = True

    def is_wanted(self, _completion: PendingCompletion) -> bool:
        return self.wants

    def marked(self, _completion: PendingCompletion, partitions: Collection[TopicPartition]) -> None:
        self.done.update(partitions)

    def abandoned(self, _completion: PendingCompletion) -> None:
        self.is_abandoned = True


class FakeConnection:
    """A leader that answers each partition as the test sets it."""

    def __init__(self) -> None:
        self.errors: Errors = {}
        self.fails = False
        self.sent: list[WriteTxnMarkersRequest] = []

    def send(self, request: WriteTxnMarkersRequest, version: int) -> WriteTxnMarkersResponse:
        assert version == 2
        self.sent.append(request)
        if self.fails:
            raise NodeConnectionError("hung up")
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=i, error_code=self.errors.get(TopicPartition(topic.name, i), NONE)
                                )
                                for i in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


class FakeWriter:
    def __init__(self) -> None:
        self.errors: Errors = {}

    def write(self, orders: list[Order]) -> None:
        for _marker, partitions, reply in orders:
            reply({tp: self.errors.get(tp, NONE) for tp in partitions})


class Queued:
    """The senders' queues without their threads: the test carries."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, MarkerBatch]] = []
        self.is_stopping = SimpleNamespace(wait=lambda _seconds: None)

    def send(self, destination: int, item: MarkerBatch) -> None:
        self.waiting.append((destination, item))


class MarkersRig:
    """Broker 0; brokers 1 and 2 are asked over connections."""

    def __init__(self) -> None:
        self.cache = MetadataCache()
        self.cache.snapshot = snapshot({T0: 0, T1: 1, T2: 2})
        self.writer = FakeWriter()
        writer: Any = self.writer
        self.sender = MarkerSender(
            broker_id=0, clock=FakeClock(), metadata_cache=self.cache, writer=writer, listener_name="PLAINTEXT",
            request_timeout_ms=1000,
        )  # fmt: skip
        self.queued: Any = Queued()
        self.sender.senders = self.queued
        self.connections: dict[int, Any] = {1: FakeConnection(), 2: FakeConnection()}
        self.shard = FakeShard()
        shard: Any = self.shard
        self.completion = PendingCompletion(shard, "x", 4, 7, 3, True, 2)

    def send(self, *partitions: TopicPartition) -> None:
        self.sender.send(self.completion, partitions)

    def carry(self) -> dict[int, set[TopicPartition]]:
        """Let every thread carry once what waits for it; returns what that was."""
        waiting, self.queued.waiting = self.queued.waiting, []
        by_destination: dict[int, list[MarkerBatch]] = {}
        for destination, item in waiting:
            by_destination.setdefault(destination, []).append(item)
        for destination, items in by_destination.items():
            self.sender._carry(destination, self.connections.get(destination), items)
        return {d: {tp for item in items for tp in item.partitions} for d, items in by_destination.items()}


@pytest.fixture
def rig() -> MarkersRig:
    return MarkersRig()


class TestSender:
    def test_each_leader_gets_its_own(self, rig: MarkersRig) -> None:
        rig.send(T0, T1, T2)
        assert rig.carry() == {0: {T0}, 1: {T1}, 2: {T2}}
        assert rig.shard.done == {T0, T1, T2}
        (marker,) = rig.connections[1].sent[0].markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 3, 4)
        assert (marker.transaction_result, marker.transaction_version) == (True, 2)

    def test_transactions_share_a_request(self, rig: MarkersRig) -> None:
        shard: Any = rig.shard
        rig.send(T1)
        rig.sender.send(PendingCompletion(shard, "y", 4, 8, 0, False, 0), [T1])
        rig.carry()
        assert [m.producer_id for m in rig.connections[1].sent[0].markers] == [7, 8]

    @pytest.mark.parametrize(
        "error",
        [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ],
    )
    def test_failed_markers_are_retried_at_the_current_leader(self, rig: MarkersRig, error: ErrorCode) -> None:
        rig.connections[1].errors[T1] = error
        rig.send(T1)
        rig.carry()
        assert not rig.shard.done
        rig.cache.snapshot = snapshot({T1: 2})
        assert rig.carry() == {NO_LEADER_DESTINATION: {T1}}
        assert rig.carry() == {2: {T1}}
        assert rig.shard.done == {T1}

    def test_a_leader_that_hangs_up_is_tried_again(self, rig: MarkersRig) -> None:
        rig.connections[1].fails = True
        rig.send(T1)
        for _ in range(3):
            assert rig.carry() == {1: {T1}}
        rig.connections[1].fails = False
        rig.carry()
        assert rig.shard.done == {T1}

    @pytest.mark.parametrize("where", [0, 1])
    @pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
    def test_who_is_overtaken_gives_up(self, rig: MarkersRig, where: int, error: ErrorCode) -> None:
        tp = TopicPartition("t", where)
        rig.connections[1].errors[tp] = rig.writer.errors[tp] = error
        rig.send(tp)
        rig.carry()
        assert rig.shard.is_abandoned
        assert not rig.shard.done
        assert rig.carry() == {}

    def test_nobody_leads(self, rig: MarkersRig) -> None:
        rig.cache.snapshot = snapshot({T1: -1, T2: 2}, alive=[0, 1])
        rig.send(T1, T2)
        for _ in range(2 * MISSES_UNTIL_DELETED):
            assert rig.carry() == {NO_LEADER_DESTINATION: {T1, T2}}
        rig.cache.snapshot = snapshot({T1: 1, T2: 2})
        rig.carry()
        assert rig.carry() == {1: {T1}, 2: {T2}}

    def test_a_deleted_partition_needs_none_in_the_end(self, rig: MarkersRig) -> None:
        rig.send(T1, GONE)
        assert rig.carry() == {1: {T1}, NO_LEADER_DESTINATION: {GONE}}
        for _ in range(MISSES_UNTIL_DELETED - 3):
            assert rig.carry() == {NO_LEADER_DESTINATION: {GONE}}
        assert rig.shard.done == {T1}
        rig.carry()
        assert rig.shard.done == {T1, GONE}

    def test_a_partition_whose_news_come_late_gets_its_marker(self, rig: MarkersRig) -> None:
        rig.send(GONE)
        rig.carry()
        rig.cache.snapshot = snapshot({GONE: 2})
        rig.carry()
        assert rig.carry() == {2: {GONE}}

    def test_what_is_not_wanted_any_more_is_dropped(self, rig: MarkersRig) -> None:
        rig.send(T0, T1)
        rig.shard.wants = False
        rig.carry()
        assert rig.connections[1].sent == []
        assert not rig.shard.done
        assert rig.carry() == {}


class FakePartitions:
    """Appends of markers, which the test settles."""

    def __init__(self) -> None:
        self.refuses: Errors = {}
        self.appended: dict[TopicPartition, tuple[bytes, int]] = {}
        self.waiting: list[Callable[[ErrorCode, int], None]] = []
        self.events: list[tuple[str, TopicPartition]] = []

    def append_internal(
        self, tp: TopicPartition, batch: bytes, _timeout_ms: int, on_done: Any, *, moved: set[TopicPartition],
        transaction_version: int,
    ) -> int:  # fmt: skip
        if tp in self.refuses:
            raise ApiError(self.refuses[tp])
        self.appended[tp] = batch, transaction_version
        self.waiting.append(on_done)
        self.events.append(("append", tp))
        moved.add(tp)
        return 0

    def complete_all_delayed(self, tps: Collection[TopicPartition]) -> None:
        self.events += [("wake", tp) for tp in tps]


class FakeGroups:
    error = NONE

    def end_transaction(self, tp: TopicPartition, marker: Marker, reply: Callable[[ErrorCode], Any]) -> None:
        assert tp == OFFSETS
        assert marker.producer_id == 7
        reply(self.error)


class TestWriter:
    @pytest.fixture
    def results(self) -> list[Errors]:
        return []

    @pytest.fixture
    def partitions(self) -> FakePartitions:
        return FakePartitions()

    @pytest.fixture
    def groups(self) -> FakeGroups:
        return FakeGroups()

    @pytest.fixture
    def write(
        self, results: list[Errors], partitions: Any, groups: Any
    ) -> Callable[[Collection[TopicPartition]], None]:
        writer = MarkerWriter(partitions, groups, FakeClock(), 1000)
        return lambda tps: writer.write([(Marker(7, 3, False, 4, 2), tps, results.append)])

    def test_it_answers_when_all_are_replicated(
        self, write: Any, results: list[Errors], partitions: FakePartitions
    ) -> None:
        write([T0, T1])
        first, second = partitions.waiting
        first(NONE, 5)
        assert results == []
        second(ErrorCode.REQUEST_TIMED_OUT, 6)
        assert results == [{T0: NONE, T1: ErrorCode.REQUEST_TIMED_OUT}]
        batch, version = partitions.appended[T0]
        (record,) = iter_records(batch)
        marker = parse_end_txn_marker(record)
        assert marker is not None
        assert (marker.control_type, marker.coordinator_epoch, version) == (ControlType.ABORT, 4, 2)

    def test_a_refusal_is_that_partitions(self, write: Any, results: list[Errors], partitions: FakePartitions) -> None:
        partitions.refuses[T0] = ErrorCode.NOT_LEADER_OR_FOLLOWER
        write([T0])
        assert results == [{T0: ErrorCode.NOT_LEADER_OR_FOLLOWER}]

    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (NONE, NONE),
            (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        ],
    )
    def test_offsets_are_ended_by_the_group_coordinator(
        self, write: Any, results: list[Errors], groups: FakeGroups, error: ErrorCode, expected: ErrorCode
    ) -> None:
        groups.error = error
        write([OFFSETS])
        assert results == [{OFFSETS: expected}]

    def test_followers_are_woken_when_all_markers_of_a_request_are_there(
        self, results: list[Errors], partitions: Any, groups: Any
    ) -> None:
        writer = MarkerWriter(partitions, groups, FakeClock(), 1000)
        writer.write([(Marker(id_, 3, True, 4, 2), [tp], results.append) for id_, tp in ((7, T0), (8, T1))])
        assert partitions.events[:2] == [("append", T0), ("append", T1)]
        assert sorted(partitions.events[2:]) == [("wake", T0), ("wake", T1)]

    def test_nothing_to_write(self, write: Any, results: list[Errors]) -> None:
        write([])
        assert results == [{}]
