"""docker-compose.yml on a real engine: clients on both sides, brokers killed, cut off, stopped; nothing lost.

The load is checked as in tests/crash: record n of a partition stands at offset n, once, and a reader that went on all
the while has seen exactly these.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.docker.compose_cluster import BROKERS, CONTROLLERS, NODES, ComposeCluster
from tests.support.history import ProduceLoad, Reader
from tests.support.waiting import eventually

PARTITIONS = 6
WHOLE_TIMEOUT_MS = 90_000
PROGRESS = 2000


def create_topic(compose: ComposeCluster, name: str) -> str:
    """Create a topic with the cluster's defaults: three replicas, and min.insync.replicas=2."""
    admin = compose.admin()
    admin.create_topics([NewTopic(name, PARTITIONS)])[name].result(30)
    await_isr(compose, name, set(range(len(BROKERS))))
    return name


def await_isr(compose: ComposeCluster, topic: str, brokers: set[int]) -> None:
    """Wait until every partition's ISR is exactly these brokers and one of them leads."""
    admin = compose.admin()

    def is_so() -> bool:
        partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
        return len(partitions) == PARTITIONS and all(
            set(found.isrs) == brokers and found.leader in brokers for found in partitions
        )

    eventually(f"the ISR of {topic} is {brokers}", is_so, WHOLE_TIMEOUT_MS)


@contextlib.contextmanager
def load_goes_on(compose: ComposeCluster, topic: str) -> Iterator[ProduceLoad]:
    """Produce and read during the block. Afterwards check that every record arrived once and in order."""
    load = ProduceLoad(compose.bootstrap, topic, PARTITIONS)
    reader = Reader(compose.bootstrap, topic, PARTITIONS)
    with load, reader:
        progress(load)
        yield load
        progress(load)
        load.stop()
        assert load.errors == []
        eventually(
            "the reader has read everything",
            lambda: [len(seen) for seen in reader.numbers] >= load.sent,
            WHOLE_TIMEOUT_MS,
        )
        reader.stop()
    for partition in range(PARTITIONS):
        assert reader.numbers[partition] == list(range(load.sent[partition])), f"partition {partition}"
        assert all(number == offset for number, offset in load.offsets[partition].items()), f"partition {partition}"


def progress(load: ProduceLoad) -> None:
    """Wait until more records are acknowledged."""
    goal = load.acknowledged + PROGRESS
    eventually("records are acknowledged", lambda: load.acknowledged >= goal, WHOLE_TIMEOUT_MS)


def test_clients_get_addresses_that_they_can_reach(compose: ComposeCluster) -> None:
    brokers = compose.admin().list_topics(timeout=30).brokers.values()
    assert {f"{broker.host}:{broker.port}" for broker in brokers} == set(compose.bootstrap.split(","))
    rows = json.loads(compose.execute(CONTROLLERS[0], "barnabas", "doctor", "--json", "--bootstrap", "broker-1:19092"))
    assert [(row["advertised"], row["problem"]) for row in rows] == [(f"{name}:19092", None) for name in BROKERS]


def test_records_go_both_ways(compose: ComposeCluster) -> None:
    topic = create_topic(compose, "both-ways")
    lines = [f"from the container {number}" for number in range(500)]
    produced = compose.execute(
        "broker-0", "barnabas", "produce", topic, "--bootstrap", "broker-1:19092", input_text="\n".join(lines)
    )
    with load_goes_on_beside(compose, topic) as numbers:
        read = compose.execute(
            CONTROLLERS[0],
            "barnabas",
            "consume",
            topic,
            "--bootstrap",
            "broker-2:19092",
            "--from-beginning",
            "--until-end",
        )
    assert sorted(line for line in read.splitlines() if line.startswith("from")) == sorted(lines), produced
    assert {line.split()[0] for line in read.splitlines() if not line.startswith("from")} >= numbers


@contextlib.contextmanager
def load_goes_on_beside(compose: ComposeCluster, topic: str) -> Iterator[set[str]]:
    """Produce from this machine before the block; yields the numbers of the records."""
    with ProduceLoad(compose.bootstrap, topic, PARTITIONS) as load:
        progress(load)
        load.stop()
    assert load.errors == []
    yield {str(number) for number in range(max(load.sent))}


