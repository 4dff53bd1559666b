"""Clusters that answer as older releases (`barnabas up --compat`), and clients set up for those."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from barnabas.client.connection import NodeConnection
from barnabas.client.errors import NodeConnectionError
from barnabas.protocol.data.releases import highest_version
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from tests.support.cluster import BarnabasCluster
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.language_programs import go_program, java_program
from tests.support.waiting import eventually

OLDEST, LATER = "0.10.2", "2.8"
VALUES = [str(number) for number in range(20)]
SOURCES = Path(__file__).parent / "old_clients" / "go"
JAVA_SOURCES = Path(__file__).parent / "old_clients" / "java"
TIMEOUT_S = 60


@pytest.fixture(scope="module", params=[OLDEST, "0.11", LATER])
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A release, and the bootstrap address of a cluster that answers as it."""
    directory = tmp_path_factory.mktemp("old")
    config = {"barnabas.compat.release": request.param}
    with BarnabasCluster(directory, broker_count=2, first_port=0, config=config) as cluster:
        yield request.param, cluster.bootstrap.split(",")[0]


def release_of(old: tuple[str, str]) -> tuple[int, ...]:
    return tuple(map(int, old[0].split(".")))


def test_it_lists_the_versions_of_its_release_and_closes_connections_that_use_later_ones(old: tuple[str, str]) -> None:
    release, bootstrap = old
    host, _, port = bootstrap.rpartition(":")
    with NodeConnection(host, int(port)) as connection:
        rows = connection.send(ApiVersionsRequest(), 0).api_keys
        listed = {row.api_key: row.max_version for row in rows}
        assert {key: highest_version(key, release) for key in listed} == listed
        assert {row.min_version for row in rows} == {0}
        assert connection.send(MetadataRequest(), listed[3]).brokers
        with pytest.raises(NodeConnectionError):
            connection.send(MetadataRequest(), listed[3] + 1)


