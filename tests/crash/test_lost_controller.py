"""The controller's disk is lost while brokers run or are down: they lose no data, and its log can be rebuilt."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from barnabas.client.connection import NodeConnection
from barnabas.protocol.messages import k49_alter_client_quotas as quota_wire
from barnabas.protocol.messages import k51_alter_user_scram_credentials as scram_wire
from barnabas.protocol.messages.k48_describe_client_quotas import DescribeClientQuotasRequest
from barnabas.protocol.schema import Request
from tests.support.cluster import BarnabasCluster
from tests.support.waiting import eventually

TOPIC = "kept"
PARTITIONS = 4
RECORDS = 200
QUOTA = quota_wire.RequestEntryData(
    entity=[quota_wire.EntityData(entity_type="user", entity_name="alice")],
    ops=[quota_wire.OpData(key="producer_byte_rate", value=1e9)],
)
USER = scram_wire.ScramCredentialUpsertion(
    name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=b"salted"
)
RECOVER = [sys.executable, "-P", "-m", "barnabas.cli", "controller", "recover"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """Three brokers with a topic of three replicas, records, and a group's offsets."""
    config = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "200"}
    with BarnabasCluster(tmp_path, broker_count=3, first_port=0, config=config) as cluster:
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"retention.ms": "-1", "min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([topic])[TOPIC].result(20)
        produce(cluster, 0)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
        consumer.close()
        ask(cluster, quota_wire.AlterClientQuotasRequest(entries=[QUOTA]), 1)
        ask(cluster, scram_wire.AlterUserScramCredentialsRequest(upsertions=[USER]), 0)
        yield cluster


def ask(cluster: BarnabasCluster, message: Request, version: int) -> Any:
    """Send a request to broker 0; return its response."""
    node = cluster.nodes[0]
    with NodeConnection(node.host, node.port, timeout_ms=20_000) as connection:
        return connection.send(message, version)


def produce(cluster: BarnabasCluster, first: int) -> None:
    """Produce RECORDS records, numbered from `first`."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    errors: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            errors.append(error)

    for number in range(first, first + RECORDS):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS, on_delivery=note)
    assert producer.flush(60) == 0
    assert errors == []


def consumed(cluster: BarnabasCluster, count: int) -> list[int]:
    """Consume `count` records and return their sorted numbers."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    found: list[int] = []

    def has_all() -> bool:
        found.extend(int(m.value()) for m in consumer.consume(1000, 0.5))
        return len(found) >= count

    eventually("all records", has_all, 60_000)
    consumer.close()
    return sorted(found)


def log_bytes(cluster: BarnabasCluster) -> dict[str, int]:
    """Return the size of each segment of the topic on all brokers."""
    files = [path for node in cluster.brokers for path in node.directory.glob(f"data/{TOPIC}-*/*.log")]
    return {str(path): path.stat().st_size for path in files}


def lose_the_log(cluster: BarnabasCluster) -> None:
    """Stop the controller and delete its metadata log."""
    if cluster.controller.is_running:
        cluster.stop_node(cluster.controller, signal.SIGKILL)
    shutil.rmtree(cluster.controller.directory / "data" / "__cluster_metadata-0")
    (cluster.controller.directory / "data" / "recovery-point-offset-checkpoint").unlink()


def recover(cluster: BarnabasCluster, brokers: int = 3) -> subprocess.CompletedProcess[str]:
    """Rebuild the controller's log from the first `brokers` brokers."""
    file = cluster.controller.directory / "server.properties"
    addresses = ",".join(f"{node.host}:{node.internal_port}" for node in cluster.brokers[:brokers])
    return recover_from(file, addresses)


