"""kill -9 of the broker or the controller at any moment of a produce load.

What must hold afterwards: every acknowledged record is there, at the offset it was acknowledged with, in order, once;
readers went on throughout; the controller forgot nothing; `kafka-dump-log` finds the recovered files sound.

The moments derive from --seed; a kill comes after so many more acknowledgements, or so soon after a start that the
process is still recovering. `--kills` sets their number.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from barnabas.cluster import CONTROLLER_ID
from tests.support.cluster import BarnabasCluster
from tests.support.history import GroupMember, ProduceLoad, Reader
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

TOPIC = "survivor"
PARTITIONS = 3
BROKER_ID = 0
ACKNOWLEDGED_MAX = 3000  # between two kills
STARTING_MS_MAX = 400  # latest kill after a process's start
PROGRESS_TIMEOUT_MS = 60_000
EARLY_KILL_SHARE = 0.3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BarnabasCluster]:
    """A controller and a broker with the topic."""
    config = {
        "log.flush.offset.checkpoint.interval.ms": "500",
        "broker.session.timeout.ms": "1000",  # a killed broker cannot register again before it has expired
        "broker.heartbeat.interval.ms": "200",
    }
    cluster = BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config)
    with cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, PARTITIONS, 1, config={"segment.bytes": str(1024 * 1024)})
        admin.create_topics([topic])[TOPIC].result(20)
        yield cluster


def test_nothing_acknowledged_is_lost_however_often_a_process_is_killed(
    cluster: BarnabasCluster, tools: KafkaTools, request: pytest.FixtureRequest
) -> None:
    kills, seed = request.config.getoption("kills"), request.config.getoption("seed")
    load = ProduceLoad(cluster.bootstrap, TOPIC, PARTITIONS)
    reader = Reader(cluster.bootstrap, TOPIC, PARTITIONS)
    member = GroupMember(cluster.bootstrap, TOPIC, PARTITIONS)
    with member, reader, load:
        _await_progress(load, 1)
        _kill_at_random(cluster, load, kills, random.Random(seed))
        load.stop()
        assert load.errors == []
        print(f"{kills} kills, {load.acknowledged} records acknowledged")
        _await_readers(reader, member, load.sent)
    expected = [list(range(count)) for count in load.sent]
    assert [list(offsets.items()) for offsets in load.offsets] == [list(enumerate(numbers)) for numbers in expected]
    assert reader.numbers == expected
    assert _read_afresh(cluster, load.sent) == expected
    _check_the_controllers_memory(cluster)
    _check_the_files(cluster, tools)


def _kill_at_random(cluster: BarnabasCluster, load: ProduceLoad, kills: int, moments: random.Random) -> None:
    """Kill and restart `kills` times. Records are acknowledged between each kill and the second one after it."""
    pause = threading.Event()  # never set: waits by the real clock
    for kill in range(kills):
        node = cluster.nodes[moments.choice((BROKER_ID, BROKER_ID, CONTROLLER_ID))]
        is_early = moments.random() < EARLY_KILL_SHARE
        print(f"kill {kill}: {node.name} after {load.acknowledged} acknowledgements, again while starting: {is_early}")
        cluster.stop_node(node, signal.SIGKILL)
        cluster.start_node(node)
        if is_early:
            pause.wait(moments.uniform(0, STARTING_MS_MAX) / 1000)
            cluster.stop_node(node, signal.SIGKILL)
            cluster.start_node(node)
        _await_progress(load, moments.randint(1, ACKNOWLEDGED_MAX))


def _await_progress(load: ProduceLoad, count: int) -> None:
    goal = load.acknowledged + count
    eventually(f"{count} more acknowledgements", lambda: load.acknowledged >= goal, PROGRESS_TIMEOUT_MS)


def _await_readers(reader: Reader, member: GroupMember, counts: list[int]) -> None:
    for what, lists in (("the reader has read all", reader.numbers), ("the group has read all", member.seen)):
        eventually(what, lambda lists=lists: [len(numbers) for numbers in lists] == counts, PROGRESS_TIMEOUT_MS)


def _read_afresh(cluster: BarnabasCluster, counts: list[int]) -> list[list[int]]:
    with Reader(cluster.bootstrap, TOPIC, PARTITIONS) as reader:
        eventually(
            "all is read again", lambda: [len(numbers) for numbers in reader.numbers] >= counts, PROGRESS_TIMEOUT_MS
        )
    return reader.numbers


def _check_the_controllers_memory(cluster: BarnabasCluster) -> None:
    """Check after another crash of all processes: the topic keeps its configuration, and topics can be created."""
    for node in cluster.nodes.values():
        cluster.stop_node(node, signal.SIGKILL)
    for node in cluster.nodes.values():
        cluster.start_node(node)
    cluster.await_ready()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, TOPIC)
    assert admin.describe_configs([resource])[resource].result(20)["segment.bytes"].value == str(1024 * 1024)
    assert len(admin.list_topics(TOPIC, 20).topics[TOPIC].partitions) == PARTITIONS
    admin.create_topics([NewTopic("after", 1, 1)])["after"].result(20)


def _check_the_files(cluster: BarnabasCluster, tools: KafkaTools) -> None:
    """Check after a clean stop: logs, indexes and producer snapshots are valid."""
    directories = sorted(cluster.broker_data_directory().glob(f"{TOPIC}-?"))
    cluster.stop()
    assert len(directories) == PARTITIONS
    questions = {"*.log": ["--deep-iteration"], "*index": ["--verify-index-only"], "*.snapshot": []}
    for pattern, arguments in questions.items():
        files = [str(file) for directory in directories for file in sorted(directory.glob(pattern))]
        output = tools.run("kafka-dump-log", "--files", ",".join(files), *arguments).check().stdout
        for complaint in ("Mismatches", "isvalid: false", "Non-consecutive", "Exception"):
            assert complaint not in output
