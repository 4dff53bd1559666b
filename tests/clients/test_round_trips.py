"""Every client reads the records of every other client, with each compression."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.protocol.records.batch import iter_headers
from tests.support.cluster import Target
from tests.support.kafka.clients import (
    COMPRESSIONS,
    AioKafka,
    ApacheConsole,
    Client,
    ConfluentKafka,
    KafkaPython,
    Kcat,
    Message,
)
from tests.support.kafka.kafka_tools import KafkaTools

MESSAGES = [Message(f"key-{number}", f"value {number} " + "x" * 100, (("origin", "EWR"),)) for number in range(50)]
PRODUCERS = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "apache-console")


@pytest.fixture(scope="session")
def clients(tools: KafkaTools) -> dict[str, Client]:
    """Return every client by name."""
    every: tuple[Client, ...] = (ConfluentKafka(), KafkaPython(), AioKafka(), Kcat(), ApacheConsole(tools))
    return {client.name: client for client in every}


def stored_compressions(target: Target, topic: str) -> set[str]:
    """Return the compression of the batches of a topic's only partition on disk."""
    (segment,) = (target.broker_data_directory() / f"{topic}-0").glob("*.log")
    return {header.compression_type.name.lower() for _, header in iter_headers(segment.read_bytes())}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_client_reads_what_another_produced(
    target: Target, clients: dict[str, Client], create_topic: Callable[..., str], producer: str, compression: str
) -> None:
    topic = create_topic()
    clients[producer].produce(target.bootstrap, topic, MESSAGES, compression)
    received = {name: client.consume(target.bootstrap, topic, len(MESSAGES)) for name, client in clients.items()}
    assert received == dict.fromkeys(PRODUCERS, MESSAGES)
    assert stored_compressions(target, topic) == {compression}


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_topic_recompresses_to_its_configured_type(
    target: Target, clients: dict[str, Client], create_topic: Callable[..., str], compression: str
) -> None:
    topic = create_topic(compression_type="uncompressed" if compression == "none" else compression)
    clients["confluent-kafka"].produce(target.bootstrap, topic, MESSAGES, "gzip")
    assert clients["kcat"].consume(target.bootstrap, topic, len(MESSAGES)) == MESSAGES
    assert stored_compressions(target, topic) == {compression}


def test_producing_to_an_unknown_topic_creates_it(target: Target, clients: dict[str, Client], unused_name: str) -> None:
    clients["confluent-kafka"].produce(target.bootstrap, unused_name, MESSAGES, "none")
    assert clients["aiokafka"].consume(target.bootstrap, unused_name, len(MESSAGES)) == MESSAGES
