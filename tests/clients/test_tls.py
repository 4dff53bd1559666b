"""A cluster of three brokers whose every connection is TLS, and real clients with certificates."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from cryptography import x509
from kafka import KafkaConsumer, KafkaProducer

from tests.support.certificates import Authority
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.processes import resident_bytes
from tests.support.tls_cluster import TlsCluster
from tests.support.waiting import eventually

TIMEOUT_S = 30
HALF_OPEN = 600
_numbers = itertools.count()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsCluster]:
    own = {"barnabas.ssl.handshake.timeout.ms": "2000", "num.network.threads": "2"}
    with TlsCluster(tmp_path_factory.mktemp("tls"), own) as running:
        yield running


@pytest.fixture
def topic(cluster: TlsCluster) -> str:
    name = f"t{next(_numbers)}"
    admin = AdminClient(cluster.librdkafka())
    admin.create_topics([NewTopic(name, 3, 3)])[name].result(TIMEOUT_S)
    return name


def consumed(cluster: TlsCluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(cluster.librdkafka(**{"group.id": f"g-{topic}", "auto.offset.reset": "earliest"}))
    consumer.subscribe([topic])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), TIMEOUT_S)
        assert messages
        found += [message.value() for message in messages]
    consumer.close()
    return found


def test_confluent_kafka_produces_to_three_replicas(cluster: TlsCluster, topic: str) -> None:
    producer = Producer(cluster.librdkafka(acks="all", **{"linger.ms": 5}))
    values = [b"%d " % number + bytes(2000) for number in range(3000)]
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    assert sorted(consumed(cluster, topic, len(values))) == sorted(values)


def test_transactions(cluster: TlsCluster, topic: str) -> None:
    producer = Producer(cluster.librdkafka(**{"transactional.id": topic}))
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, b"once")
    producer.commit_transaction(TIMEOUT_S)
    assert consumed(cluster, topic, 1) == [b"once"]


def test_kafka_python(cluster: TlsCluster, topic: str) -> None:
    settings = {
        "bootstrap_servers": cluster.bootstrap.split(","),
        "security_protocol": "SSL",
        "ssl_cafile": str(cluster.directory / "ca.pem"),
        "ssl_certfile": str(cluster.client),
        "ssl_keyfile": str(cluster.client),
    }
    producer = KafkaProducer(**settings)
    producer.send(topic, b"x" * 100_000).get(TIMEOUT_S)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000, **settings)
    assert next(iter(consumer)).value == b"x" * 100_000
    consumer.close()


def test_aiokafka(cluster: TlsCluster, topic: str) -> None:
    context = ssl.create_default_context(cafile=str(cluster.directory / "ca.pem"))
    context.load_cert_chain(str(cluster.client))

    async def round_trip() -> bytes:
        settings = {"bootstrap_servers": cluster.bootstrap, "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(topic, b"async")
        async with AIOKafkaConsumer(topic, auto_offset_reset="earliest", **settings) as consumer:
            message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
            return bytes(message.value)

    assert asyncio.run(round_trip()) == b"async"


def test_apache_kafkas_tools(cluster: TlsCluster, topic: str, tools: KafkaTools) -> None:
    where = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(cluster.java()))
    described = tools.run("kafka-topics", *where, "--describe", "--topic", topic).check().stdout
    assert "ReplicationFactor: 3" in described
    tools.run("kafka-console-producer", *where, "--topic", topic, stdin=b"one\ntwo\n").check()
    consume = ("--topic", topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", str(TIMEOUT_S * 1000))
    read = tools.run("kafka-console-consumer", *where, *consume).check().stdout
    assert sorted(read.split()) == ["one", "two"]


def refusal_of(settings: dict[str, object]) -> str:
    """What librdkafka says when it cannot connect."""
    said: list[str] = []

    def note(error: KafkaError) -> None:
        said.append(str(error))

    client = AdminClient({**settings, "error_cb": note, "reconnect.backoff.ms": 1000, "log_level": 0})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
    client.poll(0)
    return " ".join(said)


def test_clients_without_the_right_certificate(cluster: TlsCluster, tmp_path: Path) -> None:
    stranger = Authority("stranger").issue("mallory").write_pem(tmp_path / "m.pem")
    right = cluster.librdkafka()
    without = {key: value for key, value in right.items() if "certificate" not in key and "key" not in key}
    cases: list[tuple[dict[str, object], str]] = [
        (without, "peer did not return a certificate"),
        (
            {**right, "ssl.certificate.location": str(stranger), "ssl.key.location": str(stranger)},
            "the client's certificate is refused: ",
        ),
        ({"security.protocol": "plaintext"}, "the client does not speak TLS"),
    ]
    for number, (settings, reason) in enumerate(cases, 1):  # each has a broker, since such lines are rationed
        assert refusal_of({**settings, "bootstrap.servers": f"localhost:{cluster.ports[number]}"})
        assert f"(SSL handshake failed: {reason}" in cluster.log(number)
        assert "Traceback" not in cluster.log(number)


def served_serial(cluster: TlsCluster, number: int) -> int:
    """The serial number of the certificate that a broker serves now."""
    context = ssl.create_default_context(cafile=str(cluster.directory / "ca.pem"))
    context.load_cert_chain(str(cluster.client))
    with (
        socket.create_connection(("localhost", cluster.ports[number]), TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as sock,
    ):
        encoded = sock.getpeercert(binary_form=True)
    assert encoded is not None
    return x509.load_der_x509_certificate(encoded).serial_number


class Load:
    """A producer that never stops, and notes every error."""

    def __init__(self, cluster: TlsCluster, topic: str) -> None:
        self.errors: list[str] = []
        self.delivered = 0
        self._topic = topic
        self._ended = threading.Event()
        self._producer = Producer(
            cluster.librdkafka(acks="all", **{"message.timeout.ms": 20_000, "error_cb": self._failed})
        )
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        assert self._producer.flush(TIMEOUT_S) == 0

    def wait_for_more(self) -> None:
        """Wait until further messages are delivered."""
        goal = self.delivered + 200
        eventually("more messages are delivered", lambda: self.delivered >= goal)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._producer.produce(self._topic, b"v" * 500, on_delivery=self._noted)
            self._producer.poll(0.001)

    def _noted(self, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(str(error))

    def _failed(self, error: KafkaError) -> None:
        self.errors.append(str(error))


def test_certificates_change_under_load(cluster: TlsCluster, topic: str) -> None:
    with Load(cluster, topic) as load:
        load.wait_for_more()
        for number in cluster.ports:  # because the file changed
            before = served_serial(cluster, number)
            cluster.renew(number)
            eventually("the new certificate is served", lambda n=number, b=before: served_serial(cluster, n) != b)
            load.wait_for_more()
        before = served_serial(cluster, 1)  # because a setting changed
        path = cluster.renew(1, cluster.directory / "other.pem")
        alter(cluster, 1, str(path))
        eventually("the certificate of the setting is served", lambda: served_serial(cluster, 1) != before)
        load.wait_for_more()
    assert load.errors == []
    assert "uses new certificates: O=Barnabas,CN=broker-1" in cluster.log(1)


def test_a_certificate_that_others_would_refuse_is_not_accepted(cluster: TlsCluster, tmp_path: Path) -> None:
    other = Authority("stranger").issue("broker-2").write_pem(tmp_path / "other.pem")
    with pytest.raises(KafkaException, match="is not trusted by the trust store"):
        alter(cluster, 2, str(other))
    another = cluster.authority.issue("another").write_pem(tmp_path / "another.pem")
    with pytest.raises(KafkaException, match="distinguished name would change"):
        alter(cluster, 2, str(another))


def alter(cluster: TlsCluster, number: int, path: str) -> None:
    """Set the key store of a broker's listener, as kafka-configs does."""
    entry = ConfigEntry("listener.name.ssl.ssl.keystore.location", path, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[entry])
    admin = AdminClient(cluster.librdkafka())
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


def test_half_open_handshakes_are_bounded_and_disturb_nobody(cluster: TlsCluster, topic: str) -> None:
    hello = client_hello()
    before = resident_bytes(cluster.pid(1))
    with Load(cluster, topic) as load:
        sockets = [socket.create_connection(("localhost", cluster.ports[1]), TIMEOUT_S) for _ in range(HALF_OPEN)]
        for index, sock in enumerate(sockets):
            if index % 3:
                sock.sendall(hello if index % 3 == 1 else hello[: len(hello) // 2])
        load.wait_for_more()
        assert served_serial(cluster, 1)
        assert resident_bytes(cluster.pid(1)) - before < 100 << 20
        for sock in sockets:
            sock.settimeout(TIMEOUT_S)
            while sock_read(sock):
                continue
            sock.close()
        load.wait_for_more()
    assert load.errors == []
    assert "not complete within 2000 ms" in cluster.log(1)


def sock_read(sock: socket.socket) -> bytes:
    """Bytes, or none at the end of the stream."""
    try:
        return sock.recv(65536)
    except ConnectionResetError:
        return b""


def client_hello() -> bytes:
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        session.do_handshake()
    return outgoing.read()
