"""Client quotas by Kafka's tools and librdkafka: who is above a limit waits, and nobody else does."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import threading
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.connection import NodeConnection
from barnabas.cluster import HOST
from barnabas.common.clock import SystemClock
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from tests.support.cluster import ApacheKafkaTarget, BarnabasCluster, Target
from tests.support.kafka.kafka_jars import kafka_runtime
from tests.support.kafka.kafka_tools import KafkaTools, ToolResult
from tests.support.waiting import eventually

TIMEOUT_S = 20
WINDOW_S = 3  # three samples of one second, so that the first burst is small
CONFIG = {"quota.window.num": str(WINDOW_S), "controller.quota.window.num": str(WINDOW_S)}
RECORD_BYTES = 1000
LIMIT = 1_000_000  # bytes a second
SECONDS = 32
CLOSED_S = 3  # a connection above the rate of its address is closed after a second
SHARE = 0.1  # the rate may differ from the limit by so much
REPORT = re.compile(r"([\d.]+) records/sec \(([\d.]+) MB/sec\), .* max latency", re.MULTILINE)
Run = Callable[..., ToolResult]


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One broker, of Apache Kafka if that is the target."""
    directory = tmp_path_factory.mktemp("quotas")
    if request.config.getoption("target") == "apache":
        with ApacheKafkaTarget(kafka_runtime(), directory, CONFIG) as node:
            yield node
    else:
        with BarnabasCluster(directory, broker_count=1, first_port=0, config=CONFIG) as running:
            yield running


def address(cluster: Target) -> tuple[str, int]:
    """Return where the broker listens."""
    host, _, port = cluster.bootstrap.rpartition(":")
    return host, int(port)


@pytest.fixture
def topic(cluster: Target, request: pytest.FixtureRequest) -> str:
    """A topic with one partition."""
    name = re.sub(r"\W", "-", request.node.name)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(TIMEOUT_S)
    return name


@pytest.fixture
def run(tools: KafkaTools, cluster: Target) -> Run:
    """Runs a tool against the cluster."""

    def run_tool(tool: str, *arguments: str, timeout_s: float = TIMEOUT_S) -> ToolResult:
        return tools.run(tool, "--bootstrap-server", cluster.bootstrap, *arguments, timeout_s=timeout_s)

    return run_tool


@pytest.fixture
def limit(run: Run) -> Iterator[Callable[..., None]]:
    """Sets a quota by kafka-configs; removes it at the end of the test."""
    undo = []

    def set_limit(key: str, value: float, *entity: str) -> None:
        run("kafka-configs", "--alter", "--add-config", f"{key}={value}", *entity).check()
        undo.append(("kafka-configs", "--alter", "--delete-config", key, *entity))

    yield set_limit
    for arguments in undo:
        run(*arguments).check()


def entity(kind: str, name: str | None) -> tuple[str, ...]:
    return (
        ("--entity-type", kind, "--entity-default") if name is None else ("--entity-type", kind, "--entity-name", name)
    )


def page(cluster: BarnabasCluster, path: str) -> str:
    """Return a page of the broker."""
    with urllib.request.urlopen(f"http://{HOST}:{cluster.nodes[0].metrics_port}{path}", timeout=TIMEOUT_S) as answer:
        return str(answer.read(), "utf-8")


def producer(cluster: Target, client_id: str, **config: object) -> Producer:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    return Producer({"bootstrap.servers": cluster.bootstrap, "client.id": client_id, **settings})


def rate_of_another(cluster: Target, topic: str) -> float:
    """Produce as fast as it goes, with a client id that has no limit; return the bytes a second."""
    other, clock = producer(cluster, "other"), SystemClock()
    started_ms = clock.monotonic_ms()
    for _ in range(5000):
        other.produce(topic, bytes(RECORD_BYTES))
    assert other.flush(TIMEOUT_S) == 0
    return 5000 * RECORD_BYTES * 1000 / (clock.monotonic_ms() - started_ms)


