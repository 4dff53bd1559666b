"""What coordinators know, on objects made for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.broker.coordinators.share_state.values import SharePartitionKey
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.simulation.cluster.coordinators import Coordinators

TP = TopicPartition("__consumer_offsets", 0)
OFFSET_KEY, MODERN_KEY = (1).to_bytes(2, "big"), (5).to_bytes(2, "big")
PATH = "/data/__consumer_offsets-0/00000000000000000000.log"


def shard(*waiting: tuple[int, int], gate: ErrorCode = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, **given: Any) -> Any:
    """A shard of epoch 3 that serves, with writes (first offset, end) that wait; it has loaded two records."""
    found = [SimpleNamespace(first_offset=first, end_offset=end) for first, end in waiting]
    return SimpleNamespace(
        tp=TP,
        leader_epoch=3,
        state=ShardState.ACTIVE,
        writes=SimpleNamespace(_waiting=found, _loaded_end_offset=2),
        _core=SimpleNamespace(committed_gate_locked=lambda: gate),
        **given,
    )


class Rig:
    """A broker that leads one partition of each coordinator, up to offset 2, of which `committed` is committed."""

    def __init__(self, committed: int) -> None:
        role = SimpleNamespace(is_leader=True, leader_epoch=3, leader_epoch_start_offset=2)
        partition = SimpleNamespace(role=role, log=SimpleNamespace(high_watermark=committed))
        content = b"".join(
            build_batch([SimpleRecord(0, key, b"v")], base_offset=offset, leader_epoch=2)
            for offset, key in enumerate((OFFSET_KEY, MODERN_KEY))
        )
        self.shards: dict[str, list[Any]] = {"groups": [], "transactions": [], "shares": []}
        self.led: dict[Any, Any] = {}
        services = SimpleNamespace(
            replica_manager=SimpleNamespace(find=lambda _tp: partition),
            transaction_coordinator=SimpleNamespace(_shards=SimpleNamespace(all=lambda: self.shards["transactions"])),
            share_coordinator=SimpleNamespace(shards=lambda: self.shards["shares"]),
            group_coordinator=SimpleNamespace(shards=lambda: self.shards["groups"]),
            share_partitions=SimpleNamespace(_led=self.led),
        )
        broker = SimpleNamespace(
            name="broker-0",
            is_running=True,
            server=SimpleNamespace(services=services),
            disk=SimpleNamespace(files=lambda: [PATH], written=lambda _path: content),
        )
        topic = SimpleNamespace(partitions={0: SimpleNamespace(leader_epoch=3)})
        self.nodes = SimpleNamespace(
            brokers=[broker], committed_image=lambda: SimpleNamespace(topic=lambda _name: topic)
        )
        self.topic = topic

    def wrong(self, **shards: Any) -> list[str]:
        """What a look at these shards finds."""
        self.shards |= {name: [each] for name, each in shards.items()}
        coordinators = Coordinators(self.nodes)
        coordinators.look()
        return coordinators.problems


def test_transactions_that_are_served_too_early() -> None:
    text = "__consumer_offsets-0: broker-0 serves transactions, but 1 of 2 records are committed"
    assert Rig(1).wrong(transactions=shard()) == [text]
    assert Rig(2).wrong(transactions=shard()) == []
    former = Rig(1)
    former.topic.partitions[0].leader_epoch = 4
    assert former.wrong(transactions=shard()) == [], "it was replaced, and does not know it"


def test_a_group_record_that_nobody_waits_for() -> None:
    text = "__consumer_offsets-0: broker-0 serves consumer groups, but their record 1 is not committed"
    assert Rig(1).wrong(groups=shard()) == [text]
    assert Rig(1).wrong(groups=shard((1, 2))) == []
    assert Rig(1).wrong(groups=shard((-1, -1))) == [], "an append is in progress"
    assert Rig(2).wrong(groups=shard()) == []


def test_a_share_state_that_fences_nobody() -> None:
    rig = Rig(2)
    key = SharePartitionKey("g", b"t" * 16, 0)
    rig.led[key] = SimpleNamespace(_machine=SimpleNamespace(is_active=True), leader_epoch=5)
    text = "g: the leader of epoch 5 has read partition 0, but broker-0 fences only those before epoch 4"
    assert rig.wrong(shares=shard(states={key: SimpleNamespace(leader_epoch=4)})) == [text]
    assert rig.wrong(shares=shard(states={key: SimpleNamespace(leader_epoch=5)})) == []


def test_a_gate_that_is_open_too_early() -> None:
    text = (
        "__consumer_offsets-0: broker-0 tells committed offsets, but the record 1 that it has loaded is not committed"
    )
    assert Rig(1).wrong(groups=shard((1, 2), gate=ErrorCode.NONE)) == [text]
    assert Rig(1).wrong(groups=shard((1, 2))) == []
    assert Rig(2).wrong(groups=shard((1, 2), gate=ErrorCode.NONE)) == [], "the next question finds it committed"
    assert Rig(2).wrong(groups=shard((2, 3), gate=ErrorCode.NONE)) == [], "it has written that itself"
    assert Rig(2).wrong(groups=shard((-1, -1), gate=ErrorCode.NONE)) == [], "an append is in progress"
