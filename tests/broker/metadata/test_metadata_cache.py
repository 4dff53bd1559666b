"""MetadataCache: the effect of pushes on the snapshot and its offset. Covers `metadata/features.py`."""

from __future__ import annotations

import pytest

from barnabas.broker.metadata.metadata_cache import BrokerInfo, Endpoint, MetadataCache, Node
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages import k06_update_metadata as wire
from barnabas.protocol.metadata_records import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord
from barnabas.protocol.push_tags import FULL, INCREMENTAL, LEADER_DURING_DELETE

ID, OTHER_ID = b"a" * 16, b"b" * 16


def topic(name: str, topic_id: bytes, *leaders: int) -> wire.UpdateMetadataTopicState:
    """A topic whose partitions have these leaders, on replicas 1 and 2."""
    return wire.UpdateMetadataTopicState(
        topic_name=name,
        topic_id=topic_id,
        partition_states=[
            wire.UpdateMetadataPartitionState(partition_index=index, leader=leader, isr=[1, 2], replicas=[1, 2])
            for index, leader in enumerate(leaders)
        ],
    )


def push(
    *topics: wire.UpdateMetadataTopicState, brokers: tuple[int, ...] = (1, 2), type_: int = INCREMENTAL
) -> wire.UpdateMetadataRequest:
    """An UpdateMetadata; broker 2 has no listener EXTERNAL."""
    return wire.UpdateMetadataRequest(
        controller_id=100,
        type=type_,
        topic_states=list(topics),
        live_brokers=[
            wire.UpdateMetadataBroker(
                id=broker_id,
                rack=None,
                endpoints=[
                    wire.UpdateMetadataEndpoint(port=port, host=f"h{broker_id}", listener=name)
                    for name, port in (("INTERNAL", 1), ("EXTERNAL", 2))[: 1 if broker_id == 2 else 2]
                ],
            )
            for broker_id in brokers
        ],
    )


def registration(broker_id: int, epoch: int, *, is_leaving: bool = False) -> RegisterBrokerRecord:
    """A registered broker."""
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        in_controlled_shutdown=is_leaving,
        end_points=[BrokerEndpoint(name="INTERNAL", host=f"h{broker_id}", port=1)],
    )


@pytest.fixture
def cache() -> MetadataCache:
    made = MetadataCache()
    made.apply_update_metadata(push(topic("a", ID, 1, 2), type_=FULL))
    return made


def test_a_push_replaces_the_snapshot_and_returns_the_changed_topics(cache: MetadataCache) -> None:
    before = cache.snapshot
    assert cache.apply_update_metadata(push(topic("b", OTHER_ID, 1))) == {"b"}
    assert before.partition_count("b") is None, "a snapshot never changes"
    after = cache.snapshot
    assert (after.topic_id("a"), after.topic_id("b"), after.topic_name(OTHER_ID)) == (ID, OTHER_ID, "b")
    assert (after.topic_id("c"), after.topic_name(b"c" * 16)) == (ZERO_UUID, None)
    partition = after.partition(TopicPartition("a", 1))
    assert partition is not None
    assert (partition.leader, after.partition(TopicPartition("a", 2))) == (2, None)


def test_a_partition_is_in_sync_if_every_replica_is_in_its_isr(cache: MetadataCache) -> None:
    assert cache.snapshot.is_in_sync(TopicPartition("a", 1))
    assert not cache.snapshot.is_in_sync(TopicPartition("a", 2)), "no such partition"
    for isr, replicas in (([1], [1, 2]), ([1, 2], [1, 2, 3])):
        changed = topic("a", ID, 1)
        changed.partition_states[0].isr, changed.partition_states[0].replicas = isr, replicas
        cache.apply_update_metadata(push(changed))
        assert not cache.snapshot.is_in_sync(TopicPartition("a", 0))


def test_a_full_push_removes_topics_that_it_does_not_name(cache: MetadataCache) -> None:
    assert cache.apply_update_metadata(push(topic("b", OTHER_ID, 1), type_=FULL)) == {"a", "b"}
    assert set(cache.snapshot.topics) == {"b"}


def test_deleted_partitions_go_and_the_topic_with_the_last_one(cache: MetadataCache) -> None:
    cache.apply_update_metadata(push(topic("a", ID, LEADER_DURING_DELETE)))
    assert cache.snapshot.partition_count("a") == 1
    cache.apply_update_metadata(push(topic("a", ID, LEADER_DURING_DELETE, LEADER_DURING_DELETE)))
    assert cache.snapshot.partition_count("a") is None


def test_a_topic_that_was_created_again_starts_empty_and_outlives_the_deletion_of_the_old_one(
    cache: MetadataCache,
) -> None:
    cache.apply_update_metadata(push(topic("a", OTHER_ID, 1)))
    assert cache.snapshot.partition_count("a") == 1
    cache.apply_update_metadata(push(topic("a", ID, LEADER_DURING_DELETE, LEADER_DURING_DELETE)))
    assert cache.snapshot.topic_id("a") == OTHER_ID