def test_the_java_producer_is_held_to_its_rate_and_others_are_not(
    tools: KafkaTools, cluster: Target, topic: str, limit: Callable[..., None]
) -> None:
    limit("producer_byte_rate", LIMIT, *entity("clients", "limited"))
    alone = [rate_of_another(cluster, topic) for _ in range(10)]
    beside: list[float] = []
    shown: list[str] = []
    ended = threading.Event()

    def others() -> None:
        while not ended.is_set():
            beside.append(rate_of_another(cluster, topic))
            if isinstance(cluster, BarnabasCluster):
                shown.append(page(cluster, "/live.json?section=throttled") + page(cluster, "/metrics"))
            ended.wait(1)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        result = tools.run(
            "kafka-producer-perf-test",
            *("--topic", topic, "--record-size", str(RECORD_BYTES), "--throughput", "-1"),
            *("--num-records", str((SECONDS + WINDOW_S) * LIMIT // RECORD_BYTES)),
            *("--producer-props", f"bootstrap.servers={cluster.bootstrap}", "client.id=limited"),
            timeout_s=5 * SECONDS,
        ).check()
    finally:
        ended.set()
        thread.join()
    found = [float(match[1]) * RECORD_BYTES for match in REPORT.finditer(result.stdout)]
    steady = found[1:-1]  # the first has the burst that the window allows, the last is the mean of all
    assert len(steady) >= 2, result.stdout
    assert sum(steady) / len(steady) == pytest.approx(LIMIT, rel=SHARE), result.stdout
    # Why the best of each: the machine has other work, which only slows them.
    assert max(beside) > max(alone) / 2, "a client that is throttled slows no others"
    if isinstance(cluster, BarnabasCluster):
        assert [one for one in shown if '"sentence":"client id limited goes on in ' in one], "the live page names it"
        assert [one for one in shown if re.search(r'kafka_server_produce_throttle_time\{client_id="limited"\} \d', one)]


def test_a_consumer_is_held_to_its_rate(cluster: Target, topic: str, limit: Callable[..., None]) -> None:
    limit("consumer_byte_rate", LIMIT, *entity("users", None))
    count = 8000
    writer = producer(cluster, "writer")
    for _ in range(count):
        writer.produce(topic, bytes(RECORD_BYTES))
    assert writer.flush(TIMEOUT_S) == 0
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "fetch.message.max.bytes": LIMIT // 4})
    consumer.assign([TopicPartition(topic, 0, 0)])
    clock = SystemClock()
    started_ms, left = clock.monotonic_ms(), count
    while left:
        messages = consumer.consume(1000, TIMEOUT_S)
        assert messages, "it goes on"
        left -= len(messages)
        seconds = (clock.monotonic_ms() - started_ms) / 1000
        assert (count - left) * RECORD_BYTES < (1 + SHARE) * LIMIT * (seconds + WINDOW_S)
    assert seconds > count * RECORD_BYTES / LIMIT - WINDOW_S
    assert seconds < 3 * count * RECORD_BYTES / LIMIT
    consumer.close()


def test_thread_time_is_limited(cluster: Target, limit: Callable[..., None]) -> None:
    limit("request_percentage", 0.01, *entity("clients", "busy"))

    def throttle_ms(client_id: str) -> int:
        with NodeConnection(*address(cluster), timeout_ms=TIMEOUT_S * 1000, client_id=client_id) as connection:
            for _ in range(500):
                response = connection.send(MetadataRequest(topics=[]), 12)
                if response.throttle_time_ms:
                    return int(response.throttle_time_ms)
        return 0

    assert 0 < throttle_ms("busy") <= 1000
    assert throttle_ms("idle") == 0


def test_changes_of_topics_are_limited(run: Run, topic: str, limit: Callable[..., None]) -> None:
    limit("controller_mutation_rate", 1, *entity("users", None))
    run("kafka-topics", "--create", "--topic", f"{topic}-1", "--partitions", "40").check()
    refused = run("kafka-topics", "--create", "--topic", f"{topic}-2", "--partitions", "1")
    assert refused.exit_code == 1
    assert "ThrottlingQuotaExceededException" in refused.stdout + refused.stderr


def test_an_address_opens_connections_at_its_rate(cluster: Target, limit: Callable[..., None]) -> None:
    limit("connection_creation_rate", 2, *entity("ips", address(cluster)[0]))

    def closed_ones() -> int:
        """Open connections quickly; return how many of them the broker closes."""
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(socket.create_connection(address(cluster), TIMEOUT_S)) for _ in range(20)]
            readable, _, _ = select.select(opened, [], [], CLOSED_S)
            return sum(connection.recv(1) == b"" for connection in readable)

    eventually("some are closed", closed_ones)
