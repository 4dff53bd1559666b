"""Fuzzing of listeners with TLS and SASL: what strangers send before they are authenticated, and users after that.

Strangers send hostile frames (hostile.py) at each point of a login, bytes that are no TLS or nearly, and requests
through TLS without the certificate that is asked for. No such request may be handled. Nodes log each request that they
have handled with its connection (barnabas.slow.request.ms=0), so the proof is that these lines name no connection of a
stranger. They must name those of users, or the proof would prove nothing. Users have no rights, so nothing may be lost.
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.common.clock import SystemClock
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from tests.fuzz.hostile import Frames, Protected
from tests.support.sasl_cluster import ALICE, NODE, SaslCluster
from tests.support.threads import at_once
from tests.support.tls_cluster import TlsCluster
from tests.support.waiting import START_TIMEOUT_MS, eventually

PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
TOPIC: Final = "treasure"
RECORDS: Final = 50
TIMEOUT_S: Final = 30
ANSWER_TIMEOUT_S: Final = 0.1
CONNECT_TIMEOUT_S: Final = 5
FRAMES_A_CONNECTION: Final = 12
JOIN_SLACK_S: Final = 60
NODES: Final = ("controller", "broker-1")
USERS_SHARE: Final = 0.3  # of the connections
BYTES_MAX: Final = 1 << 16  # of a response that are read
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ";".join(f"User:{name}" for name in (NODE[0], "admin", *NODES)),
    "barnabas.slow.request.ms": "0",
    "barnabas.ssl.handshake.timeout.ms": "2000",
    "connection.failed.authentication.delay.ms": "10",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
}
_SLOW = re.compile(r"Slow request: (\w+) v-?\d+, .* connection [\d.]+:\d+-127\.0\.0\.1:(\d+)-")
_MAPPING: Final = {"ssl.principal.mapping.rules": "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"}


class SmallTlsCluster(TlsCluster):
    """A controller and a broker with client certificates on every connection."""

    def __init__(self, directory: Path) -> None:
        self.protocol = "SSL"
        super().__init__(directory, everywhere={**SETTINGS, **_MAPPING})

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        return f"localhost:{self.ports[1]}"

    def admin(self) -> dict[str, object]:
        """Settings of a super user."""
        return self.librdkafka("admin")

    def __enter__(self) -> SmallTlsCluster:
        _start(self)
        return self


class SmallSaslCluster(SaslCluster):
    """A controller and a broker whose every connection logs in."""

    def __init__(self, directory: Path, protocol: str) -> None:
        super().__init__(directory, protocol, "PLAIN")

    @property
    def bootstrap(self) -> str:
        """The broker's address."""
        return f"localhost:{self.ports[1]}"

    def admin(self) -> dict[str, object]:
        """Settings of a super user."""
        return self.sasl("PLAIN", *NODE)

    def __enter__(self) -> SmallSaslCluster:
        _start(self)
        return self

    def _write(self, name: str, node_id: int, listener: str, own: Mapping[str, str]) -> None:
        super()._write(name, node_id, listener, {**own, **SETTINGS})


Secured = SmallTlsCluster | SmallSaslCluster


def _start(cluster: Secured) -> None:
    try:
        for name in NODES:
            cluster._start(name.partition("-")[0], name)
        eventually("the broker is ready", lambda: cluster.has_logged(1, "is ready"), START_TIMEOUT_MS)
    except BaseException:
        cluster.__exit__()
        raise


def make_cluster(directory: Path, protocol: str) -> Secured:
    """A cluster whose listeners, the controller's too, have this protocol."""
    directory.mkdir(parents=True)
    return SmallTlsCluster(directory) if protocol == "SSL" else SmallSaslCluster(directory, protocol)


class Sent(NamedTuple):
    """What one client has done."""

    strangers: dict[str, set[int]]  # by node: the ports that they came from
    users: dict[str, set[int]]
    ways: Counter[str]  # how often each way was taken


