"""Questions about records, metadata, producers and transactions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.protocol.api_keys import ApiKey as Key
from tests.compare import batches
from tests.compare.authorization.questions.question import MISSING, NEWEST, TOPICS, Fields, Question
from tests.compare.authorization.world import World

_PRODUCER = {"producer_id": 4444, "producer_epoch": 0}  # that no broker knows
_INVALID = ["open-m!", "shut-m!"]
_TRANSACTIONS = ["open-x", "shut-x", "open-n", "shut-n"]
_REPLICA = 7  # no broker has this id


def questions() -> Iterator[Question]:
    """Return the questions in their order."""
    yield Question("Produce", Key.PRODUCE, _produce, (3, 12, NEWEST))
    yield Question("Produce of a transaction", Key.PRODUCE, _produce_transactional, (3, 12, NEWEST))
    yield Question("Fetch", Key.FETCH, _fetch, (4, 12, NEWEST))
    yield Question("Fetch of a replica", Key.FETCH, _fetch_as_replica, (12, NEWEST))
    yield Question("ListOffsets", Key.LIST_OFFSETS, _list_offsets)
    yield Question("OffsetForLeaderEpoch", Key.OFFSET_FOR_LEADER_EPOCH, _epochs)
    yield Question("DeleteRecords", Key.DELETE_RECORDS, _delete_records)
    yield from _metadata_questions()
    yield from _producer_questions()
    yield from _transaction_questions()


def _topic(world: World, version: int, first_with_id: int, name: str, field: str = "name") -> dict[str, Any]:
    return {"topic_id": world.id_of(name)} if version >= first_with_id else {field: name}


def _produce(world: World, version: int) -> Fields:
    data = [{"index": 0, "records": memoryview(bytearray(batches.good()))}]
    topics = [{**_topic(world, version, 13, name), "partition_data": data} for name in TOPICS]
    return {"acks": 1, "timeout_ms": 1000, "topic_data": topics}


def _produce_transactional(world: World, version: int) -> Fields:
    batch = batches.build_batch(
        batches.records(), producer_id=4444, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    data = [{"index": 0, "records": memoryview(bytearray(batch))}]
    topics = [{**_topic(world, version, 13, "shut-t"), "partition_data": data}]
    return {"acks": 1, "timeout_ms": 1000, "topic_data": topics, "transactional_id": "shut-x"}


def _fetch(world: World, version: int) -> Fields:
    partitions = [{"partition": 0, "partition_max_bytes": 1000}]
    topics = [{**_topic(world, version, 13, name, "topic"), "partitions": partitions} for name in TOPICS]
    return {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 10_000, "topics": topics}


def _fetch_as_replica(world: World, version: int) -> Fields:
    replica = {"replica_state": {"replica_id": _REPLICA}} if version >= 15 else {"replica_id": _REPLICA}
    return {**_fetch(world, version), **replica}


def _list_offsets(_world: World, _version: int) -> Fields:
    partitions = [{"partition_index": 0, "timestamp": -1}]
    return {"replica_id": -1, "topics": [{"name": name, "partitions": partitions} for name in TOPICS]}


def _epochs(_world: World, _version: int) -> Fields:
    partitions = [{"partition": 0, "leader_epoch": 0}]
    return {"topics": [{"topic": name, "partitions": partitions} for name in TOPICS]}


def _delete_records(_world: World, _version: int) -> Fields:
    partitions = [{"partition_index": 0, "offset": 0}]
    return {"topics": [{"name": name, "partitions": partitions} for name in TOPICS], "timeout_ms": 1000}


# -- metadata


def _metadata_questions() -> Iterator[Question]:
    yield Question("Metadata", Key.METADATA, _metadata, (4, 8, 10, NEWEST))
    yield Question("Metadata by id", Key.METADATA, _metadata_by_id, (12, NEWEST))
    yield Question("Metadata of all topics", Key.METADATA, _all_metadata, (4, 9, NEWEST))
    yield Question("Metadata that creates", Key.METADATA, _metadata_that_creates, (4, NEWEST))
    yield Question("DescribeTopicPartitions", Key.DESCRIBE_TOPIC_PARTITIONS, _topic_partitions)
    yield Question("DescribeTopicPartitions of all topics", Key.DESCRIBE_TOPIC_PARTITIONS, _all_topic_partitions)
    yield Question("DescribeCluster", Key.DESCRIBE_CLUSTER, _cluster, (0, 1, NEWEST))


def _with_operations(version: int) -> Fields:
    fields: Fields = {"include_topic_authorized_operations": True} if version >= 8 else {}
    return {**fields, **({"include_cluster_authorized_operations": True} if 8 <= version <= 10 else {})}


def _metadata(_world: World, version: int) -> Fields:
    topics = [{"name": name} for name in TOPICS]
    return {"topics": topics, "allow_auto_topic_creation": False, **_with_operations(version)}


def _metadata_by_id(world: World, version: int) -> Fields:
    topics = [{"name": None, "topic_id": world.id_of(name)} for name in TOPICS]
    return {"topics": topics, "allow_auto_topic_creation": False, **_with_operations(version)}


def _all_metadata(_world: World, version: int) -> Fields:
    return {"topics": None, **_with_operations(version)}


def _metadata_that_creates(_world: World, version: int) -> Fields:
    """Ask for names that no topic can have: without the right they are refused earlier."""
    return {"topics": [{"name": name} for name in _INVALID], "allow_auto_topic_creation": True}


def _topic_partitions(_world: World, _version: int) -> Fields:
    return {"topics": [{"name": name} for name in sorted(TOPICS)], "response_partition_limit": 100}


def _all_topic_partitions(_world: World, _version: int) -> Fields:
    return {"topics": [], "response_partition_limit": 2000}


def _cluster(_world: World, _version: int) -> Fields:
    return {"include_cluster_authorized_operations": True}


# -- producers and transactions


def _producer_questions() -> Iterator[Question]:
    newest = 5  # version 6 is unstable in Apache Kafka
    for name, transactional_id in (("", None), (" of a transaction", "shut-i")):
        fields = {"transactional_id": transactional_id, "transaction_timeout_ms": 60_000}
        yield Question(f"InitProducerId{name}", Key.INIT_PRODUCER_ID, lambda _w, _v, fields=fields: fields, (0, newest))
    yield Question("DescribeProducers", Key.DESCRIBE_PRODUCERS, _describe_producers)


def _describe_producers(_world: World, _version: int) -> Fields:
    return {"topics": [{"name": name, "partition_indexes": [0]} for name in TOPICS]}


def _transaction_questions() -> Iterator[Question]:
    yield Question("AddPartitionsToTxn", Key.ADD_PARTITIONS_TO_TXN, _add_partitions, (0, 3))
    yield Question("AddPartitionsToTxn of brokers", Key.ADD_PARTITIONS_TO_TXN, _add_partitions_of_broker, (4, NEWEST))
    fields = {**_PRODUCER, "transactional_id": "shut-x"}
    with_group = {**fields, "group_id": "shut-g"}
    yield Question("AddOffsetsToTxn", Key.ADD_OFFSETS_TO_TXN, lambda _w, _v: with_group)
    yield Question("EndTxn", Key.END_TXN, lambda _w, _v: {**fields, "committed": True})
    yield Question("TxnOffsetCommit", Key.TXN_OFFSET_COMMIT, lambda _w, _v: {**with_group, "topics": _offsets()})
    yield Question("WriteTxnMarkers", Key.WRITE_TXN_MARKERS, _write_markers)
    yield Question(
        "DescribeTransactions", Key.DESCRIBE_TRANSACTIONS, lambda _w, _v: {"transactional_ids": _TRANSACTIONS}
    )
    yield Question("ListTransactions", Key.LIST_TRANSACTIONS, lambda _w, _v: {})


def _add_partitions(_world: World, _version: int) -> Fields:
    return {
        "v3_and_below_transactional_id": "shut-x",
        "v3_and_below_producer_id": 4444,
        "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]} for name in TOPICS],
    }


def _add_partitions_of_broker(_world: World, _version: int) -> Fields:
    topics = [{"name": name, "partitions": [0]} for name in TOPICS]
    given = {**_PRODUCER, "verify_only": True, "topics": topics}
    return {"transactions": [{**given, "transactional_id": name} for name in ("open-x", "shut-x")]}


def _offsets() -> list[Fields]:
    partitions = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    return [{"name": name, "partitions": partitions} for name in TOPICS]


def _write_markers(_world: World, _version: int) -> Fields:
    topics = [{"name": name, "partition_indexes": [0]} for name in ("open-t", *MISSING)]
    return {"markers": [{**_PRODUCER, "transaction_result": False, "topics": topics, "coordinator_epoch": 0}]}