def recover_from(file: Path, addresses: str) -> subprocess.CompletedProcess[str]:
    """Run the recovery command with these addresses."""
    command = [*RECOVER, str(file), "--from-brokers", addresses]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def all_is_there(cluster: BarnabasCluster) -> None:
    """Check that all records, offsets and configurations are kept and that producing works."""
    assert consumed(cluster, RECORDS) == list(range(RECORDS))
    produce(cluster, RECORDS)
    assert consumed(cluster, 2 * RECORDS) == list(range(2 * RECORDS))
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], 30)
    assert committed.offset == 7
    consumer.close()
    (entry,) = ask(cluster, DescribeClientQuotasRequest(), 1).entries
    assert [(v.key, v.value) for v in entry.values] == [("producer_byte_rate", 1e9)]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    configs = admin.describe_configs([resource])[resource].result(20)
    assert (configs["retention.ms"].value, configs["min.insync.replicas"].value) == ("-1", "2")


def ends_with(cluster: BarnabasCluster) -> str:
    """Start the controller, wait for its end and return its last line."""
    cluster.start_node(cluster.controller)
    eventually("its end", lambda: not cluster.controller.is_running, 30_000)
    (line,) = re.findall(r"^controller: .*", cluster.controller.log_tail(60), re.M)
    return str(line)


def test_an_empty_controller_ends_and_is_rebuilt_from_running_brokers(cluster: BarnabasCluster) -> None:
    before = log_bytes(cluster)
    lose_the_log(cluster)
    line = ends_with(cluster)
    assert re.search(r"metadata log is empty, but broker \d has applied metadata offset .* controller recover", line)
    assert log_bytes(cluster) == before, "no log was touched"
    result = recover_from(cluster.controller.directory / "server.properties", cluster.bootstrap)
    assert re.fullmatch(
        r"controller: .* is a listener for clients: name the port of the broker's inter\S+\n", result.stderr
    )
    result = recover(cluster)
    assert result.returncode == 0, result.stderr
    assert "2 topics" in result.stdout
    assert "note: the SCRAM credentials of alice are secret: set them again\n" in result.stdout
    cluster.start_node(cluster.controller)
    cluster.await_ready()
    all_is_there(cluster)
    again = recover(cluster)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert "is in use: stop the controller first" in again.stderr


def test_it_is_rebuilt_from_restarted_brokers(cluster: BarnabasCluster) -> None:
    for node in cluster.brokers:
        cluster.stop_node(node, signal.SIGKILL if node.node_id == 1 else signal.SIGTERM)
    lose_the_log(cluster)
    for node in cluster.brokers[:2]:
        cluster.start_node(node)
    eventually("answers", lambda: "does not answer" not in recover(cluster, 2).stderr, 60_000)
    result = recover(cluster, 2)
    assert re.fullmatch(r"controller: broker 2 holds a replica of \S+ and sent no report.*\n", result.stderr)
    cluster.start_node(cluster.brokers[2])
    eventually("recovery", lambda: recover(cluster).returncode == 0, 60_000)
    cluster.start_node(cluster.controller)
    cluster.await_ready()
    all_is_there(cluster)


def test_brokers_reject_a_controller_with_an_old_copy_of_the_log(cluster: BarnabasCluster) -> None:
    data = cluster.controller.directory / "data"
    right, old = data.with_name("right"), data.with_name("old")
    cluster.stop_node(cluster.controller, signal.SIGKILL)
    shutil.copytree(data, old)
    cluster.start_node(cluster.controller)
    cluster.await_ready()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("later", 3, 3)])["later"].result(20)
    before = log_bytes(cluster)
    cluster.stop_node(cluster.controller, signal.SIGKILL)
    data.rename(right)
    old.rename(data)
    cluster.start_node(cluster.controller)
    rejection = "The controller is not the one that this broker knows"
    for node in cluster.brokers:
        is_rejected = partial(lambda name: rejection in name.log_tail(100), node)
        eventually(f"{node.name} rejects the controller", is_rejected, 30_000)
    cluster.stop_node(cluster.controller, signal.SIGKILL)
    assert log_bytes(cluster) == before
    for node in cluster.brokers:
        assert len(list(node.directory.glob("data/later-?"))) == 3, "no log was touched"
    shutil.rmtree(data)
    right.rename(data)
    cluster.start_node(cluster.controller)
    cluster.await_ready()
    assert "later" in admin.list_topics(timeout=20).topics
    all_is_there(cluster)
