"""Quotas of users who log in by SASL: one user waits, another with the same client id does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer, ThrottleEvent
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.sasl_cluster import ALICE, BOB, SaslCluster

TIMEOUT_S = 30
MECHANISM = "SCRAM-SHA-512"
TOPIC = "orders"
WINDOW_S = 2
LIMIT = 100_000
RECORD = bytes(1000)


@pytest.fixture(scope="module")
def cluster(tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslCluster]:
    """Three brokers; alice may produce 100,000 bytes a second to each, but any number as client `etl`."""
    own = {"quota.window.num": str(WINDOW_S)}
    with SaslCluster(tmp_path_factory.mktemp("users"), "SASL_PLAINTEXT", MECHANISM, own) as running:
        admin = AdminClient(running.sasl(MECHANISM))
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
        where = ("--bootstrap-server", running.bootstrap, "--command-config", str(running.java_sasl(MECHANISM)))
        alice = ("--entity-type", "users", "--entity-name", ALICE[0])
        for limit, entity in ((LIMIT, alice), (10**9, (*alice, "--entity-type", "clients", "--entity-name", "etl"))):
            change = ("--alter", "--add-config", f"producer_byte_rate={limit}")
            tools.run("kafka-configs", *where, *change, *entity).check()
        yield running


def waits_s(cluster: SaslCluster, who: tuple[str, str], client_id: str) -> list[float]:
    """Produce five seconds' worth of the limit; return the waits that the broker asked for."""
    events: list[ThrottleEvent] = []
    settings = {"client.id": client_id, "batch.size": 20_000, "throttle_cb": events.append}
    producer = Producer(cluster.sasl(MECHANISM, *who, **settings))
    for _ in range(5 * LIMIT // len(RECORD)):
        producer.produce(TOPIC, RECORD)
    assert producer.flush(TIMEOUT_S) == 0
    producer.poll(0)
    return [event.throttle_time for event in events if event.throttle_time > 0]


def test_a_user_waits_with_any_client_id(cluster: SaslCluster) -> None:
    assert waits_s(cluster, ALICE, "app")
    assert waits_s(cluster, ALICE, "app-2")


def test_others_do_not_wait(cluster: SaslCluster) -> None:
    assert waits_s(cluster, BOB, "app") == []
    assert waits_s(cluster, ALICE, "etl") == [], "user and client id come before the user"
