"""A log directory on a small tmpfs runs full under a real broker of two.

What must hold: only that directory goes offline; its partitions are led by the other broker, those of the other
directory go on as before; a request for one that is lost says KAFKA_STORAGE_ERROR; nothing acknowledged is missing;
with more space the broker starts again, whole, and stops clean.

Needs the right to mount; elsewhere the test is skipped, and `tests/broker/storage/test_disk_faults.py` is all there is.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.connection import NodeConnection
from barnabas.common.clock import SystemClock
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k00_produce as produce_wire
from barnabas.protocol.messages.k35_describe_log_dirs import DescribeLogDirsRequest
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.support.cluster import BarnabasCluster
from tests.support.history import ProduceLoad, Reader
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.programs import skip_or_fail
from tests.support.waiting import eventually

TOPIC = "flights"
PARTITIONS = 6
SMALL_BYTES = 24 * 1024 * 1024
PROGRESS_TIMEOUT_MS = 60_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """The second log directory of broker 0: a mounted tmpfs."""
    path = tmp_path / "two" / "broker-0"
    path.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(path)], capture_output=True, check=False
    )
    if done.returncode:
        skip_or_fail("needs the right to mount a file system: run it as root")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def cluster(tmp_path: Path, small_disk: Path) -> Iterator[BarnabasCluster]:
    """Two brokers with two log directories each."""
    config = {
        "log.dirs": "one,two",
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        "offsets.topic.num.partitions": "2",
        "log.segment.bytes": str(4 * 1024 * 1024),
    }
    with BarnabasCluster(tmp_path, broker_count=2, first_port=0, config=config) as cluster:
        yield cluster


def ask(cluster: BarnabasCluster, broker_id: int, message: Any, version: int) -> Any:
    """Send a request to a broker and return the response."""
    node = cluster.nodes[broker_id]
    with NodeConnection(node.host, node.port, timeout_ms=10_000, clock=SystemClock()) as connection:
        return connection.send(message, version)


def directories(cluster: BarnabasCluster, broker_id: int) -> dict[str, tuple[ErrorCode, set[int]]]:
    """Describe the log directories: the parent directory's name -> its error and its partitions of the topic."""
    results = ask(cluster, broker_id, DescribeLogDirsRequest(topics=None), 4).results
    return {
        Path(r.log_dir).parent.name: (
            ErrorCode(r.error_code),
            {p.partition_index for topic in r.topics if topic.name == TOPIC for p in topic.partitions},
        )
        for r in results
    }


def produce_error(cluster: BarnabasCluster, broker_id: int, partition: int) -> ErrorCode:
    """Send a raw produce request to this broker, leader or not. Returns the error code of the response."""
    records = build_batch([SimpleRecord(SystemClock().wall_ms(), b"k", b"v")])
    data = produce_wire.PartitionProduceData(index=partition, records=memoryview(bytearray(records)))
    topic = produce_wire.TopicProduceData(name=TOPIC, topic_id=ZERO_UUID, partition_data=[data])
    answer = ask(cluster, broker_id, produce_wire.ProduceRequest(acks=1, timeout_ms=5000, topic_data=[topic]), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def leaders_and_isrs(admin: AdminClient) -> dict[int, tuple[int, list[int]]]:
    """Return the leader and the sorted ISR by partition."""
    partitions = admin.list_topics(TOPIC, 20).topics[TOPIC].partitions
    return {index: (partition.leader, sorted(partition.isrs)) for index, partition in partitions.items()}


def test_a_full_disk_takes_only_its_own_partitions_offline(
    cluster: BarnabasCluster, small_disk: Path, tools: KafkaTools
) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 2, config={"min.insync.replicas": "1"})])[TOPIC].result(20)
    eventually("all is in sync", lambda: all(isr == [0, 1] for _, isr in leaders_and_isrs(admin).values()))

    def has_logs() -> dict[str, tuple[ErrorCode, set[int]]] | None:
        # Why wait: another broker may have answered, before this one's push came.
        found = directories(cluster, 0)
        return found if sum(len(partitions) for _, partitions in found.values()) == PARTITIONS else None

    before = eventually("broker 0 has its logs", has_logs)
    lost = before["two"][1]
    assert len(lost) == PARTITIONS / 2
    with ProduceLoad(cluster.bootstrap, TOPIC, PARTITIONS, padding="x" * 2000) as load:
        eventually(
            "the small disk is full", lambda: directories(cluster, 0)["two"][0] != ErrorCode.NONE, PROGRESS_TIMEOUT_MS
        )
        expected = {index: (1, [1]) for index in lost}
        eventually(
            "the other broker leads what was on it",
            lambda: {index: found for index, found in leaders_and_isrs(admin).items() if index in lost} == expected,
        )
        others = {index: found for index, found in leaders_and_isrs(admin).items() if index not in lost}
        assert all(isr == [0, 1] for _, isr in others.values())
        goal = load.acknowledged + 1000
        eventually("producing goes on", lambda: load.acknowledged >= goal, PROGRESS_TIMEOUT_MS)
        load.stop()
    assert load.errors == []
    assert produce_error(cluster, 0, min(lost)) is ErrorCode.KAFKA_STORAGE_ERROR
    assert directories(cluster, 0)["one"] == (ErrorCode.NONE, before["one"][1])
    assert directories(cluster, 1)["two"][0] == ErrorCode.NONE

    cluster.stop_node(cluster.nodes[0])
    assert (small_disk.parents[1] / "one" / "broker-0" / ".kafka_cleanshutdown").exists()
    assert not (small_disk / ".kafka_cleanshutdown").exists()
    subprocess.run(["mount", "-o", f"remount,size={64 * SMALL_BYTES}", str(small_disk)], check=True)
    cluster.start_node(cluster.nodes[0])
    cluster.await_ready()
    eventually(
        "all is in sync again",
        lambda: all(isr == [0, 1] for _, isr in leaders_and_isrs(admin).values()),
        PROGRESS_TIMEOUT_MS,
    )
    assert directories(cluster, 0) == before
    with Reader(cluster.bootstrap, TOPIC, PARTITIONS) as reader:
        eventually("all is read", lambda: [len(numbers) for numbers in reader.numbers] >= load.sent)
    assert reader.numbers == [list(range(count)) for count in load.sent]

    for node in cluster.brokers:
        cluster.stop_node(node)
    assert (small_disk / ".kafka_cleanshutdown").exists()
    logs = ",".join(str(path) for path in sorted(small_disk.glob(f"{TOPIC}-*/*.log")))
    dumped = tools.run("kafka-dump-log", "--files", logs, timeout_s=120).check().stdout
    assert "isvalid: false" not in dumped
