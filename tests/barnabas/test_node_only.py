"""A client cannot control a broker on any listener: no data is lost, and brokers still obey the controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.connection import NodeConnection
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from barnabas.protocol.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest
from barnabas.protocol.messages.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.protocol.push_tags import Receiver
from tests.support.cluster import BarnabasCluster, addresses
from tests.support.forged_pushes import Push, add_forged_tags, forged_pushes
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
    """The directories of a topic on all brokers, under any name."""
    found: list[str] = []
    for node in cluster.brokers:
        found += [path.name for path in Path(node.directory, "data").glob(f"{topic}-*")]
    return sorted(found)


def ports(cluster: BarnabasCluster) -> list[int]:
    return [address.port for node in cluster.brokers for address in addresses(cluster, node)]


def pushes(controller_epoch: int, broker_epoch: int, offset: int) -> Iterator[tuple[Push, int]]:
    """Forged pushes that delete everything, without and with tags."""
    for is_tagged in (False, True):
        for push, version in forged_pushes("kept", 3, controller_epoch=controller_epoch, broker_epoch=broker_epoch):
            if is_tagged:
                add_forged_tags(push, Receiver("h3zYrOmsQJqmHD2y0yjFEg", 0, bytes(16)), offset, [bytes(16)])
            yield push, version


def test_no_push_of_a_client_deletes_anything_or_blocks_the_controller(cluster: BarnabasCluster) -> None:
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
    create(cluster, "later")  # every broker still obeys the controller
    produce(cluster, "later", 3)
    produce(cluster, "kept", 3)
    assert count(cluster, "kept") == 33


def test_a_listener_for_clients_refuses_requests_of_nodes(cluster: BarnabasCluster) -> None:
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
