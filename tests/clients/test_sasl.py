"""Clusters of three brokers whose every connection logs in by SASL, and real clients with right and wrong passwords."""

from __future__ import annotations

import asyncio
import gc
import itertools
import ssl
from collections.abc import Iterator

import aiokafka.errors
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from barnabas.common.clock import SystemClock
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.sasl_cluster import ALICE, BOB, MECHANISMS, NODE, SaslCluster
from tests.support.waiting import eventually

TIMEOUT_S = 30
REAUTH_MS = 3_000
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_numbers = itertools.count()


@pytest.fixture(
    scope="module",
    params=[("SASL_PLAINTEXT", "SCRAM-SHA-512"), ("SASL_SSL", "PLAIN"), ("SASL_PLAINTEXT", "OAUTHBEARER")],
    ids=lambda param: "-".join(param),
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslCluster]:
    protocol, mechanism = request.param
    own = {"connections.max.reauth.ms": str(REAUTH_MS)}
    with SaslCluster(tmp_path_factory.mktemp("sasl"), protocol, mechanism, own) as running:
        yield running


@pytest.fixture
def topic(cluster: SaslCluster) -> str:
    name = f"t{next(_numbers)}"
    admin = AdminClient(cluster.sasl("PLAIN"))
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(TIMEOUT_S)
    return name


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka(cluster: SaslCluster, topic: str, mechanism: str) -> None:
    producer = Producer(cluster.sasl(mechanism, acks="all"))
    values = [b"%d" % number for number in range(500)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(cluster.sasl(mechanism, **{"group.id": topic, "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < len(values):
        messages = consumer.consume(len(values) - len(found), TIMEOUT_S)
        assert messages
        found += [message.value() for message in messages]
    consumer.close()
    assert sorted(found) == sorted(values)


@pytest.mark.parametrize("mechanism", PASSWORDS)
@pytest.mark.parametrize(("user", "password"), [(ALICE[0], "wrong"), ("nobody", ALICE[1])], ids=["password", "user"])
def test_confluent_kafka_with_a_wrong_login(cluster: SaslCluster, mechanism: str, user: str, password: str) -> None:
    errors: list[KafkaError] = []
    settings = cluster.sasl(mechanism, user, password, log_level=0, **{"reconnect.backoff.ms": 1000})
    client = AdminClient({**settings, "error_cb": errors.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    client.poll(0)
    assert KafkaError._AUTHENTICATION in [error.code() for error in errors]
    eventually(
        "a line in the log",
        lambda: any(cluster.has_logged(number, "Failed authentication with /") for number in (1, 2, 3)),
    )


def python_settings(cluster: SaslCluster, mechanism: str, password: str = ALICE[1]) -> dict[str, object]:
    return {
        "bootstrap_servers": cluster.bootstrap.split(","),
        "security_protocol": cluster.protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ALICE[0],
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_kafka_python(cluster: SaslCluster, topic: str, mechanism: str) -> None:
    settings = {**python_settings(cluster, mechanism), "ssl_cafile": str(cluster.directory / "ca.pem")}
    producer = KafkaProducer(**settings)
    producer.send(topic, b"x").get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **settings)
    assert next(iter(consumer)).value == b"x"
    consumer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_kafka_python_with_a_wrong_password(cluster: SaslCluster) -> None:
    """It leaves sockets open when it fails, which `collect` reports here, not in another test."""
    for mechanism in PASSWORDS:
        settings = {
            **python_settings(cluster, mechanism, "wrong"),
            "ssl_cafile": str(cluster.directory / "ca.pem"),
            "bootstrap_timeout_ms": 2000,
        }
        with pytest.raises(KafkaPythonError):
            KafkaProducer(**settings)
    gc.collect()


def aiokafka_settings(cluster: SaslCluster, mechanism: str, password: str = ALICE[1]) -> dict[str, object]:
    settings = python_settings(cluster, mechanism, password)
    if cluster.protocol == "SASL_SSL":
        settings["ssl_context"] = ssl.create_default_context(cafile=str(cluster.directory / "ca.pem"))
    return settings


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_aiokafka(cluster: SaslCluster, topic: str, mechanism: str) -> None:
    settings = aiokafka_settings(cluster, mechanism)

    async def round_trip() -> bytes:
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"async")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            return bytes(message.value)

    assert asyncio.run(round_trip()) == b"async"


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_aiokafka_with_a_wrong_password(cluster: SaslCluster, mechanism: str) -> None:
    settings = aiokafka_settings(cluster, mechanism, "wrong")

    async def fail() -> None:
        producer = AIOKafkaProducer(**settings)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(fail())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_apache_kafkas_tools(cluster: SaslCluster, topic: str, tools: KafkaTools, mechanism: str) -> None:
    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(cluster.java_sasl(mechanism)))
    assert "ReplicationFactor: 3" in tools.run("kafka-topics", *where, "--describe", "--topic", topic).check().stdout
    tools.run("kafka-console-producer", *where, "--topic", topic, stdin=b"one\ntwo\n").check()
    consume = ("--topic", topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", str(TIMEOUT_S * 1000))
    read = tools.run("kafka-console-consumer", *where, *consume).check().stdout
    assert sorted(read.split()) == ["one", "two"]


def test_apache_kafkas_tools_with_a_wrong_password(cluster: SaslCluster, tools: KafkaTools) -> None:
    for mechanism, text in (("PLAIN", "Invalid username or password"), ("SCRAM-SHA-256", "due to invalid credentials")):
        config = str(cluster.java_sasl(mechanism, password="wrong"))
        where = ("--bootstrap-server", cluster.bootstrap, "--command-config", config)
        result = tools.run("kafka-topics", *where, "--list")
        assert text in result.stdout + result.stderr
        assert "SaslAuthenticationException" in result.stdout + result.stderr


def test_sessions_end_and_clients_log_in_again(cluster: SaslCluster, topic: str) -> None:
    """A producer goes on for three sessions without an error."""
    errors: list[object] = []
    producer = Producer({**cluster.sasl("SCRAM-SHA-256", *BOB, acks="all"), "error_cb": errors.append})
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + 3 * REAUTH_MS
    sent = 0
    while clock.monotonic_ms() < end_ms:
        producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error) if error else None)
        sent += 1
        producer.poll(0.1)
    assert producer.flush(TIMEOUT_S) == 0
    assert sent > 10
    assert errors == []


def test_users_of_plain_change_while_a_broker_runs(cluster: SaslCluster) -> None:
    """On one broker of three; the entry of the file is in force again when the other is removed."""
    key, module = "listener.name.out.plain.sasl.jaas.config", "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = f'username="{NODE[0]}" password="{NODE[1]}" user_{NODE[0]}="{NODE[1]}" user_carol="s3cret of carol"'
    admin = AdminClient(cluster.sasl("SCRAM-SHA-256"))
    here = {"bootstrap.servers": f"localhost:{cluster.ports[1]}", "log_level": 0}

    def alter(jaas: str | None) -> None:
        operation = AlterConfigOpType.DELETE if jaas is None else AlterConfigOpType.SET
        entry = ConfigEntry(key, jaas, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)

    def may_log_in(user: str, password: str) -> bool:
        try:
            client = AdminClient({**cluster.sasl("PLAIN", user, password), **here})
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    with pytest.raises(KafkaException, match="has no option user_NAME"):
        alter(f"{module} required;")
    assert not may_log_in("carol", "s3cret of carol")
    alter(f"{module} required {users};")
    eventually("carol logs in", lambda: may_log_in("carol", "s3cret of carol"))
    assert not may_log_in(*ALICE)
    alter(None)
    eventually("alice logs in", lambda: may_log_in(*ALICE))
    assert not may_log_in("carol", "s3cret of carol")


def test_nodes_stay_connected_for_many_sessions(cluster: SaslCluster) -> None:
    for name in ("controller", 1, 2, 3):
        assert not cluster.has_logged(name, "the login to")
        assert not cluster.has_logged(name, "s3cret")
