"""Apache Kafka's own tools for whole clusters, from the 4.3.1 jars, on three brokers in three racks."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cluster import Node
from barnabas.config.checks import RACK_AWARE_SELECTOR
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.kafka.kafka_tools import MAIN_CLASSES, SMALL_JVM, KafkaTools
from tests.support.processes import tied_to_parent
from tests.support.waiting import eventually

Run = Callable[..., str]
TIMEOUT_MS = 60_000
_numbers = itertools.count()


class RackedCluster(BarnabasCluster):
    """A cluster whose broker N is in rack N."""

    def properties(self, node: Node) -> dict[str, str]:
        """Return a node's properties, with its rack."""
        return {**super().properties(node), "broker.rack": f"rack-{node.node_id}"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RackedCluster]:
    """Three brokers with a short session timeout."""
    settings = {
        "replica.selector.class": RACK_AWARE_SELECTOR,
        "auto.leader.rebalance.enable": "false",
        "replica.fetch.max.bytes": "100000",
    }
    with RackedCluster(tmp_path_factory.mktemp("racks"), broker_count=3, first_port=0, config=settings) as running:
        yield running


@pytest.fixture
def run(tools: KafkaTools, cluster: RackedCluster) -> Run:
    """Runs a tool against the running brokers and returns its output."""

    def run_tool(tool: str, *arguments: str, stdin: bytes = b"", fails: bool = False) -> str:
        alive = ",".join(f"{node.host}:{node.port}" for node in cluster.brokers if node.is_running)
        where = ("--bootstrap-server", alive)
        command = (*arguments, *where) if tool == "kafka-cluster" else (*where, *arguments)
        result = tools.run(tool, *command, stdin=stdin, timeout_s=TIMEOUT_MS / 1000)
        if not fails:
            result.check()
        return result.stdout + (result.stderr if fails else "")

    return run_tool


@pytest.fixture
def make_topic(cluster: RackedCluster) -> Callable[..., str]:
    """Creates a topic with these replicas for each partition, and returns its name."""

    def make(*replicas: Sequence[int], **config: str) -> str:
        name = f"moved-{next(_numbers)}"
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        settings = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, len(replicas), replica_assignment=[list(r) for r in replicas], config=settings)
        admin.create_topics([topic])[name].result(30)
        return name

    return make


@contextlib.contextmanager
def stopped(cluster: RackedCluster, *broker_ids: int) -> Iterator[None]:
    """Stop these brokers for the time of the block."""
    nodes = [cluster.nodes[id_] for id_ in broker_ids]
    for node in nodes:
        cluster.stop_node(node)
    try:
        yield
    finally:
        for node in nodes:
            cluster.start_node(node)
        cluster.await_ready()


def described(run: Run, topic: str) -> list[dict[str, str]]:
    """Parse the output of kafka-topics for each partition."""
    lines = run("kafka-topics", "--describe", "--topic", topic).splitlines()
    fields = (re.findall(r"(\w[\w ]*): ([^\t]*)", line) for line in lines if "\tPartition: " in line)
    return [dict(found) for found in fields]


def isrs(run: Run, topic: str) -> list[set[str]]:
    """Return the ISR of each partition, as broker ids."""
    return [set(partition["Isr"].split(",")) for partition in described(run, topic)]


def write_json(path: Path, value: Any) -> str:
    """Write a JSON file and return its path."""
    path.write_text(json.dumps(value))
    return str(path)


def move_of(topic: str, *replicas: Sequence[int]) -> dict[str, Any]:
    """Return a reassignment plan with these replicas for each partition."""
    partitions = [{"topic": topic, "partition": i, "replicas": list(r)} for i, r in enumerate(replicas)]
    return {"version": 1, "partitions": partitions}


def fill(run: Run, topic: str, count: int) -> None:
    """Write `count` records of 1000 bytes."""
    run("kafka-console-producer", "--topic", topic, stdin=(b"x" * 1000 + b"\n") * count)


