"""Apache Kafka's own command-line tools, from the 4.3.1 jars."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.support.cluster import Target
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

Run = Callable[..., str]
SHOWN = {"partition": "true", "offset": "true", "value": "false"}


@pytest.fixture
def run(tools: KafkaTools, target: Target) -> Run:
    """Runs a tool against the cluster and returns its output."""

    def run_tool(tool: str, *arguments: str, stdin: str = "") -> str:
        where = ("--bootstrap-server", target.bootstrap)
        return tools.run(tool, *where, *arguments, stdin=stdin.encode()).check().stdout

    return run_tool


def produce_lines(run: Run, topic: str, count: int, *arguments: str) -> None:
    """Send lines 0, 1, 2, ... with the console producer."""
    run("kafka-console-producer", "--topic", topic, *arguments, stdin="".join(f"{number}\n" for number in range(count)))


def test_kafka_topics_creates_describes_alters_and_deletes(run: Run, unused_name: str) -> None:
    create = ("--create", "--topic", unused_name, "--partitions", "2", "--config", "retention.ms=5000")
    assert f"Created topic {unused_name}." in run("kafka-topics", *create)
    eventually("it is listed", lambda: unused_name in run("kafka-topics", "--list").split())
    described = run("kafka-topics", "--describe", "--topic", unused_name)
    assert "PartitionCount: 2\tReplicationFactor: 1" in described
    assert "retention.ms=5000" in described
    assert described.count("Leader: 0\tReplicas: 0\tIsr: 0") == 2
    run("kafka-topics", "--alter", "--topic", unused_name, "--partitions", "3")
    eventually(
        "three partitions", lambda: "PartitionCount: 3" in run("kafka-topics", "--describe", "--topic", unused_name)
    )
    run("kafka-topics", "--delete", "--topic", unused_name)
    eventually("it is gone", lambda: unused_name not in run("kafka-topics", "--list").split())


def test_kafka_topics_reports_that_a_topic_exists(tools: KafkaTools, target: Target, create_topic: Run) -> None:
    topic = create_topic()
    result = tools.run("kafka-topics", "--bootstrap-server", target.bootstrap, "--create", "--topic", topic)
    assert result.exit_code == 1
    assert f"Topic '{topic}' already exists." in result.stdout


def test_kafka_configs_alters_and_describes_a_topic(run: Run, create_topic: Run) -> None:
    entity = ("--entity-type", "topics", "--entity-name", create_topic())
    run("kafka-configs", *entity, "--alter", "--add-config", "retention.ms=7000,cleanup.policy=[compact,delete]")

    def described() -> str:
        return run("kafka-configs", *entity, "--describe")

    eventually(
        "both are seen", lambda: "retention.ms=7000" in described() and "cleanup.policy=compact,delete" in described()
    )
    run("kafka-configs", *entity, "--alter", "--delete-config", "retention.ms")
    eventually("one is gone", lambda: "retention.ms" not in described())


def test_kafka_configs_alters_and_describes_a_broker(run: Run) -> None:
    entity = ("--entity-type", "brokers", "--entity-name", "0")
    run("kafka-configs", *entity, "--alter", "--add-config", "message.max.bytes=2000000")
    eventually("it is seen", lambda: "message.max.bytes=2000000" in run("kafka-configs", *entity, "--describe"))
    run("kafka-configs", *entity, "--alter", "--delete-config", "message.max.bytes")
    every = run("kafka-configs", *entity, "--describe", "--all")
    assert "message.max.bytes=1048588" in every
    assert "num.io.threads=8" in every


def test_the_console_consumer_reads_in_a_group_what_the_console_producer_wrote(run: Run, create_topic: Run) -> None:
    topic = create_topic()
    produce_lines(run, topic, 50, "--compression-codec", "zstd")
    arguments = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "50")
    assert run("kafka-console-consumer", *arguments).split() == [str(number) for number in range(50)]


def test_large_batches_of_several_partitions_are_consumed(run: Run, target: Target, unused_name: str) -> None:
    """Each is larger than a fetch of its partition may be: one is sent whole, and the others not in part (KIP-74)."""
    create = ("--create", "--topic", unused_name, "--partitions", "2", "--config", "max.message.bytes=9000000")
    run("kafka-topics", *create)
    producer = Producer({"bootstrap.servers": target.bootstrap, "message.max.bytes": 9_000_000})
    for number in range(6):
        producer.produce(unused_name, bytes(2 << 20), partition=number % 2)
        assert producer.flush(30) == 0
    shown = [f"--formatter-property=print.{name}={is_shown}" for name, is_shown in SHOWN.items()]
    lines = run(
        "kafka-console-consumer", "--topic", unused_name, "--from-beginning", "--timeout-ms", "20000", *shown,
        "--max-messages", "6",
    ).splitlines()  # fmt: skip
    assert sorted(lines) == [f"Partition:{partition}\tOffset:{offset}" for partition in range(2) for offset in range(3)]


def test_kafka_consumer_groups_lists_describes_resets_and_deletes(run: Run, create_topic: Run) -> None:
    topic = create_topic()
    produce_lines(run, topic, 10)
    read = ("--topic", topic, "--group", topic, "--from-beginning", "--max-messages", "10")
    run("kafka-console-consumer", *read)
    assert topic in run("kafka-consumer-groups", "--list").split()
    group = ("--group", topic)

    def described() -> list[str]:
        """GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG ... of the only partition."""
        lines = run("kafka-consumer-groups", "--describe", *group).splitlines()
        return next(line.split() for line in lines if line.startswith(f"{topic} "))

    assert described()[2:6] == ["0", "10", "10", "0"]
    run("kafka-consumer-groups", *group, "--reset-offsets", "--to-offset", "4", "--topic", topic, "--execute")
    assert described()[2:6] == ["0", "4", "10", "6"]
    run("kafka-consumer-groups", *group, "--delete-offsets", "--topic", topic)
    run("kafka-consumer-groups", *group, "--delete")
    assert topic not in run("kafka-consumer-groups", "--list").split()


def test_kafka_consumer_groups_shows_the_members_of_a_group(run: Run, create_topic: Run, target: Target) -> None:
    topic = create_topic()
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": topic, "client.id": "the-reader"})
    try:
        consumer.subscribe([topic])
        eventually("it has joined", lambda: consumer.poll(0.05) is None and consumer.assignment())
        assert "the-reader" in run("kafka-consumer-groups", "--describe", "--group", topic, "--members")
        assert "Stable" in run("kafka-consumer-groups", "--describe", "--group", topic, "--state")
    finally:
        consumer.close()


def test_kafka_get_offsets_lists_first_last_and_by_time(run: Run, create_topic: Run) -> None:
    topic = create_topic(partitions=2)
    produce_lines(run, topic, 10)

    def total(*arguments: str) -> int:
        lines = run("kafka-get-offsets", "--topic", topic, *arguments).split()
        return sum(int(line.split(":")[2]) for line in lines)

    assert total() == 10
    assert total("--time", "earliest") == 0
    assert total("--time", "0") == 0


def test_kafka_delete_records_moves_the_start(run: Run, create_topic: Run, tmp_path: Path) -> None:
    topic = create_topic()
    produce_lines(run, topic, 10)
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 6}]}
    (tmp_path / "offsets.json").write_text(json.dumps(wanted))
    assert "low_watermark: 6" in run("kafka-delete-records", "--offset-json-file", str(tmp_path / "offsets.json"))
    assert run("kafka-get-offsets", "--topic", topic, "--time", "earliest").strip() == f"{topic}:0:6"


def test_kafka_log_dirs_describes_the_directory(run: Run, create_topic: Run, target: Target) -> None:
    topic = create_topic()
    produce_lines(run, topic, 10)
    output = run("kafka-log-dirs", "--describe", "--topic-list", topic)
    (broker,) = json.loads(output.splitlines()[-1])["brokers"]
    (directory,) = broker["logDirs"]
    assert directory["logDir"] == str(target.broker_data_directory())
    assert directory["error"] is None
    assert directory["partitions"][0]["size"] > 0


def test_kafka_broker_api_versions_understands_the_broker(run: Run) -> None:
    output = run("kafka-broker-api-versions")
    assert re.search(r"Produce\(0\): 0 to 13 \[usable: 13\]|Produce\(0\): 3 to 13 \[usable: 13\]", output)
    assert re.search(r"Fetch\(1\): 4 to 1\d \[usable: 1\d\]", output)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_the_perf_tests_move_every_record(
    tools: KafkaTools, target: Target, create_topic: Run, compression: str
) -> None:
    topic = create_topic(partitions=3)
    count = 20_000
    where = ("--topic", topic, "--num-records", str(count))
    settings = [f"bootstrap.servers={target.bootstrap}", "acks=1", f"compression.type={compression}"]
    size = ("--record-size", "100", "--throughput", "-1", "--command-property", *settings)
    produced = tools.run("kafka-producer-perf-test", *where, *size).check().stdout
    assert f"{count} records sent" in produced
    consumed = tools.run("kafka-consumer-perf-test", "--bootstrap-server", target.bootstrap, *where).check().stdout
    assert int(consumed.splitlines()[-1].split(",")[4]) == count