class Client:
    """A hostile client: connects to one node after another, as a stranger or as a user."""

    def __init__(self, cluster: Secured, seed: int, until_ms: int) -> None:
        self._random = random.Random(seed)
        self._frames = Frames(seed, Protected((TOPIC,), (), ("treasure-group",), (1,), ""))
        self._ports = {"controller": cluster.controller_port, "broker-1": cluster.ports[1]}
        self._has_tls = cluster.protocol != "SASL_PLAINTEXT"
        self._has_sasl = cluster.protocol != "SSL"
        self._authority = str(cluster.directory / "ca.pem")
        self._certificate = str(cluster.client)
        self._until_ms = until_ms
        self._clock = SystemClock()
        self.sent = Sent({name: set() for name in NODES}, {name: set() for name in NODES}, Counter())

    def run(self) -> None:
        """Send until time is up."""
        while self._clock.monotonic_ms() < self._until_ms:
            for name, port in self._ports.items():
                with contextlib.suppress(OSError):
                    self._visit(name, port)

    def _visit(self, name: str, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), CONNECT_TIMEOUT_S) as sock:
            own_port = sock.getsockname()[1]
            sock.settimeout(CONNECT_TIMEOUT_S)
            if self._random.random() < USERS_SHARE:
                self.sent.users[name].add(own_port)
                self._as_user(sock)
                return
            self.sent.strangers[name].add(own_port)
            way = self._random.choice(self._ways())
            self.sent.ways[way.__name__.strip("_")] += 1
            way(sock)

    def _ways(self) -> list[Callable[[socket.socket], None]]:
        ways: list[Callable[[socket.socket], None]] = [self._noise, self._frames_at_once]
        if self._has_tls:
            ways += [self._nearly_tls, self._frames_through_tls]
        if self._has_sasl:
            ways += [self._during_login] * 4
        return ways

    # What strangers do

    def _noise(self, sock: socket.socket) -> None:
        sock.sendall(self._random.randbytes(self._random.choice((1, 4, 5, 100, 3000))))
        self._wait(sock)

    def _nearly_tls(self, sock: socket.socket) -> None:
        """Send a client's first TLS message with changed bytes, or the head of some record."""
        hello = bytearray(self._hello())
        for _ in range(self._random.randint(1, 8)):
            hello[self._random.randrange(len(hello))] = self._random.randrange(256)
        heads = (
            b"\x16\x03\x01\x40\x00",
            b"\x14\x03\x03\x00\x01\x01",
            b"\x17\x03\x03\x00\x10",
            b"\x15\x03\x03\x00\x02\x02\x28",
        )
        sock.sendall(self._random.choice((bytes(hello), self._random.choice(heads) + self._random.randbytes(40))))
        self._wait(sock)
        sock.sendall(self._frames.next().data)
        self._wait(sock)

    def _frames_at_once(self, sock: socket.socket) -> None:
        self._send_frames(sock)

    def _frames_through_tls(self, sock: socket.socket) -> None:
        """Without a certificate, or before a login."""
        with self._tls(sock, has_certificate=False) as secured:
            self._send_frames(secured)

    def _during_login(self, sock: socket.socket) -> None:
        """Send hostile frames at some point of a login, or in the place of a token."""
        with self._tls(sock, has_certificate=False) if self._has_tls else sock as stream:
            if self._random.random() < 0.5:
                stream.sendall(encode_request(RequestHeader(18, 3, 1, "fuzz"), _VERSIONS))
                self._wait(stream)
            if self._random.random() < 0.7:
                mechanism = self._random.choice(("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "NONE"))
                version = self._random.randrange(2)
                stream.sendall(_handshake(mechanism, version))
                self._wait(stream)
                token = self._token(mechanism)
                stream.sendall(_token(token) if version else struct.pack(">i", len(token)) + token)
                self._wait(stream)
            self._send_frames(stream)

    def _token(self, mechanism: str) -> bytes:
        right = {
            "PLAIN": f"\0{ALICE[0]}\0wrong".encode(),
            "OAUTHBEARER": b"n,,\x01auth=Bearer a.b.c\x01\x01",
        }.get(mechanism, b"n,,n=alice,r=abcdefgh")
        damaged = bytearray(right)
        damaged[self._random.randrange(len(damaged))] = self._random.randrange(1, 256)
        made = (right, bytes(damaged), right * 50, b"", self._random.randbytes(200), self._frames.next().data)
        return self._random.choice(made)

    # What users do

    def _as_user(self, sock: socket.socket) -> None:
        with self._tls(sock, has_certificate=True) if self._has_tls else sock as stream:
            if self._has_sasl:
                stream.sendall(_handshake("PLAIN", 1))
                self._wait(stream)
                stream.sendall(_token(f"\0{ALICE[0]}\0{ALICE[1]}".encode()))
                self._wait(stream)
            self._send_frames(stream)

    def _send_frames(self, sock: socket.socket) -> None:
        for _ in range(FRAMES_A_CONNECTION):
            sock.sendall(self._frames.next().data)
            if self._wait(sock) == b"" or self._clock.monotonic_ms() >= self._until_ms:
                return

    def _wait(self, sock: socket.socket) -> bytes | None:
        """Return some of what came; b"" if the connection was closed, None if nothing came in time."""
        sock.settimeout(ANSWER_TIMEOUT_S)
        try:
            return sock.recv(BYTES_MAX)
        except TimeoutError:
            return None
        finally:
            sock.settimeout(CONNECT_TIMEOUT_S)

    def _tls(self, sock: socket.socket, *, has_certificate: bool) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self._authority)
        if self._random.random() < 0.5:
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        if has_certificate:
            context.load_cert_chain(self._certificate)
        return context.wrap_socket(sock, server_hostname="localhost")

    def _hello(self) -> bytes:
        outgoing = ssl.MemoryBIO()
        session = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            session.do_handshake()
        return outgoing.read()


_VERSIONS = ApiVersionsRequest(client_software_name="fuzz", client_software_version="1")


def _handshake(mechanism: str, version: int) -> bytes:
    return encode_request(RequestHeader(17, version, 1, "fuzz"), SaslHandshakeRequest(mechanism=mechanism))


def _token(token: bytes) -> bytes:
    return encode_request(RequestHeader(36, 1, 1, "fuzz"), SaslAuthenticateRequest(auth_bytes=token))


def run_secured(
    directory: Path, protocol: str, seconds: float, seed: int, say: Callable[[str], None], clients: int = 4
) -> Counter[str]:
    """Fuzz a cluster for this time, then check; return how often each way was taken. Raises AssertionError."""
    with make_cluster(directory, protocol) as cluster:
        plant(cluster)
        begins = {node: len(cluster.log(node)) for node in NODES}  # Why: the ports of earlier clients are used again
        until_ms = SystemClock().monotonic_ms() + int(seconds * 1000)
        hostile = [Client(cluster, seed + number, until_ms) for number in range(clients)]
        at_once(*(client.run for client in hostile), join_s=seconds + JOIN_SLACK_S)
        ended = [name for name, process in zip(NODES, cluster._processes, strict=True) if process.poll() is not None]
        assert not ended, f"{ended} ended: {cluster.log(ended[0])[-2000:]}"
        logs = {node: cluster.log(node)[begins[node] :] for node in NODES}
        check(cluster)
        for node, log in logs.items():
            strangers = set().union(*(client.sent.strangers[node] for client in hostile))
            users = set().union(*(client.sent.users[node] for client in hostile))
            assert "uncaught exception" not in log, log[log.index("uncaught exception") - 500 :][:3000]
            assert_not_handled(node, log, strangers - users, users - strangers)
        ways: Counter[str] = sum((client.sent.ways for client in hostile), Counter())
        say(f"{protocol}: {ways.total()} strangers, none of whose requests was handled: {dict(ways)}")
        return ways


def assert_not_handled(node: str, log: str, strangers: set[int], users: set[int]) -> None:
    """Check a node's log: it names requests of users' connections, and none of strangers'."""
    handled = {int(port): api for api, port in _SLOW.findall(log)}
    wrong = {port: handled[port] for port in strangers & handled.keys()}
    assert not wrong, f"{node} handled requests of strangers: {wrong}"
    assert users & handled.keys(), f"{node} handled no request of the users, of which it has met {len(users)}"


def plant(cluster: Secured) -> None:
    """Create what must survive."""
    eventually("the broker lists itself", lambda: _lists_itself(cluster))
    admin = AdminClient(cluster.admin())
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(TIMEOUT_S)
    producer = Producer({**cluster.admin(), "acks": "all"})
    for number in range(RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def _lists_itself(cluster: Secured) -> bool:
    admin = AdminClient(cluster.admin())
    return bool(admin.list_topics(timeout=TIMEOUT_S).brokers)


def check(cluster: Secured) -> None:
    """Check that all is there, and that the cluster still works."""
    consumer = Consumer({**cluster.admin(), "group.id": "check", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        for number in range(RECORDS):
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, f"record {number} is gone"
            assert message.error() is None, message.error()
            assert message.value() == b"%d" % number
    finally:
        consumer.close()
    admin = AdminClient(cluster.admin())
    topics = set(admin.list_topics(timeout=TIMEOUT_S).topics) - {"__consumer_offsets"}
    assert topics == {TOPIC}, f"users without rights have made topics: {topics}"
    producer = Producer({**cluster.admin(), "acks": "all"})
    producer.produce(TOPIC, b"after", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
