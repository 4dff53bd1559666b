"""Secured clusters for tests: users, ACLs and settings for clients."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer
from kafka.errors import TopicAuthorizationFailedError

from barnabas.cli.errors import UserError
from barnabas.faults import Fault
from barnabas.testing.running import Cluster, Settings

USERS = {"alice": "secret", "bob": "word"}
ACLS = ["alice write,describe topic:orders --prefixed"]


@pytest.fixture(scope="module", params=["SASL_SSL", "SSL"])
def secured(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A secured cluster with two users, of whom one has rights."""
    with Cluster(Settings.of(security=request.param, users=USERS, acls=ACLS)) as running:
        yield running


def test_each_user_has_settings_and_the_cluster_reads_as_admin(secured: Cluster) -> None:
    topic = secured.create_topic("orders")
    producer = Producer(secured.client_settings("alice"))
    producer.produce(topic, b"value")
    assert producer.flush(20) == 0
    secured.assert_produced(topic, b"value")


def test_who_has_no_right_is_refused_until_it_is_given(secured: Cluster) -> None:
    topic = secured.create_topic("orders")
    settings = secured.client_settings("bob", "kafka_python")
    producer = KafkaProducer(**settings, max_block_ms=10_000, enable_idempotence=False)
    try:
        with pytest.raises(TopicAuthorizationFailedError):
            producer.send(topic, b"value").get(20)
        secured.add_acls(f"bob write,describe topic:{topic}")
        producer.send(topic, b"value").get(20)
    finally:
        producer.close(5)
    secured.assert_produced(topic, b"value")


def test_pages_are_read_with_the_credentials_of_the_cluster(secured: Cluster) -> None:
    for url in secured.metrics_urls:
        assert url.startswith("https://")
        assert "process_resident_memory_bytes " in secured.read_page(url)
    with pytest.raises(ValueError, match="/nosuch answers 404 Not Found"):
        secured.read_page(secured.metrics_urls[0].replace("/metrics", "/nosuch"))


def test_faults_are_added_with_the_credentials_of_the_cluster(secured: Cluster) -> None:
    topic = secured.create_topic("orders")
    producer = Producer(secured.client_settings("alice"))
    with secured.faults.add(Fault(api="Produce", topic=topic, error="NOT_LEADER_OR_FOLLOWER", times=1)) as fault:
        producer.produce(topic, b"value")
        assert producer.flush(20) == 0
        assert fault.fired == 1


def test_a_line_that_is_no_acl_is_refused(secured: Cluster) -> None:
    for line in ("alice read", "alice read topic:x --odd"):
        with pytest.raises(UserError, match="is no ACL"):
            secured.add_acls(line)


def test_without_security_the_settings_are_the_address(kafka: Cluster) -> None:
    assert kafka.client_settings() == {"bootstrap.servers": kafka.bootstrap}
    assert kafka.client_settings(client="kafka_python") == {"bootstrap_servers": kafka.bootstrap}
    with pytest.raises(ValueError, match="there are no settings for sarama"):
        kafka.client_settings(client="sarama")


def test_users_need_security() -> None:
    with pytest.raises(ValueError, match="users and acls need security"):
        Settings.of(users=USERS)
    assert "secret" not in repr(Settings.of(security="SSL", users=USERS))