@pytest.mark.parametrize("node", NODES)
def test_processes(compose: ComposeCluster, node: str) -> None:
    assert compose.execute(node, "id", "--user").strip() != "0"
    first = compose.execute(node, "cat", "/proc/1/cmdline").split("\0")
    assert "barnabas.controller.main" in first if node in CONTROLLERS else "barnabas.broker.main" in first


@pytest.mark.parametrize("node", NODES)
def test_a_process_can_write_its_volume_and_nothing_else(compose: ComposeCluster, node: str) -> None:
    tries = ";".join(
        f"touch {path}/x 2>/dev/null && echo {path}" for path in ("/var/lib/barnabas", "/tmp", "/opt", "~", "/")
    )
    assert compose.execute(node, "sh", "-c", f"{tries}; rm /var/lib/barnabas/x /tmp/x").split() == [
        "/var/lib/barnabas",
        "/tmp",
    ]
    status = dict(line.split(":", 1) for line in compose.execute(node, "cat", "/proc/1/status").splitlines())
    assert (int(status["CapBnd"], 16), status["NoNewPrivs"].strip()) == (0, "1")
    limits = (
        "{{.HostConfig.Memory}} {{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}} {{.HostConfig.LogConfig.Config}}"
    )
    assert compose.inspect(node, limits) == f"{1 << 30} {2 * 10**9} 1024 map[max-file:3 max-size:10m]"


def test_a_killed_broker(compose: ComposeCluster) -> None:
    topic = create_topic(compose, "killed")
    with load_goes_on(compose, topic) as load:
        compose.kill("broker-1")
        await_isr(compose, topic, {0, 2})
        progress(load)
        compose.start("broker-1")
        await_isr(compose, topic, {0, 1, 2})
    compose.wait_healthy("broker-1")


def test_a_broker_without_network(compose: ComposeCluster) -> None:
    topic = create_topic(compose, "cut-off")
    network, container = compose.network(), compose.container("broker-2")
    with load_goes_on(compose, topic) as load:
        compose.engine.docker("network", "disconnect", network, container)
        await_isr(compose, topic, {0, 1})
        progress(load)
        compose.engine.docker("network", "connect", "--alias", "broker-2", network, container)
        await_isr(compose, topic, {0, 1, 2})
    compose.wait_healthy("broker-2")


@pytest.mark.parametrize("node", CONTROLLERS)
def test_a_killed_controller(compose: ComposeCluster, node: str) -> None:
    """Each in turn, so the active one is among them: the others go on deciding."""
    topic = create_topic(compose, f"without-{node}")
    with load_goes_on(compose, topic) as load:
        compose.kill(node)
        create_topic(compose, f"while-{node}-is-dead")
        progress(load)
        compose.start(node)
        await_isr(compose, topic, {0, 1, 2})
    compose.wait_healthy(node)


def test_all_controllers_are_killed(compose: ComposeCluster) -> None:
    topic = create_topic(compose, "headless")
    with load_goes_on(compose, topic) as load:
        for node in CONTROLLERS:
            compose.kill(node)
        progress(load)
        for node in CONTROLLERS:
            compose.start(node)
        create_topic(compose, "after-the-controllers")
        await_isr(compose, topic, {0, 1, 2})
    for node in CONTROLLERS:
        compose.wait_healthy(node)


def test_a_stopped_broker_hands_over_first(compose: ComposeCluster) -> None:
    topic = create_topic(compose, "stopped")
    with load_goes_on(compose, topic) as load:
        compose.compose("stop", "broker-0")
        assert compose.inspect("broker-0", "{{.State.ExitCode}}") == "0", "SIGTERM is a controlled shutdown"
        await_isr(compose, topic, {1, 2})
        progress(load)
        compose.start("broker-0")
        await_isr(compose, topic, {0, 1, 2})
    compose.wait_healthy("broker-0")


def test_data_outlives_the_containers(compose: ComposeCluster) -> None:
    topic = create_topic(compose, "kept")
    with load_goes_on(compose, topic) as load:
        pass
    compose.compose("rm", "--stop", "--force", *NODES)
    compose.up(NODES)
    with Reader(compose.bootstrap, topic, PARTITIONS) as reader:
        eventually("all is read again", lambda: [len(seen) for seen in reader.numbers] == load.sent, WHOLE_TIMEOUT_MS)
        reader.stop()
    await_isr(compose, topic, {0, 1, 2})
