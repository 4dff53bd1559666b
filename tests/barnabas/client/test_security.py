"""ClientSecurity: connections between nodes over TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.client.security import security_of, security_of_brokers, security_of_controller
from barnabas.common.clock import SystemClock
from barnabas.config import Config
from barnabas.protocol.headers import decode_request_header
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.security.tls.endpoints import TlsEndpoints
from tests.support.certificates import Authority

AUTHORITY = Authority()
SIZE = 3_000_000
CLOCK = SystemClock()
CONFIG = Config.from_properties({"node.id": "1"})


def endpoints(authority: Authority = AUTHORITY, names: tuple[str, ...] = ("localhost",)) -> TlsEndpoints:
    own = AUTHORITY.issue("node", names=names)
    originals = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.key_pem(),
        "ssl.keystore.certificate.chain": own.chain_pem(),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.pem(),
        "ssl.client.auth": "required",
    }
    return TlsEndpoints(originals, SystemClock().wall_ms)


@contextmanager
def node(tls: TlsEndpoints) -> Iterator[int]:
    """A node that answers every request with a large ApiVersions response."""
    listener = socket.create_server(("localhost", 0))
    context = tls.listener("SSL", "SSL").server_context

    def serve() -> None:
        try:
            plain, _ = listener.accept()
            with context.wrap_socket(plain, server_side=True) as sock:
                stream = sock.makefile("rwb")
                while size := stream.read(4):
                    frame = stream.read(int.from_bytes(size, "big"))
                    header, _ = decode_request_header(memoryview(frame))
                    body = ApiVersionsResponse(throttle_time_ms=SIZE).encode(0)
                    answer = header.correlation_id.to_bytes(4, "big") + bytes(body)
                    stream.write(len(answer).to_bytes(4, "big") + answer)
                    stream.flush()
        except OSError:
            return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.close()
        thread.join()


def test_requests_go_through_tls() -> None:
    tls = endpoints()
    security = security_of(tls, CONFIG, "SSL", "SSL", CLOCK)
    with node(tls) as port, NodeConnection("localhost", port, security=security) as connection:
        for _ in range(3):
            assert connection.send(ApiVersionsRequest(), 0).error_code == 0


def test_a_stranger_and_another_name_are_refused() -> None:
    for far, near, reason in (
        (endpoints(), endpoints(Authority("stranger")), "certificate is refused"),
        (endpoints(names=("other",)), endpoints(), "Hostname mismatch"),
    ):
        with node(far) as port:
            connection = NodeConnection("localhost", port, security=security_of(near, CONFIG, "SSL", "SSL", CLOCK))
            with pytest.raises(
                NodeConnectionError, match=f"the TLS handshake with localhost:{port} failed: .*{reason}"
            ):
                connection.send(ApiVersionsRequest(), 0)
            assert not connection.is_connected


def test_a_silent_node_does_not_block_the_handshake_for_ever() -> None:
    with socket.create_server(("localhost", 0)) as silent:
        port = silent.getsockname()[1]
        connection = NodeConnection(
            "localhost", port, timeout_ms=50, security=security_of(endpoints(), CONFIG, "SSL", "SSL", CLOCK)
        )
        with pytest.raises(NodeConnectionError, match="no response in time"):
            connection.connect()


def test_which_listener_leads_where() -> None:
    tls = endpoints()
    config = Config.from_properties(
        {
            "node.id": "1",
            "listeners": "IN://:1,OUT://:2",
            "inter.broker.listener.name": "IN",
            "controller.listener.names": "CTL",
            "listener.security.protocol.map": "IN:SSL,OUT:PLAINTEXT,CTL:PLAINTEXT",
        }
    )
    security = security_of_brokers(tls, config, CLOCK)
    assert security is not None
    assert (security.listener_name, security.protocol) == ("IN", "SSL")
    assert security_of_controller(tls, config, CLOCK) is None
