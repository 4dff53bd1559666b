"""A coordinator's shard over a log in memory; shared by the tests."""

from __future__ import annotations

from collections.abc import Collection

from barnabas.broker.coordinators.transactions import records as transaction_records
from barnabas.broker.coordinators.transactions.loader import load
from barnabas.broker.coordinators.transactions.shard import (
    PendingCompletion,
    ProducerResult,
    TransactionContext,
    TransactionShard,
)
from barnabas.broker.coordinators.transactions.transaction import Producer, TxnData
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import iter_records
from tests.broker.coordinators.fake_log import FakeLog, FakeReplicaManager

TP = TopicPartition("__transaction_state", 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class HeldMarkers:
    """Markers on their way."""

    def __init__(self) -> None:
        self.held: list[tuple[PendingCompletion, Collection[TopicPartition]]] = []

    def send(self, completion: PendingCompletion, partitions: Collection[TopicPartition]) -> None:
        self.held.append((completion, partitions))

    def deliver(self) -> None:
        """Have all of them written."""
        held, self.held = self.held, []
        for completion, partitions in held:
            completion.shard.marked(completion, partitions)


class TransactionShardRig:
    """A coordinator's shard; `move` hands the log to another broker's."""

    def __init__(self, version: int = 0, busy_wait_ms: int = 0) -> None:
        self.clock = FakeClock()
        self.scheduler = ManualScheduler(self.clock)
        self.manager = FakeReplicaManager({TP: FakeLog()})
        self.markers = HeldMarkers()
        self.ids = iter(range(100, 200))
        self.version = version
        self.context = TransactionContext(
            self.manager, self.clock, lambda: next(self.ids), lambda: self.version, self.markers,
            call_later=lambda wait_ms, job: self.scheduler.schedule_once("wait", job, wait_ms),
            retry_soon=lambda: None,
            busy_wait_ms=busy_wait_ms, write_timeout_ms=5000, id_expiration_ms=1000, checks_invariants=True,
        )  # fmt: skip
        self.epoch = 0
        self.shard = self.open()
        self.shard.activate()

    def open(self) -> TransactionShard:
        self.epoch += 1
        shard = TransactionShard(TP, self.epoch, self.context)
        load(shard, self.manager.logs[TP], 1 << 20)
        return shard

    def move(self) -> None:
        """The leader dies: only what is committed survives it."""
        log = self.manager.logs[TP]
        old = self.shard
        while log.log_end_offset > log.high_watermark:
            log.batches.pop()
            log.log_end_offset -= 1
        self.manager.waiting.clear()
        self.shard = self.open()
        self.shard.activate()
        old.close()

    # Requests: what they were answered so far

    def init(self, expected: Producer | None = None, id_: str = "x") -> list[ProducerResult]:
        answers: list[ProducerResult] = []
        self.shard.init_producer_id(id_, 60_000, expected, answers.append)
        return answers

    def add(self, *partitions: TopicPartition, producer: Producer | None = None, version: int = 0) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.shard.add_partitions("x", producer or self.producer, partitions, version, answers.append)
        return answers

    def end(self, is_commit: bool, version: int = 0) -> list[ProducerResult]:
        answers: list[ProducerResult] = []
        self.shard.end("x", self.producer, is_commit, version, answers.append)
        return answers

    @property
    def data(self) -> TxnData:
        return self.shard.describe("x")

    @property
    def producer(self) -> Producer:
        return Producer(self.data.producer_id, self.data.producer_epoch)

    def records(self) -> list[tuple[str, TxnData | None]]:
        """(id, state) of every record in the log; None for a tombstone."""
        found = []
        for batch in self.manager.logs[TP].batches:
            for record in iter_records(batch):
                assert record.key is not None
                read = transaction_records.read(bytes(record.key), record.value)
                assert read is not None
                found.append(read)
        return found

    def written(self) -> list[tuple[str, str | None]]:
        """(id, state's name) of every record in the log."""
        return [(id_, None if data is None else data.state.value) for id_, data in self.records()]
