"""Readers and a watcher under stress: each is a thread that records its observations in the history.

Readers use confluent-kafka, like applications. The watcher sends its own requests, since it needs the exact watermarks
of each broker and their leader epochs, without a client's cache. Like any client with KIP-320, it never returns to an
older leader epoch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.protocol.messages import k01_fetch as fetch_wire
from barnabas.protocol.messages import k02_list_offsets as offsets_wire
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from tests.stress.checks.history import History, Record
from tests.stress.cluster import PARTITIONS, TOPIC
from tests.support.history import RECONNECT, Worker

READERS_GROUP = "no-group"
TURN_S = 0.02
WATCH_TIMEOUT_MS = 400
FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 7
METADATA_VERSION = 12
LATEST = -1
SETTINGS = {"socket.timeout.ms": 5_000, "topic.metadata.refresh.interval.ms": 5_000, "log_level": 0, **RECONNECT}
ISOLATION = {"read_uncommitted": 0, "read_committed": 1}
NO_EPOCH = "No epoch found less or equal to"


class SharedHistory:
    """A history and its lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.history = History()  # guarded by: lock


class StressReader(Worker):
    """Reads every partition from its start.

    An isolated broker does not know that its leadership has ended. librdkafka believes its old metadata while it
    validates a position, and asks it where a later epoch ends. It answers that it has none, as Apache Kafka does. This
    is no loss: the reader goes on where it was, and the history tells whether the records are the same.
    """

    def __init__(
        self,
        client: Mapping[str, Any],
        shared: SharedHistory,
        name: str,
        isolation: str,
        *,
        keeps_content: bool = False,
    ) -> None:
        """`client` has the settings with which it connects."""
        super().__init__(name)
        self.name = name
        self._shared = shared
        self._keeps_content = keeps_content
        self.positions = [0] * PARTITIONS  # owner: its thread; the next offset, as far as records went
        self.content: list[dict[int, Record]] = [{} for _ in range(PARTITIONS)]  # owner: its thread; empty unless kept
        settings = {
            **client,
            "group.id": READERS_GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 20,
        }
        self._consumer = Consumer({**settings, **SETTINGS})
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])

    def _turn(self) -> None:
        records = [message for message in self._consumer.consume(500, TURN_S) if self._is_record(message)]
        with self._shared.lock:
            for message in records:
                partition, offset, record = message.partition(), message.offset(), parse(message.value())
                assert partition is not None, "a record has a partition"
                assert offset is not None, "a record has an offset"
                self._shared.history.read(self.name, partition, offset, record)
                self.positions[partition] = offset + 1
                if self._keeps_content:
                    self.content[partition][offset] = record

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        is_lost = error.code() == KafkaError._AUTO_OFFSET_RESET
        if is_lost and NO_EPOCH in error.str():
            partition = message.partition()
            assert partition is not None, "a position has a partition"
            self._consumer.seek(TopicPartition(TOPIC, partition, self.positions[partition]))
            return False
        if is_lost or error.fatal():
            raise AssertionError(f"{self.name} of partition {message.partition()}: {error}")
        return False

    def _close(self) -> None:
        self._consumer.close()


def parse(value: bytes | str | None) -> Record:
    """The record with this value."""
    assert isinstance(value, bytes)
    producer, number, _ = value.split(b" ", 2)
    return Record(int(producer), int(number))


class Watcher(Worker):
    """Requests watermarks from the leaders repeatedly, and knows the leaders."""

    def __init__(
        self, addresses: Mapping[int, tuple[str, int]], shared: SharedHistory, connect: Connect = NodeConnection
    ) -> None:
        super().__init__("watcher")
        self._shared = shared
        self._connections = {
            broker_id: connect(host, port, timeout_ms=WATCH_TIMEOUT_MS) for broker_id, (host, port) in addresses.items()
        }  # owner: its thread
        self._next_broker = 0  # owner: its thread
        self.leaders: dict[int, tuple[int, int]] = {}  # partition -> (leader, epoch); owner: its thread; others read
        self.answers = 0  # owner: its thread; watermarks received

    def _turn(self) -> None:
        self._request_leaders()
        by_leader: dict[int, list[int]] = {}
        for partition, (leader, _) in self.leaders.items():
            by_leader.setdefault(leader, []).append(partition)
        for leader, partitions in by_leader.items():
            if leader in self._connections:
                self._request_watermarks(leader, partitions)
        self._stopping.wait(TURN_S)

    def _request_leaders(self) -> None:
        broker_ids = sorted(self._connections)
        self._next_broker = (self._next_broker + 1) % len(broker_ids)
        for partition in describe(self._connections[broker_ids[self._next_broker]]):
            known = self.leaders.get(partition.partition_index, (-1, -1))
            if partition.leader_epoch > known[1]:
                self.leaders[partition.partition_index] = (partition.leader_id, partition.leader_epoch)

    def _request_watermarks(self, leader: int, partitions: Iterable[int]) -> None:
        connection = self._connections[leader]
        partitions_and_epochs = [(partition, self.leaders[partition][1]) for partition in partitions]
        try:
            for isolation, level in ISOLATION.items():
                self._list_offsets(connection, partitions_and_epochs, isolation, level)
            self._fetch(connection, partitions_and_epochs)
        except NodeConnectionError:
            return  # it is down, paused or cut off

    def _list_offsets(
        self, connection: NodeConnection, partitions_and_epochs: list[tuple[int, int]], isolation: str, level: int
    ) -> None:
        request = offsets_wire.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=level,
            topics=[
                offsets_wire.ListOffsetsTopic(
                    name=TOPIC,
                    partitions=[
                        offsets_wire.ListOffsetsPartition(
                            partition_index=partition, current_leader_epoch=epoch, timestamp=LATEST
                        )
                        for partition, epoch in partitions_and_epochs
                    ],
                )
            ],
        )
        response = connection.send(request, LIST_OFFSETS_VERSION)
        answers = [p for topic in response.topics for p in topic.partitions if p.error_code == 0]
        self._note(f"latest offset, {isolation}", [(p.partition_index, p.offset) for p in answers])

    def _fetch(self, connection: NodeConnection, partitions_and_epochs: list[tuple[int, int]]) -> None:
        """Note the watermarks in fetch responses, by leader epoch: a new leader may start with a lower one."""
        for partition, epoch in partitions_and_epochs:
            request = fetch_wire.FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1,
                session_epoch=-1,
                topics=[
                    fetch_wire.FetchTopic(
                        topic=TOPIC,
                        partitions=[
                            fetch_wire.FetchPartition(
                                partition=partition, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1
                            )
                        ],
                    )
                ],
            )
            response = connection.send(request, FETCH_VERSION)
            answers = [p for topic in response.responses for p in topic.partitions if p.error_code == 0]
            self._note(f"fetch in epoch {epoch}", [(p.partition_index, p.high_watermark) for p in answers])

    def _note(self, observer: str, watermarks: list[tuple[int, int]]) -> None:
        with self._shared.lock:
            for partition, offset in watermarks:
                self._shared.history.watermark(observer, partition, offset)
        self.answers += len(watermarks)

    def _close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def describe(connection: NodeConnection) -> list[Any]:
    """The topic's partitions according to a broker; empty while it does not answer."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    try:
        response = connection.send(request, METADATA_VERSION)
    except NodeConnectionError:
        return []
    return [partition for topic in response.topics for partition in topic.partitions]
