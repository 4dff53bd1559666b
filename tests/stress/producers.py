"""The producers under stress: Kafka's own Java client and librdkafka, idempotent, acks=all.

The Java producers have the client's default of five requests in flight on a connection. Librdkafka's has one by
default. With more, it sometimes sends a record twice when a leader changes, with any broker (librdkafka issue 4953). Of
several requests in flight, the first are refused with NOT_LEADER_OR_FOLLOWER. The last one reaches the new leader, and
is refused with OUT_OF_ORDER_SEQUENCE_NUMBER. The Java client then repeats all of them unchanged. Librdkafka first
raises its producer epoch for every partition, and with a new epoch no broker can detect a duplicate from the old one.

Librdkafka also takes a record for acknowledged when a later one of the partition was (rd_kafka_dr_implicit_ack). That
is no answer of a broker, and has no offset. It is wrong when a leader changes while the first record of a session is
in flight: the client sends the following ones to the new leader at once. That does not know the producer yet, so it
takes them, as Apache Kafka does: a first batch may have any sequence, since retention may have removed those before.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from barnabas.common.processes.causes import cause_of
from tests.stress.checks.history import Record
from tests.stress.clients import SETTINGS, TURN_S, SharedHistory
from tests.stress.cluster import PARTITIONS, TOPIC
from tests.support.history import Worker
from tests.support.kafka.kafka_jars import KafkaRuntime
from tests.support.kafka.numbered_producers import Load, NumberedProducers, RecordEvent

RECORDS_PER_TURN = (0, 0, 1, 3)  # a partition; batches differ in size
UNACKNOWLEDGED_MAX = 600
RECORDS_PER_SESSION = 4_000  # then a producer begins a new idempotent session
PADDING_MAX = 1_500
BIG_PADDING = 20_000
BIG_SHARE = 0.01
FLUSH_TIMEOUT_S = 120
FOREVER_MS = "900000"
JAVA_SETTINGS = {"delivery.timeout.ms": FOREVER_MS, "max.block.ms": FOREVER_MS, "request.timeout.ms": "5000"}


class JavaProducers(NumberedProducers):
    """`count` producers with ids from `first` on, in one JVM. Any thread may read `progress` and `errors`."""

    def __init__(
        self, runtime: KafkaRuntime, client: Mapping[str, str], shared: SharedHistory, first: int, count: int, seed: int
    ) -> None:
        """`client` has the settings with which they connect."""
        load = Load(
            PARTITIONS,
            producers=count,
            first_id=first,
            seed=seed,
            turn_ms=round(TURN_S * 1000),
            records_per_turn=RECORDS_PER_TURN,
            padding_max=PADDING_MAX,
            waiting_max=UNACKNOWLEDGED_MAX,
            session_records=RECORDS_PER_SESSION,
            settings={**client, **JAVA_SETTINGS},
        )
        super().__init__(runtime, client["bootstrap.servers"], TOPIC, load, self._note)
        self._shared = shared
        self._first = first
        self._acknowledged = [0] * count  # owner: its thread
        self.errors: list[str] = []  # owner: its thread

    def progress(self) -> list[int]:
        """The acknowledgements of each producer so far."""
        return list(self._acknowledged)

    def _note(self, events: Sequence[RecordEvent]) -> None:
        with self._shared.lock:
            for event in events:
                self._note_one(event)

    def _note_one(self, event: RecordEvent) -> None:
        history, record = self._shared.history, Record(event.producer, event.number)
        if event.kind == "S":
            assert history.send(event.partition, event.producer) == record, f"{event} is out of step"
        elif event.kind == "A":
            offset = event.offset if event.offset >= 0 else None
            history.acknowledge(event.partition, record, offset)
            self._acknowledged[event.producer - self._first] += 1
        else:
            history.refuse(event.partition, record)
            self.errors.append(f"{record} to partition {event.partition}: {event.error}")


class LibrdkafkaProducer(Worker):
    """Sends its records to every partition, a few at a time, idempotent and with acks=all.

    Any thread may read `progress` and `errors`.
    """

    def __init__(
        self, client: Mapping[str, Any], shared: SharedHistory, number: int, seed: int, in_flight: int
    ) -> None:
        """`client` has the settings with which it connects."""
        super().__init__(f"producer-{number}")
        self._client = client
        self._shared = shared
        self._number = number
        self._random = random.Random(seed)
        self._in_flight = in_flight
        self._sent_by_client = 0  # owner: its thread
        self.unacknowledged = 0  # owner: its thread
        self.acknowledged = 0  # owner: its thread
        self.errors: list[str] = []  # owner: its thread; others check whether it is empty
        self._outcomes: list[tuple[KafkaError | None, Message, int, Record]] = []  # owner: its thread
        self._producer = self._new_producer()

    def progress(self) -> list[int]:
        """The acknowledgements so far, as a list of one number."""
        return [self.acknowledged]

    def _new_producer(self) -> Producer:
        settings = {
            "enable.idempotence": True,
            "acks": "all",
            "message.timeout.ms": 900_000,
            "max.in.flight.requests.per.connection": self._in_flight,
        }
        return Producer({**self._client, **settings, **SETTINGS})

    def _turn(self) -> None:
        if self.errors:
            self._stopping.wait(TURN_S)  # the run ends with this error
            return
        if self._sent_by_client >= RECORDS_PER_SESSION:
            self._start_session()
        elif self.unacknowledged < UNACKNOWLEDGED_MAX:
            for partition in range(PARTITIONS):
                for _ in range(self._random.choice(RECORDS_PER_TURN)):
                    self._send(partition)
        self._serve(lambda: self._producer.poll(0))
        self._stopping.wait(TURN_S)

    def _start_session(self) -> None:
        """Start a new idempotent session once all records are acknowledged, which keeps their order."""
        if self.unacknowledged == 0:
            self._producer = self._new_producer()
            self._sent_by_client = 0

    def _send(self, partition: int) -> None:
        with self._shared.lock:
            record = self._shared.history.send(partition, self._number)
        is_big = self._random.random() < BIG_SHARE
        padding = BIG_PADDING if is_big else self._random.randrange(PADDING_MAX)
        self.unacknowledged += 1
        self._sent_by_client += 1
        self._producer.produce(
            TOPIC,
            f"{record.producer} {record.number} {'x' * padding}",
            partition=partition,
            on_delivery=lambda error, message: self._outcomes.append((error, message, partition, record)),
        )

    def _serve(self, call: Callable[[], object]) -> None:
        """Let the client deliver outcomes, then note them.

        Why not in its callback: after a fatal error, the client calls it with a pending exception, which the first call
        in the callback raises. That call must not be the one that takes a lock.
        """
        try:
            call()
        except (KafkaException, SystemError) as failure:
            self.errors.append(f"producer {self._number}: {cause_of(failure) or failure}")
        outcomes, self._outcomes = self._outcomes, []
        for error, message, partition, record in outcomes:
            self._note(error, message, partition, record)

    def _note(self, error: KafkaError | None, message: Message, partition: int, record: Record) -> None:
        self.unacknowledged -= 1
        with self._shared.lock:
            if error is not None:
                self._shared.history.refuse(partition, record)
                self.errors.append(f"{record} to partition {partition}: {error}")
                return
            offset = message.offset()
            if offset is None or offset < 0:  # no broker has said so: see the module
                self._shared.history.infer(partition, record)
            else:
                self._shared.history.acknowledge(partition, record, offset)
        self.acknowledged += 1

    def _close(self) -> None:
        self._serve(lambda: self._producer.flush(1 if self.errors or self.has_failed else FLUSH_TIMEOUT_S))
        if self.unacknowledged:
            self.errors.append(f"producer {self._number}: {self.unacknowledged} records were never acknowledged")
