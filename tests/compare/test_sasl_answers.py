"""What a client gets before and after its login, byte for byte: from Apache Kafka and from our network layer."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

import pytest

from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeRequest
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from barnabas.security.sasl.plain import PlainServer
from barnabas.security.sasl.scram.server import ScramServer
from barnabas.security.sasl.server_settings import ServerSettings
from barnabas.security.values import ScramMechanism
from tests.barnabas.security.sasl.test_scram import Users
from tests.broker.network.sasl.test_logins import CHECK, SaslNetwork, Sources
from tests.support.kafka.apache_kafka import ApacheKafka
from tests.support.kafka.kafka_jars import KafkaRuntime

REAUTH_MS: Final = 3_600_000
TIMEOUT_S: Final = 10
JAAS: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret" '
    'user_alice="secret" user_bob="secret";'
)
SCRAM_JAAS: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


class SaslKafka(ApacheKafka):
    """Apache Kafka that asks for a login."""

    def _is_usable(self) -> bool:
        assert self.child is not None
        assert self.child.poll() is None, self.log_file.read_text()[-2000:]
        try:
            return converse(self.port, [handshake(), token()])[-1] == b"open"
        except OSError:
            return False


class TwoMechanisms(Sources):
    """The SASL of our listener."""

    def __init__(self, network: list[Any]) -> None:
        super().__init__(REAUTH_MS, network)
        begin: dict[str, Any] = {
            "PLAIN": lambda: PlainServer(CHECK),
            "SCRAM-SHA-256": lambda: ScramServer(ScramMechanism.SCRAM_SHA_256, Users(), b""),
        }
        self.settings = ServerSettings(begin, dict.fromkeys(begin, REAUTH_MS), 524_288, 20, ())


class OurNetwork(SaslNetwork):
    """Our listener, with the mechanisms in Kafka's order."""

    def make_sources(self) -> Sources:
        return TwoMechanisms([self])


@pytest.fixture(scope="module")
def ports(apache_runtime: KafkaRuntime, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    """The port of Apache Kafka, and ours."""
    config = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.plaintext.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
        "connections.max.reauth.ms": str(REAUTH_MS),
    }
    kafka = SaslKafka(apache_runtime, tmp_path_factory.mktemp("kafka"), config)
    with kafka, OurNetwork() as network:
        yield kafka.port, network.server.port("OUTSIDE")


def handshake(mechanism: str = "PLAIN", version: int = 1) -> bytes:
    return encode_request(RequestHeader(17, version, 1, "c"), SaslHandshakeRequest(mechanism=mechanism))


def token(token: bytes = b"\0alice\0secret", version: int = 2) -> bytes:
    return encode_request(RequestHeader(36, version, 2, "c"), SaslAuthenticateRequest(auth_bytes=token))


def bare(token: bytes) -> bytes:
    return struct.pack(">i", len(token)) + token


METADATA = encode_request(RequestHeader(3, 12, 3, "c"), MetadataRequest())
VERSIONS = encode_request(RequestHeader(18, 0, 4, "c"), ApiVersionsRequest())
SHA_256 = "SCRAM-SHA-256"

#: Frames to send one after the other; each is answered, or the connection closed.
CONVERSATIONS: Final = {
    **{f"login v{version}": [handshake(), token(version=version)] for version in (0, 1, 2)},
    **{f"wrong password v{version}": [handshake(), token(b"\0alice\0x", version)] for version in (0, 1, 2)},
    "bare login": [handshake(version=0), bare(b"\0alice\0secret")],
    "bare wrong password": [handshake(version=0), bare(b"\0alice\0x")],
    "unknown user": [handshake(), token(b"\0nobody\0x")],
    "no user": [handshake(), token(b"\0\0x")],
    "no password": [handshake(), token(b"\0alice\0")],
    "one token": [handshake(), token(b"alice")],
    "four tokens": [handshake(), token(b"\0alice\0secret\0")],
    "authorization id": [handshake(), token(b"bob\0alice\0secret")],
    "authorization id of its own": [handshake(), token(b"alice\0alice\0secret")],
    "empty token": [handshake(), token(b"")],
    "unknown mechanism": [handshake("DIGEST-MD5")],
    "unknown mechanism v0": [handshake("DIGEST-MD5", 0)],
    "lower case": [handshake("plain")],
    "malformed scram": [handshake(SHA_256), token(b"n,,user")],
    "scram with another authorization id": [handshake(SHA_256), token(b"n,a=x,n=user,r=abc")],
    "metadata first": [METADATA],
    "token first": [token()],
    "metadata after the handshake": [handshake(), METADATA],
    "versions after the handshake": [handshake(), VERSIONS],
    "two handshakes": [handshake(), handshake()],
    "garbage first": [bare(b"\x60\x82garbage")],
    "empty frame first": [bare(b"")],
    "too large": [struct.pack(">i", 524_289) + b"x"],
    "negative": [struct.pack(">i", -1)],
    "again": [handshake(), token(), handshake(), token()],
    "again as another": [handshake(), token(), handshake(), token(b"\0bob\0secret")],
    "again with a wrong password": [handshake(), token(), handshake(), token(b"\0alice\0x")],
    "again by another mechanism": [handshake(), token(), handshake(SHA_256), token(b"n,,n=user,r=abc")],
    "again by an unknown mechanism": [handshake(), token(), handshake("X")],
    "again too soon": [handshake(), token(), handshake(), token(), handshake()],
    "token after the login": [handshake(), token(), token()],
}

#: Where we differ on purpose, and why.
DEVIATIONS: Final = {
    "scram with another authorization id": "Kafka answers otherwise if the user exists, so the answer tells",
    "metadata after the handshake": "Kafka decodes the request; we decode none of a client that has not logged in",
}


def converse(port: int, frames: list[bytes]) -> list[bytes]:
    """Return the answers; the last one is empty if the connection was closed."""
    answers: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as sock:
        stream = sock.makefile("rb")
        for frame in frames:
            try:
                sock.sendall(frame)
                head = stream.read(4)
                answers.append(head + stream.read(int.from_bytes(head, "big")) if len(head) == 4 else b"")
            except ConnectionError:
                answers.append(b"")
            if not answers[-1]:
                break
        else:
            sock.settimeout(0.3)
            try:
                answers.append(b"" if stream.read(1) == b"" else b"more")
            except TimeoutError:
                answers.append(b"open")
            except ConnectionError:
                answers.append(b"")
    return answers


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_the_answers_are_kafkas(ports: tuple[int, int], name: str) -> None:
    theirs, ours = (converse(port, CONVERSATIONS[name]) for port in ports)
    if name in DEVIATIONS:
        assert ours != theirs, "no longer different"
        assert ours[-1] == b""
    else:
        assert ours == theirs
