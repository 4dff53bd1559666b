"""ACLs on a cluster of three brokers that knows its clients by their certificates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from barnabas.config.checks import STANDARD_AUTHORIZER
from tests.support.tls_cluster import BROKERS, TlsCluster
from tests.support.waiting import eventually

TIMEOUT_S = 30
ALICE = "User:O=Barnabas,CN=alice"
NODES = ("controller", *(f"broker-{number}" for number in BROKERS))
Op = AclOperation
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    settings = {
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": ";".join(f"User:O=Barnabas,CN={name}" for name in (*NODES, "admin")),
    }
    with TlsCluster(tmp_path_factory.mktemp("acls"), everywhere=settings) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: TlsCluster) -> AdminClient:
    return AdminClient(cluster.librdkafka("admin"))


@pytest.fixture
def topic(admin: AdminClient) -> str:
    name = f"t{next(_numbers)}"
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(TIMEOUT_S)
    return name


def acl(kind: ResourceType, name: str, operation: AclOperation, **about: Any) -> AclBinding:
    pattern = about.get("pattern", ResourcePatternType.LITERAL)
    permission = about.get("permission", AclPermissionType.ALLOW)
    return AclBinding(kind, name, pattern, ALICE, "*", operation, permission)


def allow(admin: AdminClient, *acls: AclBinding) -> None:
    for future in admin.create_acls(list(acls)).values():
        future.result(TIMEOUT_S)


def revoke(admin: AdminClient, name: str) -> int:
    wanted = AclBindingFilter(
        ResourceType.ANY, name, ResourcePatternType.ANY, None, None, Op.ANY, AclPermissionType.ANY
    )
    ((_, future),) = admin.delete_acls([wanted]).items()
    return len(future.result(TIMEOUT_S))


def error_of_produce(cluster: TlsCluster, topic: str, partition: int = 0, **more: Any) -> int | None:
    """The code that the producer reports for a record."""
    errors: list[KafkaError | None] = []
    producer = Producer(cluster.librdkafka(**{"message.timeout.ms": 20_000, **more}))
    producer.produce(topic, b"v", partition=partition, on_delivery=lambda error, _message: errors.append(error))
    producer.flush(TIMEOUT_S)
    (error,) = errors
    return None if error is None else error.code()


def read(cluster: TlsCluster, topic: str, group: str) -> Message:
    consumer = Consumer(cluster.librdkafka(**{"group.id": group, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    try:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        return message
    finally:
        consumer.close()


def test_a_stranger_sees_nothing(cluster: TlsCluster, topic: str) -> None:
    alice = AdminClient(cluster.librdkafka())
    assert topic not in alice.list_topics(timeout=TIMEOUT_S).topics
    hidden = alice.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    missing = alice.list_topics("nowhere", timeout=TIMEOUT_S).topics["nowhere"]
    assert hidden.error.code() == missing.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert error_of_produce(cluster, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    refusal = f"Principal = {ALICE} is Denied operation = DESCRIBE from host = "
    eventually("it is logged", lambda: any(refusal in cluster.log(number) for number in BROKERS))


def test_rights_given_and_taken_count_on_every_broker_at_once(
    cluster: TlsCluster, admin: AdminClient, topic: str
) -> None:
    allow(admin, acl(ResourceType.TOPIC, topic, Op.WRITE))
    assert [error_of_produce(cluster, topic, partition) for partition in range(3)] == [None] * 3
    assert revoke(admin, topic) == 1
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert [error_of_produce(cluster, topic, partition) for partition in range(3)] == [refused] * 3


def test_a_consumer_needs_its_group_and_its_topic(cluster: TlsCluster, admin: AdminClient, topic: str) -> None:
    allow(admin, acl(ResourceType.TOPIC, topic, Op.WRITE))
    assert error_of_produce(cluster, topic) is None
    assert read(cluster, topic, "readers").error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    allow(admin, acl(ResourceType.GROUP, "read", Op.READ, pattern=ResourcePatternType.PREFIXED))
    assert read(cluster, topic, "readers").error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(admin, acl(ResourceType.TOPIC, topic, Op.READ))
    assert read(cluster, topic, "readers").value() == b"v"


def test_a_deny_comes_before_an_allow(cluster: TlsCluster, admin: AdminClient, topic: str) -> None:
    allow(admin, acl(ResourceType.TOPIC, topic, Op.ALL))
    assert error_of_produce(cluster, topic) is None
    allow(admin, acl(ResourceType.TOPIC, topic, Op.WRITE, permission=AclPermissionType.DENY))
    assert error_of_produce(cluster, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_transactions_need_their_id(cluster: TlsCluster, admin: AdminClient, topic: str) -> None:
    allow(admin, acl(ResourceType.TOPIC, topic, Op.WRITE))
    producer = Producer(cluster.librdkafka(**{"transactional.id": topic}))
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allow(admin, acl(ResourceType.TRANSACTIONAL_ID, topic, Op.WRITE))
    producer = Producer(cluster.librdkafka(**{"transactional.id": topic}))
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"once")
    producer.commit_transaction(TIMEOUT_S)


def test_requests_that_are_forwarded_are_those_of_the_client(cluster: TlsCluster, admin: AdminClient) -> None:
    alice = AdminClient(cluster.librdkafka())
    name = f"t{next(_numbers)}"
    with pytest.raises(KafkaException) as refused:
        alice.create_topics([NewTopic(name, 1, 3)])[name].result(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(admin, acl(ResourceType.TOPIC, name, Op.CREATE))
    alice.create_topics([NewTopic(name, 1, 3)])[name].result(TIMEOUT_S)
    for resource, code in (
        (ConfigResource(ResourceType.BROKER, "1"), KafkaError.CLUSTER_AUTHORIZATION_FAILED),
        (ConfigResource(ResourceType.TOPIC, name), KafkaError.TOPIC_AUTHORIZATION_FAILED),
    ):
        with pytest.raises(KafkaException) as refused:
            alice.describe_configs([resource])[resource].result(TIMEOUT_S)
        assert refused.value.args[0].code() == code
    with pytest.raises(KafkaException) as refused:
        allow(alice, acl(ResourceType.TOPIC, name, Op.ALL))
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_an_idempotent_producer_needs_a_topic_only(cluster: TlsCluster, admin: AdminClient, topic: str) -> None:
    allow(admin, acl(ResourceType.TOPIC, topic, Op.WRITE))
    assert error_of_produce(cluster, topic, **{"enable.idempotence": True}) is None


def test_offsets_of_hidden_topics_are_not_listed(cluster: TlsCluster, admin: AdminClient, topic: str) -> None:
    allow(admin, acl(ResourceType.GROUP, "read", Op.READ, pattern=ResourcePatternType.PREFIXED))
    consumer = Consumer(cluster.librdkafka(**{"group.id": "readers"}))
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    consumer.close()