@pytest.mark.parametrize("is_told", [False, True], ids=["it finds out", "it is told"])
def test_kafka_python(old: tuple[str, str], unused_name: str, is_told: bool) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": old[1]}
    if is_told:
        settings["api_version"] = release_of(old)
    producer = KafkaProducer(**settings, acks="all")
    for value in VALUES:
        producer.send(unused_name, value.encode())
    producer.flush(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(
        unused_name,
        **settings,
        group_id=unused_name,
        auto_offset_reset="earliest",
        consumer_timeout_ms=TIMEOUT_S * 1000,
        metadata_max_age_ms=1000,
    )
    if not is_told:
        assert consumer.config["api_version"] in (None, release_of(old))
    read = [next(consumer).value.decode() for _ in VALUES]
    consumer.close()
    assert read == VALUES


def librdkafka_round_trip(
    producing: Mapping[str, Any], consuming: Mapping[str, Any], topic: str, key: str | None = None
) -> list[str]:
    """Produce the values and return what a group of one reads."""
    producer = Producer(dict(producing))
    for value in VALUES:
        producer.produce(topic, value, key=key)
    assert producer.flush(TIMEOUT_S) == 0
    reader = Consumer({**consuming, "group.id": topic, "auto.offset.reset": "earliest"})
    reader.subscribe([topic])
    read: list[str] = []
    while len(read) < len(VALUES):
        messages = reader.consume(len(VALUES), TIMEOUT_S)
        assert messages, f"only {read}"
        read += [message.value().decode() for message in messages if message.error() is None]
    reader.close()
    return read


@pytest.mark.parametrize("is_told", [False, True], ids=["it finds out", "it is told"])
def test_librdkafka(old: tuple[str, str], unused_name: str, is_told: bool) -> None:
    """`api.version.request=false` is librdkafka's setting for brokers that it cannot ask."""
    settings: dict[str, Any] = {"bootstrap.servers": old[1]}
    if is_told:
        settings |= {"api.version.request": False, "broker.version.fallback": f"{old[0]}.0"}
    assert librdkafka_round_trip(settings, settings, unused_name) == VALUES


@pytest.mark.needs("go")
def test_sarama(old: tuple[str, str], unused_name: str) -> None:
    release = ".".join((*old[0].split("."), "0", "0")[: 4 if old[0].startswith("0.") else 3])
    admin = AdminClient({"bootstrap.servers": old[1]})
    admin.create_topics([NewTopic(unused_name, 1, 1)])[unused_name].result(TIMEOUT_S)
    command = [*go_program(SOURCES, "sarama-witness"), old[1], release, unused_name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [*VALUES, f"committed {len(VALUES)}"]


def test_kafkas_tools_of_today(old: tuple[str, str], tools: KafkaTools, unused_name: str) -> None:
    """They use what there is, and name what there is not: they have none of the versions that 4.0 removed."""
    where = ("--bootstrap-server", old[1])
    created = tools.run(
        "kafka-topics", *where, "--create", "--topic", unused_name, "--partitions", "1", "--replication-factor", "1"
    )
    if old[0] == OLDEST:
        assert "CREATE_TOPICS" in created.stdout + created.stderr
        return
    created.check()
    eventually(
        "it is listed", lambda: unused_name in tools.run("kafka-topics", *where, "--list").check().stdout.split()
    )
    result = tools.run("kafka-configs", *where, "--describe", "--entity-type", "topics", "--entity-name", unused_name)
    assert ("DESCRIBE_CONFIGS" in result.stdout + result.stderr) == (old[0] == "0.11")


# Clients that are older than the versions of Kafka 4


@pytest.mark.needs("java", "javac", "mvn")
@pytest.mark.parametrize("old", [OLDEST], indirect=True)
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("client", ["0.9.0.1", "0.10.0.1", "0.10.2.2"])
def test_kafkas_own_client_of_then(old: tuple[str, str], unused_name: str, client: str, compression: str) -> None:
    command = java_program(JAVA_SOURCES, "old-client", "OldWitness", client=client)
    done = subprocess.run(
        [*command, old[1], unused_name, compression], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [f"{f'key-{value}' if int(value) % 2 else 'null'} {value}" for value in VALUES]
    assert done.stdout.splitlines() == [*rows[:10], "committed 10", *rows[10:], "committed 20"]


@pytest.mark.parametrize("old", [OLDEST], indirect=True)
@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("release", ["0.9.0.0", "0.10.0.0"])
def test_librdkafka_as_for_older_brokers(
    old: tuple[str, str], unused_name: str, release: str, compression: str
) -> None:
    settings = {"bootstrap.servers": old[1], "api.version.request": False, "broker.version.fallback": release}
    producing = {**settings, "compression.codec": compression, "linger.ms": 50}
    assert librdkafka_round_trip(producing, settings, unused_name, key="k") == VALUES


@pytest.mark.parametrize("old", [OLDEST], indirect=True)
@pytest.mark.parametrize("release", [(0, 8, 2), (0, 9), (0, 10)], ids=str)
def test_kafka_python_as_for_older_brokers(old: tuple[str, str], unused_name: str, release: tuple[int, ...]) -> None:
    """It has no lz4 for 0.9 without another package. Before 0.9, its consumers have no groups but offsets."""
    settings: dict[str, Any] = {"bootstrap_servers": old[1], "api_version": release}
    partition = TopicPartition(unused_name, 0)
    for compression in (None, "gzip", "snappy"):
        producer = KafkaProducer(**settings, acks="all", compression_type=compression, enable_idempotence=False)
        for value in VALUES:
            producer.send(unused_name, value.encode(), partition=0)
        producer.flush(TIMEOUT_S)
        producer.close()
    consumer = KafkaConsumer(
        **settings,
        group_id=unused_name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=TIMEOUT_S * 1000,
    )
    consumer.assign([partition])
    assert [next(consumer).value.decode() for _ in VALUES * 3] == VALUES * 3
    consumer.commit({partition: OffsetAndMetadata(7, "m", -1)})
    assert consumer.committed(partition) == 7
    consumer.close()
