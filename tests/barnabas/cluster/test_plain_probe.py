"""The requests of a start, against the protocol's own messages."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from barnabas.cluster.plain_probe import ask_versions, listed_brokers
from barnabas.cluster.readiness import known_brokers
from barnabas.protocol.messages.k03_metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from barnabas.protocol.messages.k18_api_versions import ApiVersionsResponse

HOST, TIMEOUT_S = "127.0.0.1", 10.0
HEADER_BYTES = 14  # with the size, and without a client id
BROKERS = [
    MetadataResponseBroker(node_id=0, host="127.0.0.1", port=9092, rack=None),
    MetadataResponseBroker(node_id=7, host="::1", port=9093, rack="a rack"),
]


@contextmanager
def answering(payload: bytes, size: int | None = None, host: str = HOST) -> Iterator[tuple[int, list[bytes]]]:
    """Answer one request with a frame; yields the port, and the request once it is there."""
    requests: list[bytes] = []

    def answer() -> None:
        connection, _ = listener.accept()
        with connection:
            requests.append(connection.recv(1000))
            frame = struct.pack(">i", len(payload) if size is None else size) + payload
            with contextlib.suppress(ConnectionError):  # whoever asked may close at once
                connection.sendall(frame[:5])
                connection.sendall(frame[5:])

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1], requests
        thread.join()


def metadata(controller_id: int) -> bytes:
    return bytes(4) + MetadataResponse(brokers=BROKERS, controller_id=controller_id, topics=[]).encode(1)


def test_the_listed_brokers_are_found() -> None:
    with answering(metadata(7)) as (port, requests):
        assert listed_brokers(HOST, port, TIMEOUT_S) == {0, 7}
    size, key, version = struct.unpack_from(">ihh", requests[0])
    assert (size, key, version) == (len(requests[0]) - 4, MetadataRequest.API_KEY, 1)
    assert MetadataRequest.decode(memoryview(requests[0])[HEADER_BYTES:], 1) == MetadataRequest(topics=[])


def test_brokers_are_not_live_without_a_controller() -> None:
    with answering(metadata(-1)) as (port, _):
        assert listed_brokers(HOST, port, TIMEOUT_S) == set()


def test_versions_are_asked() -> None:
    with answering(bytes(4) + ApiVersionsResponse().encode(0)) as (port, requests):
        ask_versions(HOST, port, TIMEOUT_S)
    assert struct.unpack_from(">ihh", requests[0]) == (10, ApiVersionsResponse.API_KEY, 0)


@pytest.mark.parametrize("ask", [ask_versions, listed_brokers])
def test_a_node_that_does_not_listen_has_not_answered(ask: Callable[[str, int, float], object]) -> None:
    with socket.create_server((HOST, 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError):
        ask(HOST, port, TIMEOUT_S)


@pytest.mark.parametrize("payload", [b"", bytes(4) + b"\0\0\0\1", metadata(0)[:30]])
def test_another_answer_lists_no_broker(payload: bytes) -> None:
    with answering(payload) as (port, _):
        assert known_brokers(port, HOST) == set()


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


def test_a_node_may_listen_on_ipv6() -> None:
    if not has_ipv6():
        pytest.skip("this machine has no address ::1")  # Why: many a container has none
    with answering(metadata(7), host="::1") as (port, _):
        assert listed_brokers("::1", port, TIMEOUT_S) == {0, 7}


@pytest.mark.parametrize("size", [-1, 3, 0x48545450])
@pytest.mark.parametrize("ask", [ask_versions, listed_brokers])
def test_what_is_not_kafkas_protocol_is_no_answer(ask: Callable[[str, int, float], object], size: int) -> None:
    with (
        answering(b"/1.1 400 Bad Request", size) as (port, _),
        pytest.raises(ConnectionError, match="not one of"),
    ):
        ask(HOST, port, TIMEOUT_S)


def test_an_answer_that_ends_early_is_none() -> None:
    with answering(b"1234", 100) as (port, _), pytest.raises(ConnectionError, match="closed the connection"):
        ask_versions(HOST, port, TIMEOUT_S)


def test_a_host_that_cannot_be_has_not_answered() -> None:
    with pytest.raises(ConnectionError, match="no host can be"):
        ask_versions("ä" * 70, 1, TIMEOUT_S)
