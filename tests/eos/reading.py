"""Readers of a topic: during the run, and afterwards to its end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.eos.proof import Record, Topic
from tests.support.history import RECONNECT, Worker
from tests.support.kafka.clients import LEADER_IS_CHANGING
from tests.support.waiting import eventually

READERS_GROUP = "no-group"
AT_ONCE = 1000
POLL_S = 0.1
READ_TIMEOUT_MS = 60_000
ANSWER_TIMEOUT_S = 20
_PASSING = LEADER_IS_CHANGING | {
    KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._UNKNOWN_PARTITION,
}  # fmt: skip


class TopicReader(Worker):
    """Reads all partitions of a topic from their starts until it is stopped; `isolation` is Kafka's isolation.level.

    `client` has the settings with which it connects.
    """

    def __init__(
        self, client: Mapping[str, Any], topic: str, partitions: int, isolation: str = "read_committed"
    ) -> None:
        super().__init__(f"reader-{topic}")
        self._client = client
        self.records: dict[int, list[Record]] = {number: [] for number in range(partitions)}  # owner: its thread
        self._reached = dict.fromkeys(range(partitions), 0)  # owner: its thread
        self._topic = topic
        config = {
            **client, "group.id": READERS_GROUP, "enable.auto.commit": False,
            "auto.offset.reset": "error", "isolation.level": isolation, "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 20, "enable.partition.eof": True, **RECONNECT,
        }  # fmt: skip
        self._consumer = Consumer(config)
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    @property
    def count(self) -> int:
        """How many records were read."""
        return sum(map(len, self.records.values()))

    def await_end(self) -> None:
        """Wait until everything is read, to the high watermark.

        Raises AssertionError where a transaction is left open: then there is no getting there.
        """
        ends = end_offsets(self._client, self._topic, len(self.records))

        def is_there() -> bool:
            return self.has_failed or all(self._reached[number] >= end for number, end in ends.items())

        eventually(f"{self._topic} is read to {ends} (now {self._reached})", is_there, READ_TIMEOUT_MS)

    def _turn(self) -> None:
        for message in self._consumer.consume(AT_ONCE, POLL_S):
            error, partition, offset = message.error(), message.partition() or 0, message.offset() or 0
            if error is None:
                key, value = message.key() or b"", message.value() or b""
                self.records[partition].append(Record(key.decode(), value.decode()))
            elif error.code() == KafkaError._PARTITION_EOF:  # beyond markers too, which are no records
                self._reached[partition] = offset
            elif error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise AssertionError(f"the reader of {self._topic} failed: {error}")

    def _close(self) -> None:
        self._consumer.close()


def read_all(client: Mapping[str, Any], topic: str, partitions: int, isolation: str = "read_committed") -> Topic:
    """Everything that a new reader of this isolation level can read."""
    with TopicReader(client, topic, partitions, isolation) as reader:
        reader.await_end()
        reader.stop()
    return reader.records


def end_offsets(client: Mapping[str, Any], topic: str, partitions: int) -> dict[int, int]:
    """The high watermarks, regardless of open transactions; retries while leaders are being elected."""
    consumer = Consumer({**client, "group.id": READERS_GROUP, "isolation.level": "read_uncommitted"})
    ends: dict[int, int] = {}

    def ask() -> bool:
        try:
            for number in range(partitions):
                ends[number] = consumer.get_watermark_offsets(TopicPartition(topic, number), ANSWER_TIMEOUT_S)[1]
        except KafkaException as error:
            if error.args[0].code() not in _PASSING:
                raise
            return False
        return True

    try:
        eventually(f"the ends of {topic} are known", ask)
        return ends
    finally:
        consumer.close()
