"""A plain client cannot command a broker, on whichever listener it finds: nothing is lost, and the controller rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.connection import NodeConnection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest
from barnabas.protocol.messages.k05_stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.protocol.messages.k06_update_metadata import UpdateMetadataRequest
from barnabas.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.metadata_records import RemoveTopicRecord
from barnabas.protocol.push_tags import FULL, Receiver, set_offset, set_receiver, set_records
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

EPOCHS = (-1, 1, 2**31 - 1)
REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
WAIT_S = 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BarnabasCluster]:
    with BarnabasCluster(tmp_path_factory.mktemp("node-only"), broker_count=3, first_port=0) as running:
        yield running


def create(cluster: BarnabasCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(WAIT_S)


def delete(cluster: BarnabasCluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics([name])[name].result(WAIT_S)


def produce(cluster: BarnabasCluster, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % 3)
    assert producer.flush(WAIT_S) == 0


def count(cluster: BarnabasCluster, topic: str) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "x"})
    ends = [consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, p), WAIT_S)[1] for p in range(3)]
    consumer.close()
    return sum(ends)


def directories(cluster: BarnabasCluster, topic: str) -> list[str]:
    """What the brokers hold of a topic, under whatever name."""
    found: list[str] = []
    for node in cluster.brokers:
        found += [path.name for path in Path(node.directory, "data").glob(f"{topic}-*")]
    return sorted(found)


def ports(cluster: BarnabasCluster) -> list[int]:
    return [port for node in cluster.brokers for port in (node.port, node.internal_port)]


def pushes(controller_epoch: int, broker_epoch: int, offset: int) -> Iterator[tuple[Any, int]]:
    """Commands to forget everything, plain and with tags that a stranger can make up."""
    epochs = {"controller_id": 100, "controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
    states = [StopReplicaPartitionState(partition_index=i, leader_epoch=-2, delete_partition=True) for i in range(3)]
    stop = StopReplicaTopicState(topic_name="kept", partition_states=states)
    for is_tagged in (False, True):
        for message, version in (
            (LeaderAndIsrRequest(type=FULL, **epochs), 7),
            (StopReplicaRequest(topic_states=[stop], **epochs), 4),
            (UpdateMetadataRequest(type=FULL, **epochs), 8),
        ):
            if is_tagged:
                set_receiver(message, Receiver("h3zYrOmsQJqmHD2y0yjFEg", 0, bytes(16)))
                set_offset(message, offset)
                set_records(message, [RemoveTopicRecord(topic_id=bytes(16))])
            yield message, version


def test_no_frame_of_a_client_deletes_anything_or_locks_the_controller_out(cluster: BarnabasCluster) -> None:
    create(cluster, "kept")
    produce(cluster, "kept", 30)
    before = directories(cluster, "kept")
    assert len(before) == 9
    for port in ports(cluster):
        with NodeConnection(cluster.controller.host, port, timeout_ms=5000) as connection:
            for controller_epoch in EPOCHS:
                for broker_epoch in (-1, 2**62):
                    for message, version in pushes(controller_epoch, broker_epoch, 2**62):
                        assert connection.send(message, version).error_code != ErrorCode.NONE
                markers = [
                    WritableTxnMarker(
                        producer_id=1, producer_epoch=0, transaction_result=is_commit,
                        coordinator_epoch=controller_epoch,
                        topics=[WritableTxnMarkerTopic(name="kept", partition_indexes=[0, 1, 2])],
                    )
                    for is_commit in (True, False)
                ]  # fmt: skip
                if port in {node.port for node in cluster.brokers}:
                    answer = connection.send(WriteTxnMarkersRequest(markers=markers), 1)
                    codes = {p.error_code for m in answer.markers for t in m.topics for p in t.partitions}
                    assert codes == {REFUSED}
    assert directories(cluster, "kept") == before
    assert count(cluster, "kept") == 30
    create(cluster, "later")  # the controller still rules every broker
    produce(cluster, "later", 3)
    produce(cluster, "kept", 3)
    assert count(cluster, "kept") == 33


def test_a_listener_for_clients_refuses_what_nodes_ask_each_other(cluster: BarnabasCluster) -> None:
    node = cluster.brokers[0]
    fetch = FetchRequest(replica_state=ReplicaState(replica_id=1), max_wait_ms=0, min_bytes=1, max_bytes=1)
    for port, is_refused in ((node.port, True), (node.internal_port, False)):
        with NodeConnection(node.host, port, timeout_ms=5000) as connection:
            for message, version in ((fetch, 17), (AddPartitionsToTxnRequest(), 4)):
                assert (connection.send(message, version).error_code == REFUSED) is is_refused


def test_a_topic_is_still_deleted_everywhere(cluster: BarnabasCluster) -> None:
    create(cluster, "gone")
    produce(cluster, "gone", 3)
    delete(cluster, "gone")
    eventually("it is", lambda: all(name.endswith("-delete") for name in directories(cluster, "gone")))


def test_a_topic_that_was_deleted_while_a_broker_was_away_leaves_nothing(cluster: BarnabasCluster) -> None:
    create(cluster, "missed")
    produce(cluster, "missed", 3)
    away = cluster.brokers[2]
    cluster.stop_node(away)
    delete(cluster, "missed")
    cluster.start_node(away)
    cluster.await_ready(nodes=[away])
    eventually("it is", lambda: all(name.endswith("-delete") for name in directories(cluster, "missed")))
