"""Clients by kafka-python, unmodified: an idempotent producer, a reader without a group, a member of a group.

When the library gives up, a client begins anew, as an application would that is restarted.

Threads: see outsider.py.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import kafka
import kafka.errors

from tests.simulation.load.clients.fetching import Got
from tests.simulation.load.clients.outsider import (
    AGAIN_S,
    HEARTBEAT_MS,
    POLL_MS,
    SESSION_TIMEOUT_MS,
    Outsider,
)
from tests.simulation.load.clients.producers import Sent

CLOSE_S = 60


class KafkaPythonClient(Outsider):
    """A client that begins anew after an error of the library."""

    def run(self) -> None:
        """Work until it is asked to stop."""
        while not self.is_stopping:
            try:
                self.work()
            except kafka.errors.KafkaError as error:
                self.trouble = f"{self.name}: {error!r}"
                self.between.wait(AGAIN_S)

    def work(self) -> None:
        """Work until the library gives up, or it is asked to stop. Raises KafkaError."""
        raise NotImplementedError

    @contextlib.contextmanager
    def consumer(self, *topics: str, **settings: Any) -> Iterator[Any]:
        """A consumer, closed in the end; an error of the end is none of the work."""
        consumer = kafka.KafkaConsumer(
            *topics, bootstrap_servers=self.bootstrap, client_id=self.name, auto_offset_reset="earliest",
            enable_auto_commit=False, **settings,
        )  # fmt: skip
        try:
            yield consumer
        finally:
            with contextlib.suppress(kafka.errors.KafkaError):
                consumer.close()


class KafkaPythonProducer(KafkaPythonClient):
    """Sends numbered records with acks=all, idempotent, several requests in flight."""

    def work(self) -> None:
        """See KafkaPythonClient."""
        number = self.journal.begin()
        self._has_failed = False
        producer = kafka.KafkaProducer(bootstrap_servers=self.bootstrap, client_id=self.name, acks="all")
        try:
            while not (self.is_stopping or self._has_failed):
                partition = self.draw(self.partitions)
                sent = self.journal.next(partition, number)
                try:
                    future = producer.send(self.topic, value=sent.value, partition=partition)
                except kafka.errors.KafkaError:
                    self.journal.refused(partition, sent)
                    raise
                future.add_callback(partial(self._acknowledged, partition, sent))
                future.add_errback(partial(self._refused, partition, sent))
                self.between.wait(self.pause_s)
        finally:
            producer.close(timeout=CLOSE_S)

    def _acknowledged(self, partition: int, sent: Sent, about: Any) -> None:
        # Why None: an answer to a duplicate has no offset.
        self.journal.acknowledged(partition, sent, about.offset if about.offset >= 0 else None)

    def _refused(self, partition: int, sent: Sent, error: BaseException) -> None:
        self.trouble = f"{self.name}: {error!r}"
        self._has_failed = True
        self.journal.refused(partition, sent)


class KafkaPythonReader(KafkaPythonClient):
    """Reads every partition from its start, without a group."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._positions = [0] * self.partitions

    def work(self) -> None:
        """See KafkaPythonClient."""
        with self.consumer(group_id=None) as consumer:
            consumer.assign([kafka.TopicPartition(self.topic, each) for each in range(self.partitions)])
            for each, position in enumerate(self._positions):
                consumer.seek(kafka.TopicPartition(self.topic, each), position)
            while not self.is_stopping:
                for tp, records in consumer.poll(timeout_ms=POLL_MS).items():
                    for record in records:
                        self.journal.read(self.name, tp.partition, Got(record.offset, record.key, record.value))
                        self._positions[tp.partition] = record.offset + 1


class KafkaPythonMember(KafkaPythonClient):
    """A member of a classic group, which commits what it got."""

    def work(self) -> None:
        """See KafkaPythonClient."""
        timeouts = {"session_timeout_ms": SESSION_TIMEOUT_MS, "heartbeat_interval_ms": HEARTBEAT_MS}
        with self.consumer(self.topic, group_id="kafka-python", **timeouts) as consumer:
            while not self.is_stopping:
                got = consumer.poll(timeout_ms=POLL_MS)
                if not got:
                    continue
                for tp, records in got.items():
                    for record in records:
                        self.journal.delivered(tp.partition, Got(record.offset, record.key, record.value))
                offsets = {tp: records[-1].offset + 1 for tp, records in got.items()}
                consumer.commit({tp: kafka.structs.OffsetAndMetadata(end, "", -1) for tp, end in offsets.items()})
                for tp, end in offsets.items():
                    self.journal.committed(tp.partition, end)
