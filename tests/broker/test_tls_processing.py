"""Processors with TLS: the first request, the principal, large pieces, many connections, and half-open handshakes."""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.metrics.table import catalogue
from barnabas.metrics.table.row import Metric
from tests.support.broker.network import (
    HEARTBEAT,
    HEARTBEAT_VERSION,
    TIMEOUT_S,
    Client,
    ListenerRow,
    Network,
    fetch,
    heartbeat,
)
from tests.support.certificates import Authority, Identity
from tests.support.waiting import eventually

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("server")
SSL_KEYS = {
    "ssl.keystore.type": "PEM",
    "ssl.keystore.key": SERVER.key_pem(),
    "ssl.keystore.certificate.chain": SERVER.chain_pem(),
    "ssl.truststore.type": "PEM",
    "ssl.truststore.certificates": AUTHORITY.pem(),
    "ssl.client.auth": "requested",
}
LISTENERS = (ListenerRow(), ListenerRow("SSL", "SSL"))


class TlsClient(Client):
    """A bare client over TLS."""

    def __init__(self, port: int, tmp_path: Path, identity: Identity | None = None) -> None:
        super().__init__(port)
        self.sock = secured(self.sock, None if identity is None else identity.write_pem(tmp_path / "client.pem"))


def secured(sock: socket.socket, identity: Path | None = None) -> ssl.SSLSocket:
    """Do the handshake of a client."""
    context = ssl.create_default_context(cadata=AUTHORITY.pem())
    if identity is not None:
        context.load_cert_chain(str(identity))
    return context.wrap_socket(sock, server_hostname="localhost")


def make(**config: Any) -> Network:
    return Network(listeners=LISTENERS, originals=SSL_KEYS, **config)


@pytest.fixture
def network() -> Iterator[Network]:
    with make(num_network_threads=2) as running:
        yield running


def test_requests_in_order(network: Network, tmp_path: Path) -> None:
    with TlsClient(network.server.port("SSL"), tmp_path) as client:
        kinds = ["ok", "park:5", "ok", "throttle:1", "error"] * 40
        client.send(b"".join(heartbeat(kind, number) for number, kind in enumerate(kinds)))
        for number in range(len(kinds)):
            client.receive(HEARTBEAT, HEARTBEAT_VERSION, number)


def test_large_requests_and_responses_move_between_processors(network: Network, tmp_path: Path) -> None:
    """Connections that move large pieces change their processor, with what TLS has buffered for them."""
    path = tmp_path / "records"
    path.write_bytes(bytes(range(256)) * (20 << 10))
    with path.open("rb") as file:
        clients = [TlsClient(network.server.port("SSL"), tmp_path) for _ in range(4)]
        for number in range(6):
            many = b"".join(heartbeat("ok:" + "x" * 30_000, index) for index in range(20))
            for client in clients:
                client.send(many + fetch(3_000_000, number, file.fileno(), 7) + heartbeat("ok", number))
            for client in clients:
                for index in range(20):
                    client.receive(HEARTBEAT, HEARTBEAT_VERSION, index)
                assert len(client.read_frame()) > 3_000_000
                client.receive(HEARTBEAT, HEARTBEAT_VERSION, number)
        used = {processor.id for processor in network.server.processors() if processor.connections()}
        assert len(used) == 2
        for client in clients:
            client.sock.close()


@pytest.mark.parametrize("name", ["alice", None])
def test_the_principal(network: Network, tmp_path: Path, name: str | None) -> None:
    identity = None if name is None else AUTHORITY.issue(name)
    with TlsClient(network.server.port("SSL"), tmp_path, identity) as client:
        assert client.heartbeat("ok") == 0
        (connection,) = network.connections()
        expected = "User:ANONYMOUS" if name is None else f"User:O=Barnabas,CN={name}"
        assert connection.context.principal == expected
    processor = next(each for each in network.server.processors() if each.listener_name == "SSL")
    labels = {"listener": "SSL", "networkProcessor": processor.id}
    assert network.registry.sensor(catalogue.SUCCESSFUL_AUTHENTICATION, **labels).count == 1


def test_the_page_shows_what_expires_and_who_has_not_finished(network: Network) -> None:
    with network.client("SSL") as silent:
        eventually("the handshake is counted", lambda: read_gauge(network, catalogue.TLS_HANDSHAKES) == 1)
        silent.send(b"x")
        eventually("it has failed", lambda: read_gauge(network, catalogue.TLS_HANDSHAKES) == 0)
    days = read_gauge(network, catalogue.TLS_CERTIFICATE_SECONDS_LEFT) / 86_400
    assert 364 < days < 366


def test_a_client_of_another_protocol_is_closed(network: Network, tmp_path: Path) -> None:
    with network.client("SSL") as plain:
        plain.send(heartbeat("ok"))
        assert plain.is_closed_by_server()
    with TlsClient(network.server.port("SSL"), tmp_path) as client:
        assert client.heartbeat("ok") == 0


def test_the_end_of_the_stream_may_come_with_the_last_bytes_of_the_handshake(network: Network) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = ssl.create_default_context(cadata=AUTHORITY.pem()).wrap_bio(
        incoming, outgoing, server_hostname="localhost"
    )
    with network.client("SSL") as client:
        with pytest.raises(ssl.SSLWantReadError):
            session.do_handshake()
        client.send(outgoing.read())
        while True:
            incoming.write(client.sock.recv(65536))
            try:
                session.do_handshake()
                break
            except ssl.SSLWantReadError:
                continue
        session.write(heartbeat("ok"))
        client.send(outgoing.read())
        client.sock.shutdown(socket.SHUT_WR)
        while client.sock.recv(65536):
            continue
        eventually("the connection is closed", lambda: not network.connections())


@pytest.mark.parametrize("seed", range(30))
def test_random_bytes_never_disturb(network: Network, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    with network.client("SSL") as client:
        for _ in range(rng.randrange(1, 4)):
            size = rng.randrange(1, 300)
            head = b"\x16\x03" + bytes((rng.randrange(4), 0, rng.randrange(256))) if rng.random() < 0.8 else b""
            with contextlib.suppress(OSError):
                client.send(head + rng.randbytes(size))
    eventually("the connection is closed", lambda: not network.connections())
    if seed % 10 == 0:
        with TlsClient(network.server.port("SSL"), tmp_path) as bystander:
            assert bystander.heartbeat("ok") == 0


def test_half_open_handshakes_end_and_others_go_on(tmp_path: Path) -> None:
    with make(barnabas_ssl_handshake_timeout_ms=3000, barnabas_ssl_handshakes_max=20, num_network_threads=1) as network:
        port = network.server.port("SSL")
        silent = [socket.create_connection(("127.0.0.1", port), TIMEOUT_S) for _ in range(60)]
        for sock in silent[::2]:
            sock.sendall(b"\x16\x03\x01\x02")
        processor = next(each for each in network.server.processors() if each.listener_name == "SSL")
        with TlsClient(port, tmp_path) as client:
            for number in range(20):
                assert client.heartbeat("ok", number) == 0
            eventually("all are closed", lambda: processor.handshakes() == 0 and processor.load() == 1)
            assert client.heartbeat("ok") == 0
        for sock in silent:
            assert Client.is_closed_by_server(_holding(sock))
            sock.close()


def _holding(sock: socket.socket) -> Any:
    """A client that has this socket."""
    client = Client.__new__(Client)
    client.sock = sock
    return client


def read_gauge(network: Network, row: Metric) -> float:
    """The value of a gauge of the listener."""
    ((_, gauge),) = dict(network.registry.collect())[row]
    return float(gauge.read())
