"""Kafka Connect, MirrorMaker and Trogdor of Apache Kafka 4.3.1: each script in a JVM of its own."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from barnabas.cluster import HOST, free_ports
from tests.support.cluster import Target
from tests.support.kafka.kafka_jars import KafkaRuntime, connect_runtime
from tests.support.kafka.kafka_tools import SMALL_JVM
from tests.support.processes import end_process, tied_to_parent
from tests.support.waiting import START_TIMEOUT_MS, eventually

pytestmark = pytest.mark.needs("java", "mvn")

# The name of the shell script -> the class that it runs.
MAIN_CLASSES = {
    "connect-distributed": "org.apache.kafka.connect.cli.ConnectDistributed",
    "connect-mirror-maker": "org.apache.kafka.connect.mirror.MirrorMaker",
    "connect-plugin-path": "org.apache.kafka.tools.ConnectPluginPath",
    "connect-standalone": "org.apache.kafka.connect.cli.ConnectStandalone",
    "trogdor": "org.apache.kafka.trogdor.agent.Agent",  # of `trogdor.sh agent`
}
LINES = "".join(f"line {number}\n" for number in range(20))
SOURCE, SINK = "FileStreamSource", "FileStreamSink"


@pytest.fixture(scope="module")
def runtime() -> KafkaRuntime:
    """The jars of Kafka Connect."""
    return connect_runtime()


def properties(path: Path, **values: str) -> str:
    """Write a file of properties; underscores stand for dots. Returns its path."""
    path.write_text("".join(f"{key.replace('_', '.')}={value}\n" for key, value in values.items()))
    return str(path)


def worker(target: Target) -> dict[str, str]:
    """The settings of a worker of Kafka Connect."""
    converter = "org.apache.kafka.connect.storage.StringConverter"
    return {
        "bootstrap_servers": target.bootstrap,
        "key_converter": converter,
        "value_converter": converter,
        "offset_flush_interval_ms": "500",
        "plugin_discovery": "service_load",
    }


@contextmanager
def running(runtime: KafkaRuntime, directory: Path, script: str, *arguments: str) -> Iterator[Path]:
    """Runs a script until the end of the block; the value is the file with its output."""
    command = tied_to_parent(runtime.command(MAIN_CLASSES[script], *SMALL_JVM))
    output = directory / f"{script}.log"
    with output.open("wb") as log:
        child = subprocess.Popen([*command, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield output
    except AssertionError as error:
        raise AssertionError(f"{error}\n{output.read_text()[-4000:]}") from error
    finally:
        end_process(child)


def test_connect_standalone_copies_a_file_through_a_topic(
    runtime: KafkaRuntime, target: Target, unused_name: str, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text(LINES)
    own = properties(
        tmp_path / "worker", **worker(target), offset_storage_file_filename=str(tmp_path / "offsets"),
        listeners=f"http://{HOST}:0",
    )  # fmt: skip
    source = properties(
        tmp_path / "source", name="in", connector_class=SOURCE, file=str(tmp_path / "in.txt"), topic=unused_name
    )
    sink = properties(
        tmp_path / "sink", name="out", connector_class=SINK, file=str(tmp_path / "out.txt"), topics=unused_name
    )
    with running(runtime, tmp_path, "connect-standalone", own, source, sink):
        eventually("the file is copied", lambda: content(tmp_path / "out.txt") == LINES, START_TIMEOUT_MS)


def content(path: Path) -> str:
    """The text of a file, which may not exist yet."""
    return path.read_text() if path.exists() else ""


def test_connect_distributed_keeps_connectors_offsets_and_states_in_topics(
    runtime: KafkaRuntime, target: Target, unused_name: str, tmp_path: Path
) -> None:
    (tmp_path / "in.txt").write_text(LINES)
    port = next(free_ports(1))
    topics = {kind: f"{unused_name}-{kind}" for kind in ("config", "offset", "status")}
    storage = {f"{kind}_storage_topic": name for kind, name in topics.items()}
    replicas = {f"{kind}_storage_replication_factor": "1" for kind in topics}
    listener = f"http://{HOST}:{port}"
    own = properties(
        tmp_path / "worker", **worker(target), **storage, **replicas, group_id=unused_name, listeners=listener
    )
    connectors = {
        "in": {"connector.class": SOURCE, "file": str(tmp_path / "in.txt"), "topic": unused_name},
        "out": {"connector.class": SINK, "file": str(tmp_path / "out.txt"), "topics": unused_name},
    }
    with running(runtime, tmp_path, "connect-distributed", own):
        for name, config in connectors.items():
            eventually(f"{name} is accepted", lambda at=name, to=config: put(listener, at, to), START_TIMEOUT_MS)
        eventually("the file is copied", lambda: content(tmp_path / "out.txt") == LINES, START_TIMEOUT_MS)


def put(listener: str, name: str, config: dict[str, str]) -> bool:
    """Set the configuration of a connector; false if the worker is not ready."""
    request = urllib.request.Request(
        f"{listener}/connectors/{name}/config", json.dumps(config).encode(), {"Content-Type": "application/json"},
        method="PUT",
    )  # fmt: skip
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status in (200, 201)
    except (urllib.error.URLError, ConnectionError):
        return False


def test_connect_mirror_maker_copies_a_topic(
    runtime: KafkaRuntime, target: Target, create_topic: Callable[..., str], tmp_path: Path
) -> None:
    """From the cluster into itself, under another name."""
    topic = create_topic()
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for line in LINES.splitlines():
        producer.produce(topic, line)
    assert producer.flush(20) == 0
    lines = [
        "clusters = near, far",
        f"near.bootstrap.servers = {target.bootstrap}",
        f"far.bootstrap.servers = {target.bootstrap}",
        "near->far.enabled = true",
        f"near->far.topics = {topic}",
        "near->far.sync.topic.acls.enabled = false",
        "near.consumer.auto.offset.reset = earliest",
        "far->near.enabled = false",
        "emit.heartbeats.enabled = false",
        "replication.factor = 1",
        *(f"{key}.replication.factor = 1" for key in ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic")),
        *(f"{key}.storage.replication.factor = 1" for key in ("config", "offset", "status")),
        "plugin.discovery = service_load",
    ]
    (tmp_path / "mirror").write_text("\n".join(lines))
    reader = Consumer(
        {
            "bootstrap.servers": target.bootstrap,
            "group.id": f"{topic}-reader",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    reader.subscribe([f"near.{topic}"])
    read: list[str] = []

    def is_copied() -> bool:
        message = reader.poll(0.1)
        if message is not None and message.error() is None:
            read.append(message.value().decode())
        return len(read) == len(LINES.splitlines())

    try:
        with running(runtime, tmp_path, "connect-mirror-maker", str(tmp_path / "mirror")):
            eventually("the topic is copied", is_copied, START_TIMEOUT_MS)
    finally:
        reader.close()
    assert read == LINES.splitlines()


def test_connect_plugin_path_lists_plugins(runtime: KafkaRuntime, tmp_path: Path) -> None:
    plugins = tmp_path / "plugins"
    plugins.mkdir()
    (jar,) = (runtime.directory / "jars").glob("connect-file-*.jar")
    (plugins / jar.name).symlink_to(jar)
    with running(runtime, tmp_path, "connect-plugin-path", "list", "--plugin-path", str(plugins)) as output:
        eventually("the plugin is listed", lambda: "FileStreamSinkConnector" in content(output), START_TIMEOUT_MS)


def test_trogdor_runs_a_workload(runtime: KafkaRuntime, target: Target, unused_name: str, tmp_path: Path) -> None:
    port = next(free_ports(1))
    node = {"hostname": HOST, "trogdor.agent.port": port}
    (tmp_path / "conf").write_text(
        json.dumps({"platform": "org.apache.kafka.trogdor.basic.BasicPlatform", "nodes": {"node0": node}})
    )
    task = {
        "class": "org.apache.kafka.trogdor.workload.ProduceBenchSpec",
        "durationMs": 20_000,
        "producerNode": "node0",
        "bootstrapServers": target.bootstrap,
        "targetMessagesPerSec": 1000,
        "maxMessages": 100,
        "activeTopics": {unused_name: {"numPartitions": 2, "replicationFactor": 1}},
        "inactiveTopics": {},
    }
    (tmp_path / "task").write_text(json.dumps(task))
    arguments = ("-c", str(tmp_path / "conf"), "-n", "node0", "--exec", str(tmp_path / "task"))
    with running(runtime, tmp_path, "trogdor", *arguments) as output:
        eventually("the task is done", lambda: '"totalSent" : 100' in content(output), START_TIMEOUT_MS)
