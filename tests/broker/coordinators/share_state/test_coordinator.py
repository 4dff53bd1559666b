"""The share coordinator without threads: the shard of a share partition, pruning, and deleted topics.

Tests `coordinators/share_state/sensors.py`, too.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.coordinators.gauges import register_share_state
from barnabas.broker.coordinators.share_state import operations as op
from barnabas.broker.coordinators.share_state.coordinator import COLD_SNAPSHOT_MS, PRUNE_MS, ShareCoordinator
from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateBatch, StateRead, StateWrite
from barnabas.broker.metadata.metadata_cache import SHARE_GROUP_STATE_TOPIC
from barnabas.broker.settings.dynamic_config import ResourceType
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.push_tags import LEADER_DURING_DELETE
from tests.broker.apis.config_rig import set_configs
from tests.support.broker.broker_rig import BrokerRig, state, topic_id

NONE, LOADING, AWAY = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR
TOPIC = topic_id("t")


class ShareCoordinatorRig(BrokerRig):
    """Broker 1 leads __share_group_state-0, broker 2 leads __share_group_state-1."""

    def __init__(self, **settings: str) -> None:
        settings = {"share_coordinator_snapshot_update_records_per_snapshot": "1"} | settings
        super().__init__(**settings)
        self.coordinator: ShareCoordinator = self.share_coordinator
        self.lead()

    def lead(self, leader: int = 1, epoch: int = 0, **more: Any) -> None:
        first = state(leader, [1, 2], leader_epoch=epoch, partition_epoch=epoch, **more)
        topic = {"t": [state(1)] * 100} if epoch == 0 else {}
        self.push({SHARE_GROUP_STATE_TOPIC: [first, state(2, [1, 2])], **topic})

    def load(self) -> None:
        self.coordinator.run_pending_jobs()

    def handle(self, *operations: op.Operation) -> None:
        self.coordinator.handle(operations)

    def initialize(self, key: SharePartitionKey) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.handle(op.Initialize(key, answers.append, 1, 0))
        return answers

    def write(self, key: SharePartitionKey, offset: int = 0) -> list[ErrorCode]:
        answers: list[ErrorCode] = []
        self.handle(op.Write(key, answers.append, StateWrite(1, 0, 0, (StateBatch(offset, offset, 2, 1),))))
        return answers

    def read(self, key: SharePartitionKey) -> list[StateRead]:
        answers: list[StateRead] = []
        self.handle(op.Read(key, answers.append, 0))
        return answers

    @property
    def log(self) -> Any:
        return self.manager.partition(TopicPartition(SHARE_GROUP_STATE_TOPIC, 0)).log


@pytest.fixture
def rig() -> ShareCoordinatorRig:
    rig = ShareCoordinatorRig()
    rig.lead(isr=[1], epoch=1)
    rig.load()
    return rig


def key_in(rig: ShareCoordinatorRig, partition: int, number: int = 0) -> SharePartitionKey:
    """A share partition whose state this partition has."""
    keys = [SharePartitionKey("g", TOPIC, n) for n in range(100)]
    return [key for key in keys if rig.coordinator.partition_for(key.coordinator_key) == partition][number]


def test_each_share_partition_has_its_coordinator(rig: ShareCoordinatorRig) -> None:
    mine, theirs = key_in(rig, 0), key_in(rig, 1)
    assert rig.initialize(mine) == [NONE]
    assert rig.initialize(theirs) == [AWAY]
    answers: list[Any] = []
    rig.handle(op.Read(theirs, answers.append, 0), op.Read(mine, answers.append, 0))
    assert answers == [StateRead(AWAY), StateRead(NONE, 1, 0)]
    assert dict(rig.coordinator.look()).keys() == {mine}


def test_a_negative_partition_is_refused(rig: ShareCoordinatorRig) -> None:
    assert rig.initialize(SharePartitionKey("g", TOPIC, -1)) == [ErrorCode.INVALID_REQUEST]


def test_only_partitions_that_exist_have_a_state(rig: ShareCoordinatorRig) -> None:
    keys = [SharePartitionKey("g", TOPIC, n) for n in range(100, 200)]
    mine = next(key for key in keys if rig.coordinator.partition_for(key.coordinator_key) == 0)
    assert rig.initialize(mine) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_it_answers_when_it_has_loaded_and_no_more_when_it_has_resigned() -> None:
    rig = ShareCoordinatorRig()
    mine = key_in(rig, 0)
    assert rig.initialize(mine) == [LOADING]
    assert rig.coordinator.has_jobs
    rig.load()
    waiting = rig.initialize(mine)
    assert waiting == []  # the follower does not have it yet
    assert len(rig.coordinator.writes()) == 1
    rig.lead(leader=2, epoch=1)
    assert waiting == [AWAY]
    assert rig.initialize(mine) == [AWAY]


def test_a_write_that_no_follower_gets_is_refused_in_time() -> None:
    rig = ShareCoordinatorRig()
    rig.load()
    waiting = rig.initialize(key_in(rig, 0))
    rig.advance_ms(4999)
    assert waiting == []
    rig.advance_ms(2)
    assert waiting == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


def test_the_next_leader_has_what_was_answered(rig: ShareCoordinatorRig) -> None:
    mine = key_in(rig, 0)
    rig.initialize(mine)
    rig.write(mine)
    rig.lead(isr=[1], epoch=2)
    assert rig.read(mine) == [StateRead(LOADING)]
    rig.load()
    assert rig.read(mine) == [StateRead(NONE, 1, 0, (StateBatch(0, 0, 2, 1),))]


def test_the_log_is_pruned(rig: ShareCoordinatorRig) -> None:
    rig.coordinator.start()
    mine, other = key_in(rig, 0), key_in(rig, 0, 1)
    rig.initialize(other)
    rig.initialize(mine)
    for n in range(5):
        rig.write(mine, n)
    assert rig.log.log_start_offset == 0
    rig.advance_ms(PRUNE_MS)
    assert rig.log.log_start_offset == 0, "the other one's snapshot is the first record"
    assert PRUNE_MS == COLD_SNAPSHOT_MS
    rig.advance_ms(PRUNE_MS)
    end = rig.log.log_end_offset
    assert rig.log.log_start_offset == end - 2, "both have a new snapshot"
    persister: Any = SimpleNamespace(senders=SimpleNamespace(traffic=None))
    register_share_state(rig.registry, rig.coordinator, persister)
    tables = {row.name: list(table.read()) for table in rig.registry.tables() for row in table.rows}
    assert tables["last-pruned-offset"] == [((SHARE_GROUP_STATE_TOPIC, "0"), (end - 2,))]
    assert (("active",), (1,)) in tables["num-partitions"]
    assert persister.senders.traffic is not None
    rig.lead(isr=[1], epoch=2)
    rig.load()
    assert len(rig.read(mine)[0].batches[0]) == 4
    assert rig.read(other) == [StateRead(NONE, 1, 0)]
    rig.coordinator.shutdown()


def test_a_log_that_cannot_be_pruned_stays(rig: ShareCoordinatorRig, caplog) -> None:
    mine = key_in(rig, 0)
    rig.initialize(mine)
    for n in range(3):
        rig.write(mine, n)
    set_configs(rig.services, ResourceType.TOPIC, SHARE_GROUP_STATE_TOPIC, cleanup_policy="compact")
    with caplog.at_level("INFO"):
        rig.coordinator.prune()
    assert "was not pruned up to offset 2" in caplog.text
    assert rig.coordinator.shards()[0].pruned_offset == -1
    assert rig.log.log_start_offset == 0
    assert rig.write(mine, 4) == [NONE]


def test_the_state_of_deleted_topics_goes(rig: ShareCoordinatorRig) -> None:
    mine = key_in(rig, 0)
    rig.initialize(mine)
    rig.push({"t": [state(LEADER_DURING_DELETE)] * 100})
    rig.load()
    assert rig.coordinator.look() == []
    assert rig.read(mine) == [StateRead(ErrorCode.INVALID_REQUEST)]


def test_writes_are_measured(rig: ShareCoordinatorRig) -> None:
    mine = key_in(rig, 0)
    rig.initialize(mine)
    assert math.isnan(rig.coordinator._sensors.write_latency.snapshot()[0])
    assert rig.write(mine) == [NONE]
    assert rig.coordinator._sensors.writes.count == 1
    assert rig.coordinator._sensors.write_latency.snapshot() == (0.0, 0.0)


def test_requests_reach_every_shard_at_shutdown(rig: ShareCoordinatorRig) -> None:
    rig.coordinator.start()
    mine = key_in(rig, 0)
    rig.coordinator.shutdown()
    assert rig.initialize(mine) == [AWAY]