def test_kafka_topics_lists_under_replicated_and_unavailable_partitions(
    run: Run, make_topic: Any, cluster: RackedCluster
) -> None:
    safe = make_topic([0, 1], min_insync_replicas="1")
    at_min = make_topic([0, 1, 2], min_insync_replicas="2")
    gone = make_topic([2])

    def troubled(kind: str) -> set[str]:
        names = {line.split()[1] for line in run("kafka-topics", "--describe", kind).splitlines() if "Topic: " in line}
        return names & {safe, at_min, gone}

    with stopped(cluster, 2):
        eventually("it is noticed", lambda: troubled("--under-replicated-partitions") == {at_min, gone})
        assert troubled("--unavailable-partitions") == {gone}
        assert troubled("--at-min-isr-partitions") == {at_min}
        assert troubled("--under-min-isr-partitions") == {gone}
        (partition,) = described(run, at_min)
        assert (partition["Replicas"], partition["Isr"]) == ("0,1,2", "0,1")
        (partition,) = described(run, gone)
        assert (partition["Leader"], partition["Isr"], partition["Elr"]) == ("none", "", "2")
    eventually("all is well", lambda: not troubled("--under-replicated-partitions"), TIMEOUT_MS)


def test_kafka_reassign_partitions_moves_with_a_throttle(run: Run, make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic([0, 1])
    fill(run, topic, 2000)
    topics = write_json(tmp_path / "topics.json", {"version": 1, "topics": [{"topic": topic}]})
    proposed = run(
        "kafka-reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1,2"
    )
    assert set(json.loads(proposed.splitlines()[-1])["partitions"][0]["replicas"]) == {1, 2}

    plan = ("--reassignment-json-file", write_json(tmp_path / "plan.json", move_of(topic, [2, 1])))
    started = run("kafka-reassign-partitions", "--execute", *plan, "--throttle", "200000")
    assert f"Successfully started partition reassignment for {topic}-0" in started
    assert f"{topic}-0: replicas: 2,1,0. adding: 2. removing: 0." in run("kafka-reassign-partitions", "--list")
    assert "still in progress" in run("kafka-reassign-partitions", "--verify", *plan)
    assert "leader.replication.throttled.rate=200000" in run("kafka-configs", "--describe", "--entity-type", "brokers")
    assert "throttled.replicas=0:2" in run("kafka-topics", "--describe", "--topic", topic)

    faster = run("kafka-reassign-partitions", "--execute", "--additional", *plan, "--throttle", "100000000")
    assert "The inter-broker throttle limit was set to 100000000 B/s" in faster
    done = f"Reassignment of partition {topic}-0 is completed."
    eventually("it has moved", lambda: done in run("kafka-reassign-partitions", "--verify", *plan), TIMEOUT_MS)
    assert described(run, topic)[0]["Replicas"] == "2,1"
    assert "throttled" not in run("kafka-configs", "--describe", "--entity-type", "brokers")
    assert "throttled" not in run("kafka-topics", "--describe", "--topic", topic)


def test_kafka_reassign_partitions_cancels(run: Run, make_topic: Any, tmp_path: Path) -> None:
    topic = make_topic([0, 1])
    fill(run, topic, 2000)
    plan = ("--reassignment-json-file", write_json(tmp_path / "plan.json", move_of(topic, [0, 2])))
    run("kafka-reassign-partitions", "--execute", *plan, "--throttle", "100000")
    assert "Successfully cancelled" in run("kafka-reassign-partitions", "--cancel", *plan)
    assert "No partition reassignments found." in run("kafka-reassign-partitions", "--list")
    eventually("it is as before", lambda: described(run, topic)[0]["Replicas"] == "0,1")
    assert "throttled" not in run("kafka-configs", "--describe", "--entity-type", "brokers")


def test_kafka_leader_election_elects_preferred_leaders(run: Run, make_topic: Any, cluster: RackedCluster) -> None:
    topic = make_topic([1, 0, 2])
    with stopped(cluster, 1):
        assert described(run, topic)[0]["Leader"] == "0"
    eventually("the ISR is whole", lambda: isrs(run, topic) == [{"0", "1", "2"}], TIMEOUT_MS)
    election = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    output = run("kafka-leader-election", *election)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in output
    assert f"Valid replica already elected for partitions {topic}-0" in run("kafka-leader-election", *election)
    eventually("1 leads", lambda: described(run, topic)[0]["Leader"] == "1")


def test_kafka_leader_election_elects_an_unclean_leader_on_request(
    run: Run, make_topic: Any, cluster: RackedCluster
) -> None:
    topic = make_topic([1, 2])
    election = ("--election-type", "unclean", "--topic", topic, "--partition", "0")
    with stopped(cluster, 2):
        eventually("2 is out", lambda: isrs(run, topic) == [{"1"}])
        cluster.stop_node(cluster.nodes[1])
        cluster.start_node(cluster.nodes[2])
        cluster.await_ready(nodes=[cluster.nodes[2]])
        try:
            assert described(run, topic)[0]["Leader"] == "none"
            output = run("kafka-leader-election", *election)
            assert f"Successfully completed leader election (UNCLEAN) for partitions {topic}-0" in output
            eventually("2 leads", lambda: described(run, topic)[0]["Leader"] == "2")
        finally:
            cluster.start_node(cluster.nodes[1])
            cluster.stop_node(cluster.nodes[2])  # `stopped` starts it
    eventually("the ISR is whole again", lambda: isrs(run, topic) == [{"1", "2"}], TIMEOUT_MS)


def test_kafka_replica_verification_finds_replicas_equal(
    run: Run, make_topic: Any, cluster: RackedCluster, tmp_path: Path
) -> None:
    topic = make_topic([0, 1, 2])
    fill(run, topic, 100)
    output = tmp_path / "verification.txt"
    tool = kafka_runtime().command(MAIN_CLASSES["kafka-replica-verification"], *SMALL_JVM)
    arguments = ["--broker-list", cluster.bootstrap, "--report-interval-ms", "500", "--topics-include", topic]
    with output.open("w") as stdout:  # the tool runs until it gets a signal
        child = subprocess.Popen(tied_to_parent([*tool, *arguments]), stdout=stdout, stderr=subprocess.STDOUT)
        try:
            message = f"max lag is 0 for partition {topic}-0 at offset 100 among 1 partitions"
            eventually("the tool has compared all", lambda: message in output.read_text(), TIMEOUT_MS)
        finally:
            child.kill()
            child.wait()
    assert "differ" not in output.read_text()


def test_kafka_log_dirs_describes_every_broker(run: Run, make_topic: Any, cluster: RackedCluster) -> None:
    topic = make_topic([0, 1], [2, 1])
    fill(run, topic, 10)
    output = run("kafka-log-dirs", "--describe", "--topic-list", topic, "--broker-list", "0,1,2")
    brokers = json.loads(output.splitlines()[-1])["brokers"]
    topics = {
        (broker["broker"], directory["logDir"]): {p["partition"] for p in directory["partitions"]}
        for broker in brokers
        for directory in broker["logDirs"]
    }
    assert topics == {
        (0, str(cluster.nodes[0].directory / "data")): {f"{topic}-0"},
        (1, str(cluster.nodes[1].directory / "data")): {f"{topic}-0", f"{topic}-1"},
        (2, str(cluster.nodes[2].directory / "data")): {f"{topic}-1"},
    }


class TestKafkaConfigs:
    """kafka-configs: topics, one broker, all brokers, loggers."""

    def change(self, run: Run, entity: Sequence[str], *changes: str, fails: bool = False) -> str:
        """Run kafka-configs --alter for an entity."""
        return run("kafka-configs", "--alter", *entity, *changes, fails=fails)

    def test_of_a_topic(self, run: Run, make_topic: Any) -> None:
        entity = ("--entity-type", "topics", "--entity-name", make_topic([0, 1, 2]))
        self.change(run, entity, "--add-config", "min.insync.replicas=2")
        eventually(
            "it is seen", lambda: "min.insync.replicas=2" in run("kafka-configs", "--describe", *entity), TIMEOUT_MS
        )

    def test_of_one_broker_and_of_all(self, run: Run, cluster: RackedCluster) -> None:
        every, one = (
            ("--entity-type", "brokers", "--entity-default"),
            ("--entity-type", "brokers", "--entity-name", "1"),
        )
        self.change(run, every, "--add-config", "num.io.threads=6,message.max.bytes=2000000")
        self.change(run, one, "--add-config", "num.io.threads=4,max.connections.per.ip=900")
        places = (
            "num.io.threads=4 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:num.io.threads=4, "
            "DYNAMIC_DEFAULT_BROKER_CONFIG:num.io.threads=6, DEFAULT_CONFIG:num.io.threads=8}"
        )
        eventually("it is seen", lambda: places in run("kafka-configs", "--describe", *one, "--all"), TIMEOUT_MS)
        assert "message.max.bytes=2000000" in run("kafka-configs", "--describe", *every)
        for id_, count in ((0, 6), (1, 4)):
            eventually("the pool has its size", lambda id_=id_, count=count: handlers(cluster.nodes[id_]) == count)
        too_many = self.change(run, one, "--add-config", "num.io.threads=9", fails=True)
        assert "value should not be greater than double the current value 4" in too_many
        fixed = self.change(run, one, "--add-config", "log.dirs=/elsewhere", fails=True)
        assert "Cannot update these configs dynamically: [log.dirs]" in fixed
        self.change(run, one, "--delete-config", "num.io.threads,max.connections.per.ip")
        self.change(run, every, "--delete-config", "num.io.threads,message.max.bytes")
        eventually("all brokers have the file's value", lambda: [handlers(n) for n in cluster.brokers] == [8, 8, 8])

    def test_of_loggers(self, run: Run) -> None:
        entity = ("--entity-type", "broker-loggers", "--entity-name", "1")
        self.change(run, entity, "--add-config", "barnabas.replication=DEBUG")
        assert "barnabas.replication=DEBUG" in run("kafka-configs", "--describe", *entity)
        self.change(run, entity, "--delete-config", "barnabas.replication")
        assert "barnabas.replication=INFO" in run("kafka-configs", "--describe", *entity)


def handlers(node: Node) -> int:
    """Return a broker's number of request handlers."""
    assert node.child is not None
    tasks = Path(f"/proc/{node.child.pid}/task").iterdir()
    return sum((task / "comm").read_text().startswith("req-handler") for task in tasks)


def test_kafka_cluster_prints_the_id_and_unregisters_a_broker(run: Run, cluster: RackedCluster) -> None:
    assert re.search(r"Cluster ID: \S{22}", run("kafka-cluster", "cluster-id"))

    def states(*flags: str) -> dict[str, tuple[str, str]]:
        lines = run("kafka-cluster", "list-endpoints", *flags).splitlines()[1:]
        return {fields[0]: (fields[3], fields[4]) for fields in map(str.split, lines)}

    alive = {str(id_): (f"rack-{id_}", "unfenced") for id_ in range(3)}
    assert states() == states("--include-fenced-brokers") == alive
    with stopped(cluster, 2):
        eventually("it is fenced", lambda: states("--include-fenced-brokers")["2"] == ("rack-2", "fenced"))
        assert set(states()) == {"0", "1"}
        assert "Broker 2 is no longer registered." in run("kafka-cluster", "unregister", "--id", "2")
        eventually("the broker is unregistered", lambda: set(states("--include-fenced-brokers")) == {"0", "1"})
        again = run("kafka-cluster", "unregister", "--id", "2", fails=True)
        assert "Broker ID 2 is not currently registered" in again
    assert states() == alive, "it has registered again"


def test_a_consumer_reads_from_the_replica_of_its_rack(run: Run, make_topic: Any, cluster: RackedCluster) -> None:
    topic = make_topic([0, 1, 2])
    fill(run, topic, 50)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": topic, "client.rack": "rack-2"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        read: list[Any] = []
        eventually("all is read", lambda: read.extend(consumer.consume(50, 0.2)) or len(read) == 50, TIMEOUT_MS)
    finally:
        consumer.close()
    assert [bytes_out(node, topic) > 50_000 for node in cluster.brokers] == [False, False, True]


def bytes_out(node: Node, topic: str) -> float:
    """Return the bytes of a topic that a broker has sent to consumers, by its metrics."""
    with urllib.request.urlopen(f"http://{node.host}:{node.metrics_port}/metrics", timeout=10) as page:
        text = page.read().decode()
    found = re.search(
        rf'^kafka_server_brokertopicmetrics_bytesout_total{{[^}}]*topic="{topic}"[^}}]*}} (\S+)', text, re.M
    )
    return 0.0 if found is None else float(found[1])
