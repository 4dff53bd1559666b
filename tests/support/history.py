"""A produce load and readers that run while processes die, and the records that they saw.

The load numbers the records of each partition 0, 1, 2, ... and sends them with an idempotent producer, acks=all. If it
stops without an error, record n of a partition must be at offset n, exactly once, whatever was killed in between.

*Threads*: the load and each reader have their own thread. The test reads their counters at any time, and their lists
after `stop`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

TURN_S = 0.005
RECORDS_PER_TURN = 10
UNACKNOWLEDGED_MAX = 5000
FLUSH_TIMEOUT_S = 60
# Reconnect quickly: the default backs off for ten seconds. Why no recovery of metadata: librdkafka 2.16 bootstraps
# again whenever the only broker is down, and now and then waits for ever for the broker that it takes out of its list
# ("Cluster connection already in progress"). Without recovery, a Metadata response that lists no broker ends a client
# for good: a broker that gives one fails these tests.
RECONNECT = {
    "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20,
    "metadata.recovery.strategy": "none",
}  # fmt: skip


class Worker:
    """A thread that calls `_turn` until it is stopped; `stop` raises its exception, if there was one."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._failure: BaseException | None = None  # owner: the worker's thread; read after join
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def stop(self) -> None:
        """End the thread; raise its exception, if there was one."""
        self.__exit__()
        if self._failure is not None:
            raise self._failure

    @property
    def has_failed(self) -> bool:
        """Whether the thread ended with an exception, which `stop` will raise."""
        return self._failure is not None

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except BaseException as failure:
            self._failure = failure
        finally:
            self._close()

    def _turn(self) -> None:
        raise NotImplementedError

    def _close(self) -> None:
        raise NotImplementedError


class ProduceLoad(Worker):
    """Sends numbered records to every partition of a topic."""

    def __init__(
        self, client: str | Mapping[str, object], topic: str, partitions: int, padding: str = "x" * 100
    ) -> None:
        """`client` has the settings with which it connects, or only the bootstrap servers."""
        super().__init__("produce-load")
        self._topic = topic
        self._padding = padding
        self.sent = [0] * partitions  # owner: the worker's thread
        self.acknowledged = 0  # owner: the worker's thread; read by the test as a measure of progress
        self.offsets: list[dict[int, int]] = [{} for _ in range(partitions)]  # number -> offset; owner: its thread
        self.errors: list[str] = []  # owner: the worker's thread
        settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 2, "message.timeout.ms": 120_000}
        connecting = {"bootstrap.servers": client} if isinstance(client, str) else client
        self._producer = Producer({**connecting, **settings, **RECONNECT})

    def _turn(self) -> None:
        if sum(self.sent) - self.acknowledged < UNACKNOWLEDGED_MAX:
            for partition in range(len(self.sent)):
                self._send(partition)
        self._producer.poll(TURN_S)

    def _send(self, partition: int) -> None:
        for _ in range(RECORDS_PER_TURN):
            number = self.sent[partition]
            self._producer.produce(
                self._topic,
                f"{number} {self._padding}",
                partition=partition,
                on_delivery=lambda error, message, number=number: self._delivered(error, message, number),
            )
            self.sent[partition] += 1

    def _delivered(self, error: KafkaError | None, message: Message, number: int) -> None:
        self.acknowledged += 1
        if error is not None:
            self.errors.append(f"{message.partition()}/{number}: {error}")
        else:
            self.offsets[message.partition()][number] = message.offset()

    def _close(self) -> None:
        unsent = self._producer.flush(FLUSH_TIMEOUT_S)
        if unsent:
            self.errors.append(f"{unsent} records were never acknowledged")


class Reader(Worker):
    """Reads every partition from its start, without a group, while the load runs."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("reader")
        self.numbers: list[list[int]] = [[] for _ in range(partitions)]  # as read, by partition; owner: its thread
        self._consumer = Consumer(_consumer_config(bootstrap, "no-group", auto_offset_reset="error"))
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])

    def _turn(self) -> None:
        for message in self._consumer.consume(1000, 0.05):
            if _is_record(message):
                self.numbers[message.partition()].append(_number(message))

    def _close(self) -> None:
        self._consumer.close()


class GroupMember(Worker):
    """Reads as the only member of a group and commits; after a crash, it may repeat records but must miss none."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__("group-member")
        self.seen: list[set[int]] = [set() for _ in range(partitions)]  # owner: its thread
        # Why the query interval: without it, librdkafka may ask for a lost coordinator only after ten minutes.
        often = {"auto.commit.interval.ms": 100, "coordinator.query.interval.ms": 1000}
        settings = {**often, "session.timeout.ms": 10_000}
        self._consumer = Consumer({**_consumer_config(bootstrap, "crash-readers", "earliest"), **settings})
        self._consumer.subscribe([topic])

    def _turn(self) -> None:
        for message in self._consumer.consume(1000, 0.05):
            if _is_record(message):
                self.seen[message.partition()].add(_number(message))

    def _close(self) -> None:
        self._consumer.close()


def _consumer_config(bootstrap: str, group: str, auto_offset_reset: str) -> dict[str, object]:
    settings = {"group.id": group, "auto.offset.reset": auto_offset_reset}
    fetch = {"fetch.wait.max.ms": 100, "fetch.error.backoff.ms": 20}
    return {"bootstrap.servers": bootstrap, **settings, **fetch, **RECONNECT}


def _is_record(message: Message) -> bool:
    """Whether a message is a record. A retriable error (the broker is down) is not one; any other error raises."""
    error = message.error()
    if error is None:
        return True
    if error.code() == KafkaError._AUTO_OFFSET_RESET or error.fatal():
        raise AssertionError(f"a reader failed: {error}")
    return False


def _number(message: Message) -> int:
    return int(message.value().split()[0])
