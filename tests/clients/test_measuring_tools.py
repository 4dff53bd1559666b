"""Apache Kafka's tools that measure and verify clients, and those of Kafka Streams."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.support.cluster import Target
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import eventually

Run = Callable[..., str]
COUNT = 30


@pytest.fixture
def run(tools: KafkaTools, target: Target) -> Run:
    """Runs a tool against the cluster and returns its output."""

    def run_tool(tool: str, *arguments: str) -> str:
        return tools.run(tool, "--bootstrap-server", target.bootstrap, *arguments).check().stdout

    return run_tool


@pytest.fixture
def topic(create_topic: Callable[..., str], target: Target) -> str:
    """A topic with COUNT records."""
    name = create_topic()
    producer = Producer({"bootstrap.servers": target.bootstrap})
    for number in range(COUNT):
        producer.produce(name, str(number))
    assert producer.flush(20) == 0
    return name


def reports(output: str, name: str) -> list[dict[str, Any]]:
    """The lines of a verifiable client with this name; lines of others may stand between them."""
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return [line for line in lines if line["name"] == name]


def test_kafka_e2e_latency_measures_each_record(run: Run, create_topic: Callable[..., str]) -> None:
    output = run(
        "kafka-e2e-latency", "--topic", create_topic(), "--num-records", "20", "--producer-acks", "all",
        "--record-size", "50",
    )  # fmt: skip
    assert "Avg latency:" in output


def test_kafka_verifiable_producer_sends_what_it_reports(
    run: Run, create_topic: Callable[..., str], target: Target
) -> None:
    name = create_topic()
    run("kafka-verifiable-producer", "--topic", name, "--max-messages", str(COUNT))
    reader = Consumer({"bootstrap.servers": target.bootstrap, "group.id": name, "auto.offset.reset": "earliest"})
    try:
        reader.assign([TopicPartition(name, 0, 0)])
        read = reader.consume(COUNT, 20)
        assert [message.value() for message in read] == [str(number).encode() for number in range(COUNT)]
    finally:
        reader.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kafka_verifiable_consumer_reads_and_commits(run: Run, topic: str, protocol: str) -> None:
    output = run(
        "kafka-verifiable-consumer", "--topic", topic, "--group-id", topic, "--max-messages", str(COUNT),
        "--reset-policy", "earliest", "--group-protocol", protocol,
    )  # fmt: skip
    (assigned,) = reports(output, "partitions_assigned")
    assert assigned["partitions"] == [{"topic": topic, "partition": 0}]
    (committed, *_) = reversed(reports(output, "offsets_committed"))
    assert committed["offsets"] == [{"topic": topic, "partition": 0, "offset": COUNT}]
    assert committed["success"]


@pytest.fixture
def share_group(run: Run, unused_name: str) -> str:
    """A share group that begins with the first record."""
    group = f"{unused_name}-share"
    of_group = ("--entity-type", "groups", "--entity-name", group)
    first = "share.auto.offset.reset=earliest"
    run("kafka-configs", "--alter", *of_group, "--add-config", first)
    eventually("the broker has the setting", lambda: first in run("kafka-configs", "--describe", *of_group))
    return group


def test_kafka_verifiable_share_consumer_acknowledges(run: Run, topic: str, share_group: str) -> None:
    output = run(
        "kafka-verifiable-share-consumer", "--topic", topic, "--group-id", share_group, "--max-messages", str(COUNT)
    )
    acknowledged = reports(output, "offsets_acknowledged")
    assert sum(report["count"] for report in acknowledged) == COUNT
    assert all(report["success"] for report in acknowledged)


def test_kafka_share_consumer_perf_test_reads_them_all(run: Run, topic: str, share_group: str) -> None:
    output = run(
        "kafka-share-consumer-perf-test", "--topic", topic, "--group", share_group, "--num-records", str(COUNT),
        "--timeout", "15000",
    )  # fmt: skip
    header, figures = (line.split(", ") for line in output.strip().splitlines()[-2:])
    assert int(dict(zip(header, figures, strict=True))["data.consumed.in.nMsg"]) == COUNT


def test_kafka_streams_application_reset_goes_back_to_the_start(run: Run, topic: str, target: Target) -> None:
    reader = Consumer({"bootstrap.servers": target.bootstrap, "group.id": topic})
    reader.commit(offsets=[TopicPartition(topic, 0, COUNT)], asynchronous=False)
    output = run("kafka-streams-application-reset", "--application-id", topic, "--input-topics", topic, "--force")
    assert f"Topic: {topic} Partition: 0 Offset: 0" in output
    (committed,) = reader.committed([TopicPartition(topic, 0)])
    reader.close()
    assert committed.offset == 0


def test_kafka_streams_groups_lists_no_groups_of_other_types(run: Run, topic: str) -> None:
    """It asks for groups of one type, of which this test has none."""
    assert topic not in run("kafka-streams-groups", "--list")
