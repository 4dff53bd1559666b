"""Apache Kafka's tools on the log directories of a broker: kafka-log-dirs, kafka-reassign-partitions between them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.cluster import BarnabasCluster
from tests.support.history import ProduceLoad, Reader
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

TOPIC = "moving"
PARTITIONS = 4
THROTTLE = 400_000  # bytes a second


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[BarnabasCluster]:
    """A broker with two log directories, and a topic."""
    if request.config.getoption("target") == "apache":
        pytest.skip("--target apache: these are Barnabas's own directories")
    config = {"log.dirs": "one,two", "offsets.topic.num.partitions": "1"}
    with BarnabasCluster(tmp_path, broker_count=1, first_port=0, config=config) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(20)
        yield cluster


class Tools:
    """The two tools, on one cluster."""

    def __init__(self, tools: KafkaTools, cluster: BarnabasCluster, directory: Path) -> None:
        self._tools = tools
        self._cluster = cluster
        self._plan = directory / "plan.json"

    def described(self) -> dict[str, dict[int, Any]]:
        """Run kafka-log-dirs. Returns the name given in log.dirs -> partition -> its row."""
        where = ("--bootstrap-server", self._cluster.bootstrap)
        printed = self._tools.run("kafka-log-dirs", *where, "--describe", "--topic-list", TOPIC).check().stdout
        (broker,) = json.loads(printed.splitlines()[-1])["brokers"]
        found: dict[str, dict[int, Any]] = {}
        for directory in broker["logDirs"]:
            assert directory["error"] is None
            rows = found[Path(directory["logDir"]).parent.name] = {}
            for row in directory["partitions"]:
                rows[int(row["partition"].rpartition("-")[2])] = row
        return found

    def reassign(self, mode: str, *arguments: str) -> str:
        """Run kafka-reassign-partitions with this plan."""
        where = ("--bootstrap-server", self._cluster.bootstrap, "--reassignment-json-file", str(self._plan))
        return self._tools.run("kafka-reassign-partitions", *where, mode, *arguments).check().stdout

    def reassign_refused(self) -> str:
        """Return the tool's output for a plan that the broker rejects."""
        where = ("--bootstrap-server", self._cluster.bootstrap, "--reassignment-json-file", str(self._plan))
        result = self._tools.run("kafka-reassign-partitions", *where, "--execute")
        return result.stdout + result.stderr

    def plan(self, directories: dict[int, str]) -> None:
        """Write the plan: partition -> the name of its log directory."""
        base = self._cluster.directory
        rows = [
            {"topic": TOPIC, "partition": index, "replicas": [0], "log_dirs": [str(base / name / "broker-0")]}
            for index, name in directories.items()
        ]
        self._plan.write_text(json.dumps({"version": 1, "partitions": rows}))


def test_logs_move_between_directories_under_load(cluster: BarnabasCluster, tools: KafkaTools, tmp_path: Path) -> None:
    own = Tools(tools, cluster, tmp_path)
    before = own.described()
    assert sorted(len(rows) for rows in before.values()) == [2, 2]
    target = dict.fromkeys(range(PARTITIONS), "two")
    moving = set(before["one"])
    with ProduceLoad(cluster.bootstrap, TOPIC, PARTITIONS, padding="x" * 1000) as load:
        eventually("there is something to move", lambda: load.acknowledged > 4000)
        own.plan(target)
        assert "Successfully started" in own.reassign("--execute", "--replica-alter-log-dirs-throttle", str(THROTTLE))
        during = own.described()
        assert {index for index, row in during["two"].items() if row["isFuture"]} <= moving
        assert set(during["one"]) <= moving
        goal = load.acknowledged + 2000
        eventually("producing goes on", lambda: load.acknowledged >= goal)
        assert "Successfully started" in own.reassign(
            "--execute", "--additional", "--replica-alter-log-dirs-throttle", str(1000 * THROTTLE)
        )
        eventually(
            "all have moved", lambda: "is still in progress" not in own.reassign("--verify", "--preserve-throttles")
        )
        load.stop()
    assert load.errors == []
    after = own.described()
    assert after["one"] == {}
    assert set(after["two"]) == set(range(PARTITIONS))
    assert not any(row["isFuture"] or row["offsetLag"] for row in after["two"].values())
    printed = own.reassign("--verify")
    assert printed.count("is complete") == PARTITIONS
    assert "Clearing" in printed
    with Reader(cluster.bootstrap, TOPIC, PARTITIONS) as reader:
        eventually("all is read", lambda: [len(numbers) for numbers in reader.numbers] >= load.sent)
    assert reader.numbers == [list(range(count)) for count in load.sent]
    cluster.stop_node(cluster.nodes[0])
    cluster.start_node(cluster.nodes[0])
    cluster.await_ready()
    assert set(own.described()["two"]) == set(range(PARTITIONS))


def test_cordoned_directories_get_no_new_partitions(
    cluster: BarnabasCluster, tools: KafkaTools, tmp_path: Path
) -> None:
    own = Tools(tools, cluster, tmp_path)
    one, two = (str(cluster.directory / name / "broker-0") for name in ("one", "two"))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def cordon(value: str) -> None:
        where = ("--bootstrap-server", cluster.bootstrap, "--entity-type", "brokers", "--entity-name", "0")
        tools.run("kafka-configs", *where, "--alter", "--add-config", f"cordoned.log.dirs=[{value}]").check()

    cordon(one)
    admin.create_topics([NewTopic("elsewhere", 3, 1)])["elsewhere"].result(20)
    assert {path.parent.parent.name for path in cluster.directory.glob("*/broker-0/elsewhere-*")} == {"two"}
    own.plan(dict.fromkeys(range(PARTITIONS), "one"))
    assert "InvalidReplicaAssignmentException" in own.reassign_refused()
    cordon(f"{one},{two}")

    def refused() -> bool:
        """The next heartbeat reports the directories to the controller; it is sent at once."""
        try:
            admin.create_topics([NewTopic("nowhere", 1, 1)])["nowhere"].result(20)
        except KafkaException as error:
            return error.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR
        admin.delete_topics(["nowhere"])["nowhere"].result(20)
        return False

    eventually("no directory accepts partitions", refused)
    cordon(two)
    eventually("a directory accepts partitions again", lambda: not refused())
