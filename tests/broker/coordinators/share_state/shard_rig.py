"""A share coordinator's shard over a log in memory; shared by the tests."""

from __future__ import annotations

from typing import Any

from barnabas.broker.coordinators.share_state import operations as op
from barnabas.broker.coordinators.share_state import records
from barnabas.broker.coordinators.share_state.loader import load
from barnabas.broker.coordinators.share_state.shard import ShareStateContext, ShareStateShard
from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateBatch, StateWrite
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.coordinator_records.share_state import ShareSnapshotValue
from barnabas.protocol.records.batch import iter_records
from tests.broker.coordinators.fake_log import FakeLog, FakeReplicaManager

TP = TopicPartition("__share_group_state", 0)
TOPIC_ID = b"t" * 16
KEY, OTHER = SharePartitionKey("g", TOPIC_ID, 0), SharePartitionKey("g", TOPIC_ID, 1)


def acknowledged(first: int, last: int, count: int = 1) -> StateBatch:
    return StateBatch(first, last, 2, count)


class ShareStateRig:
    """A shard; `move` hands the log to another broker's."""

    def __init__(self, updates_per_snapshot: int = 500) -> None:
        self.clock = FakeClock()
        self.manager = FakeReplicaManager({TP: FakeLog()})
        self.known = {TOPIC_ID}
        self.context = ShareStateContext(
            self.manager, self.clock, lambda key: key.topic_id in self.known, updates_per_snapshot=updates_per_snapshot
        )
        self.epoch = 0
        self.shard = self.open()
        self.shard.activate()

    @property
    def log(self) -> FakeLog:
        return self.manager.logs[TP]

    def open(self) -> ShareStateShard:
        self.epoch += 1
        shard = ShareStateShard(TP, self.epoch, self.context)
        load(shard, self.log, 1 << 20)  # type: ignore[arg-type]
        return shard

    def move(self) -> None:
        """The leader dies: only what is committed survives it."""
        self.log.truncate(self.log.high_watermark)
        self.manager.waiting.clear()
        old, self.shard = self.shard, self.open()
        self.shard.activate()
        old.close()

    # Operations: what they were answered so far

    def initialize(self, key: SharePartitionKey = KEY, state_epoch: int = 1, start_offset: int = -1) -> list[Any]:
        answers: list[Any] = []
        self.shard.handle([op.Initialize(key, answers.append, state_epoch, start_offset)])
        return answers

    def write(self, *batches: StateBatch, key: SharePartitionKey = KEY, start_offset: int = 0) -> list[Any]:
        answers: list[Any] = []
        self.shard.handle([self.a_write(answers, *batches, key=key, start_offset=start_offset)])
        return answers

    def a_write(
        self, answers: list[Any], *batches: StateBatch, key: SharePartitionKey = KEY, start_offset: int = 0
    ) -> op.Write:
        return op.Write(key, answers.append, StateWrite(1, 1, start_offset, batches))

    def read(self, leader_epoch: int = 1, key: SharePartitionKey = KEY) -> list[Any]:
        answers: list[Any] = []
        self.shard.handle([op.Read(key, answers.append, leader_epoch)])
        return answers

    def summary(self, key: SharePartitionKey = KEY) -> list[Any]:
        answers: list[Any] = []
        self.shard.handle([op.ReadSummary(key, answers.append, -1)])
        return answers

    def delete(self, key: SharePartitionKey = KEY) -> list[Any]:
        answers: list[Any] = []
        self.shard.handle([op.Delete(key, answers.append)])
        return answers

    def kinds(self) -> str:
        """A letter for each record of the log: a snapshot, an update or a removal."""
        found = ""
        for batch in self.log.batches:
            for record in iter_records(batch):
                assert record.key is not None
                read = records.read(bytes(record.key), record.value)
                assert read is not None
                found += "-" if read[1] is None else "S" if isinstance(read[1], ShareSnapshotValue) else "u"
        return found
