"""Records that a client wrote to __consumer_offsets, in real processes: brokers live, across failovers and restarts;
the partition with the unreadable record is offline alone. And what else a client may do to a coordinator.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.broker.coordinators.runtime.partitioning import partition_for
from barnabas.protocol.coordinator_records.offsets import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from barnabas.protocol.coordinator_records.record import encode_versioned
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k66_list_transactions import ListTransactionsRequest
from tests.compare.conversation import Conversation
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

SHARDS = 2
TWICE = next(f"twice-{n}" for n in range(9) if partition_for(f"twice-{n}", SHARDS) == 0)
GOOD = [next(f"good-{n}" for n in range(9) if partition_for(f"good-{n}", SHARDS) == shard) for shard in range(SHARDS)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """Two brokers, each with a replica of each of the two partitions of __consumer_offsets."""
    config = {
        "offsets.topic.num.partitions": str(SHARDS),
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        "offsets.commit.timeout.ms": "2000",
    }
    with BarnabasCluster(tmp_path, broker_count=2, first_port=0, config=config) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(20)
        yield cluster


def commit(cluster: BarnabasCluster, group: str, offset: int) -> bool:
    """Commit an offset. Returns whether it succeeded."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    except KafkaException:
        return False
    finally:
        consumer.close()
    return True


def committed(cluster: BarnabasCluster, group: str) -> int | None:
    """Return the committed offset; None without a coordinator."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    try:
        return int(consumer.committed([TopicPartition("t", 0)], timeout=5)[0].offset)
    except KafkaException:
        return None
    finally:
        consumer.close()


def write(cluster: BarnabasCluster, partition: int, key: bytes, value: bytes) -> None:
    """Write to __consumer_offsets with the reserved client id __admin_client."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "client.id": "__admin_client", "acks": "all"})
    failures: list[object] = []
    producer.produce(
        "__consumer_offsets", value, key, partition, on_delivery=lambda error, _message: failures.append(error)
    )
    producer.flush(20)
    assert failures == [None]


def restart(cluster: BarnabasCluster) -> None:
    """Kill one broker after the other, so that every partition moves twice and every broker loads it."""
    for broker in cluster.brokers:
        cluster.stop_node(broker, signal.SIGKILL)
        eventually("the rest answers", lambda: committed(cluster, GOOD[1]) is not None)
        cluster.start_node(broker)
        cluster.await_ready()
        eventually("all replicas are in sync", lambda: are_in_sync(cluster))


def are_in_sync(cluster: BarnabasCluster) -> bool:
    """Check whether every partition has two in-sync replicas."""
    topics = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=10).topics.values()
    return all(len(partition.isrs) == 2 for topic in topics for partition in topic.partitions.values())


def test_one_record_takes_one_partition_offline_and_no_process(cluster: BarnabasCluster) -> None:
    for group in GOOD:
        eventually(f"{group} commits", lambda group=group: commit(cluster, group, 7))  # type: ignore[misc]
    member = MemberMetadata(
        member_id="m", group_instance_id="i", client_id="c", client_host="/h", rebalance_timeout=1000,
        session_timeout=10_000, subscription=b"", assignment=b"",
    )  # fmt: skip
    value = GroupMetadataValue(
        protocol_type="consumer", generation=1, protocol="range", leader="m", current_state_timestamp=1,
        members=[member, member],
    )  # fmt: skip
    write(cluster, 0, encode_versioned(GroupMetadataKey(group=TWICE)), encode_versioned(value, 3))
    restart(cluster)
    for group in GOOD:  # a duplicate member affects no other group
        eventually(f"{group} is there", lambda group=group: committed(cluster, group) == 7)  # type: ignore[misc]

    write(cluster, 0, encode_versioned(GroupMetadataKey(group=TWICE)), b"\x00\x03\x00")  # cut short
    restart(cluster)
    assert all(broker.is_running for broker in cluster.brokers)
    eventually("the other partition serves", lambda: committed(cluster, GOOD[1]) == 7)
    assert committed(cluster, GOOD[0]) is None
    messages = [line for lines in cluster.logs().values() for line in lines.splitlines() if "are offline until" in line]
    assert messages
    assert all("__consumer_offsets-0: the record at offset" in line for line in messages)


def test_a_pattern_with_endless_backtracking_is_answered_at_once(cluster: BarnabasCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "a" * 37})
    producer.init_transactions(30)
    for broker in cluster.brokers:
        conversation = Conversation(broker.port)
        answers = [
            conversation.ask(
                ListTransactionsRequest(
                    state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=pattern
                ),
                2,
            ).error_code
            for pattern in ("(a+)+b", "((a{1000}){1000}){1000}", "(")
        ]
        invalid = ErrorCode.INVALID_REGULAR_EXPRESSION
        assert answers == [ErrorCode.NONE, invalid, invalid]


def test_a_recreated_topic_has_no_committed_offsets(cluster: BarnabasCluster) -> None:
    group = GOOD[0]
    eventually("a commit", lambda: commit(cluster, group, 100))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["t"])["t"].result(20)
    eventually("the topic is recreated", lambda: _is_created(admin))
    eventually("nothing is committed", lambda: committed(cluster, group) == -1001)
    eventually("a commit in the new one", lambda: commit(cluster, group, 3))
    assert committed(cluster, group) == 3


def _is_created(admin: AdminClient) -> bool:
    try:
        admin.create_topics([NewTopic("t", 1, 2)])["t"].result(20)
    except KafkaException:
        return False
    return True