def test_a_broker_without_the_listener_is_invisible_there(cache: MetadataCache) -> None:
    snapshot = cache.snapshot
    assert snapshot.nodes("EXTERNAL") == [Node(1, "h1", 2, None)]
    assert [node.id for node in snapshot.nodes("INTERNAL")] == [1, 2]
    assert snapshot.node(2, "EXTERNAL") is None


def test_a_broker_names_itself_as_controller_while_it_is_alive(cache: MetadataCache) -> None:
    assert cache.snapshot.controller_for_clients(2) == 2
    cache.apply_update_metadata(push(brokers=(1,)))
    assert cache.snapshot.controller_for_clients(2) == 1
    cache.apply_update_metadata(push(brokers=()))
    assert cache.snapshot.controller_for_clients(2) == -1


def test_a_broker_counts_as_the_last_live_one_until_a_push_names_live_brokers() -> None:
    own = BrokerInfo(2, "r", {"INTERNAL": Endpoint("own", 7, 0)})
    cache = MetadataCache(own)
    for _ in range(2):
        assert cache.snapshot.nodes_for_clients("INTERNAL") == [Node(2, "own", 7, "r")]
        assert cache.snapshot.nodes_for_clients("EXTERNAL") == cache.snapshot.nodes("INTERNAL") == []
        assert not cache.snapshot.is_alive(2)
        cache.apply_update_metadata(push(brokers=()))  # it is registered, and fenced still
    cache.apply_update_metadata(push(brokers=(1,)))
    assert [node.id for node in cache.snapshot.nodes_for_clients("INTERNAL")] == [1]


def test_registrations_decide_on_isr_members_and_outdated_fetches(cache: MetadataCache) -> None:
    cache.apply_update_metadata(
        push(), [registration(1, 10), registration(2, 20, is_leaving=True), registration(3, 30)]
    )
    cache.apply_update_metadata(push(), [])
    snapshot = cache.snapshot
    assert snapshot.is_isr_eligible(1, 10)
    assert snapshot.is_isr_eligible(1, -1)
    assert not snapshot.is_isr_eligible(1, 9), "an earlier incarnation"
    assert not snapshot.is_isr_eligible(2, 20), "about to leave"
    assert not snapshot.is_isr_eligible(3, 30), "fenced"
    assert [snapshot.is_outdated(1, epoch) for epoch in (-1, 9, 10)] == [False, True, False]
    assert [node.id for node in snapshot.fenced_nodes("INTERNAL")] == [3]


def test_the_offset_rises_and_is_reset_by_a_registration(cache: MetadataCache) -> None:
    calls: list[int] = []
    cache.on_caught_up.append(lambda: calls.append(1))
    assert cache.is_current
    cache.expect_offset(7)
    assert not cache.is_current
    cache.note_features({"transaction.version": 2})
    cache.note_offset(7)
    cache.note_offset(5)
    assert (cache.offset, cache.image_offset, cache.is_current, calls) == (7, 7, True, [1])
    assert (cache.finalized_features.levels, cache.finalized_features.epoch) == ({"transaction.version": 2}, 7)
    cache.forget_offset()
    assert (cache.offset, cache.image_offset, cache.is_current) == (-1, 7, False)
    assert cache.finalized_features.levels == {"transaction.version": 2}


def test_names_by_id_follow_every_kind_of_push() -> None:
    cache = MetadataCache()
    ids = [bytes([number]) * 16 for number in range(1, 6)]
    cache.apply_update_metadata(push(topic("a", ids[0], 1), topic("b", ids[1], 1), topic("old", ZERO_UUID, 1)))
    assert cache.snapshot.topic_names == {ids[0]: "a", ids[1]: "b"}
    cache.apply_update_metadata(push(topic("a", ids[2], 1)))  # created again
    assert cache.snapshot.topic_names == {ids[2]: "a", ids[1]: "b"}
    cache.apply_update_metadata(push(topic("a", ids[0], LEADER_DURING_DELETE)))  # the deletion of the older one
    assert cache.snapshot.topic_names == {ids[2]: "a", ids[1]: "b"}
    cache.apply_update_metadata(push(topic("b", ids[1], LEADER_DURING_DELETE), topic("c", ids[3], 1)))
    assert cache.snapshot.topic_names == {ids[2]: "a", ids[3]: "c"}
    cache.apply_update_metadata(push(topic("c", ids[3], 1), topic("d", ids[4], 1), type_=FULL))
    assert cache.snapshot.topic_names == {ids[3]: "c", ids[4]: "d"}


def test_a_push_brings_eligible_leader_replicas_and_the_next_one_removes_them(cache: MetadataCache) -> None:
    record = PartitionRecord(topic_id=ID, partition_id=1, eligible_leader_replicas=[2], last_known_elr=[1])
    cache.apply_update_metadata(push(topic("a", ID, 1, 2)), partitions=[record])
    shown = [(p.elr, p.last_known_elr) for p in cache.snapshot.topics["a"].partitions.values()]
    assert shown == [((), ()), ((2,), (1,))]
    cache.apply_update_metadata(push(topic("a", ID, 1, 2)))
    assert cache.snapshot.topics["a"].partitions[1].elr == ()
