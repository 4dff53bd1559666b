"""`client/connection.py` and `client/errors.py` with a scripted peer: responses, timeouts, damage, abort."""

from __future__ import annotations

import socket
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from barnabas.client.connection import (
    MAX_RESPONSE_BYTES,
    QUIET_MS,
    REOPEN_MS,
    SCRATCH_BYTES_MAX,
    TRUSTED_BYTES,
    NodeConnection,
    NodeConnectionError,
)
from barnabas.common.clock import FakeClock
from barnabas.protocol.headers import RequestHeader, decode_request_header, response_parts
from barnabas.protocol.messages.k01_fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

Script = Callable[[socket.socket], None]
WAIT_S = 60


class Peer:
    """A listener that runs one script for each connection, in turn."""

    def __init__(self, *scripts: Script) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._scripts = scripts
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        for script in self._scripts:
            client, _ = self._listener.accept()
            with client:
                script(client)

    def close(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self._listener.close()


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    started: list[Peer] = []
    yield started
    for peer in started:
        peer.close()


def receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        if not more:
            break
        data += more
    return data


def read_request(client: socket.socket) -> RequestHeader:
    (size,) = struct.unpack(">i", receive(client, 4))
    header, _ = decode_request_header(receive(client, size))
    return header


def answer(client: socket.socket, correlation_id: int | None = None) -> None:
    """Answer one request, one byte at a time."""
    header = read_request(client)
    if correlation_id is not None:
        header.correlation_id = correlation_id
    for part in response_parts(header, ApiVersionsResponse(error_code=35)):
        for index in range(len(part)):  # type: ignore[arg-type]
            client.sendall(bytes(part[index : index + 1]))  # type: ignore[index]


def answer_all(client: socket.socket) -> None:
    for _ in range(3):
        answer(client)


def swallow(client: socket.socket) -> None:
    """Read a request and wait until the client closes the connection."""
    read_request(client)
    receive(client, 1)


def versions(connection: NodeConnection) -> ApiVersionsResponse:
    response = connection.send(ApiVersionsRequest(), 0)
    assert isinstance(response, ApiVersionsResponse)
    return response


def test_requests_are_answered_in_turn(peers: list[Peer]) -> None:
    peers.append(Peer(answer_all))
    with NodeConnection("127.0.0.1", peers[0].port) as connection:
        assert [versions(connection).error_code for _ in range(3)] == [35] * 3


@pytest.mark.parametrize("size", [10, 5_000, 200_000])
def test_responses_of_any_size_arrive_whole(peers: list[Peer], size: int) -> None:
    keys = [ApiVersion(api_key=index % 90, min_version=0, max_version=3) for index in range(size // 6)]

    def answer_twice(client: socket.socket) -> None:
        for _ in range(2):
            parts = response_parts(read_request(client), ApiVersionsResponse(error_code=0, api_keys=keys))
            client.sendall(b"".join(parts))  # type: ignore[arg-type]

    peers.append(Peer(answer_twice))
    with NodeConnection("127.0.0.1", peers[0].port) as connection:
        assert [versions(connection).api_keys for _ in range(2)] == [keys] * 2


@pytest.mark.parametrize("large", [SCRATCH_BYTES_MAX - 10, SCRATCH_BYTES_MAX, SCRATCH_BYTES_MAX + 10])
def test_responses_after_a_large_one_arrive_whole(peers: list[Peer], large: int) -> None:
    """Only their size is read first."""
    counts = [size // 6 for size in (10, large, 10, 10, large, large, 10)]
    sent = [[ApiVersion(api_key=index % 90, min_version=0, max_version=3) for index in range(n)] for n in counts]

    def answer_each(client: socket.socket) -> None:
        for keys in sent:
            parts = response_parts(read_request(client), ApiVersionsResponse(error_code=0, api_keys=keys))
            client.sendall(b"".join(parts))  # type: ignore[arg-type]

    peers.append(Peer(answer_each))
    with NodeConnection("127.0.0.1", peers[0].port) as connection:
        assert [versions(connection).api_keys for _ in sent] == sent


def test_unexpected_bytes_are_an_error(peers: list[Peer]) -> None:
    peers.append(Peer(lambda client: (read_request(client), client.sendall(b"\0\0\0\x06\0\0\0\x01\0\0" * 2))))
    with (
        NodeConnection("127.0.0.1", peers[0].port) as connection,
        pytest.raises(NodeConnectionError, match="unexpected bytes"),
    ):
        versions(connection)


@pytest.mark.parametrize("cut", [4, 5, 7])
def test_a_listener_with_tls_is_named(peers: list[Peer], cut: int) -> None:
    """A TLS server answers what is no TLS with an alert, which would be the size of a response of 352 MB."""
    alert = bytes.fromhex("15030300020216")
    peers.append(Peer(lambda client: (read_request(client), client.sendall(alert[:cut]), receive(client, 1))))
    with (
        NodeConnection("127.0.0.1", peers[0].port) as connection,
        pytest.raises(
            NodeConnectionError, match="the other node speaks TLS on this port, and this connection does not"
        ),
    ):
        versions(connection)


def test_a_false_size_of_the_first_response_costs_little_memory(peers: list[Peer]) -> None:
    head = struct.pack(">i", MAX_RESPONSE_BYTES)
    peers.append(Peer(lambda client: (read_request(client), client.sendall(head + bytes(100)))))
    tracemalloc.start()
    try:
        with NodeConnection("127.0.0.1", peers[0].port) as connection, pytest.raises(NodeConnectionError):
            versions(connection)
        assert tracemalloc.get_traced_memory()[1] < 3 * TRUSTED_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [TRUSTED_BYTES - 9, TRUSTED_BYTES, TRUSTED_BYTES + 1, 3 * TRUSTED_BYTES + 7])
def test_large_first_responses_arrive_whole(peers: list[Peer], size: int) -> None:
    topic = FetchableTopicResponse(topic="t", partitions=[PartitionData(records=bytes(range(256)) * (size // 256))])

    def answer_twice(client: socket.socket) -> None:
        for _ in range(2):
            parts = response_parts(read_request(client), FetchResponse(responses=[topic]))
            client.sendall(b"".join(parts))  # type: ignore[arg-type]

    peers.append(Peer(answer_twice))
    with NodeConnection("127.0.0.1", peers[0].port) as connection:
        for _ in range(2):
            assert connection.send(FetchRequest(), 12).responses == [topic]


def test_a_refused_connection_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NodeConnectionError, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
        versions(NodeConnection("127.0.0.1", port))


@pytest.mark.parametrize("host", ["a..b", "x" * 64, ".example", "\u00e9" * 300, ""])
def test_a_host_that_is_no_name_is_an_error(host: str) -> None:
    """A node may register any host. Without this, the threads that push to it and follow it would end."""
    with pytest.raises(NodeConnectionError, match="cannot connect to"):
        NodeConnection(host, 1).send(ApiVersionsRequest(), 3)


def test_a_closed_connection_is_opened_again(peers: list[Peer]) -> None:
    peers.append(Peer(lambda client: read_request(client) and None, answer))
    with NodeConnection("127.0.0.1", peers[0].port) as connection:
        with pytest.raises(NodeConnectionError, match="the other node closed the connection"):
            versions(connection)
        assert not connection.is_connected
        assert versions(connection).error_code == 35


def test_a_quiet_connection_that_the_peer_closed_is_opened_again_before_a_request(peers: list[Peer]) -> None:
    closed = threading.Event()

    def answer_and_close(client: socket.socket) -> None:
        answer(client)
        client.shutdown(socket.SHUT_RDWR)
        closed.set()

    clock = FakeClock()
    peers.append(Peer(answer_and_close, answer))
    with NodeConnection("127.0.0.1", peers[0].port, clock=clock) as connection:
        assert versions(connection).error_code == 35
        assert closed.wait(WAIT_S)
        clock.advance_ms(QUIET_MS)
        assert versions(connection).error_code == 35


def test_a_node_that_closed_a_quiet_connection_and_is_gone_is_not_waited_for_long(
    peers: list[Peer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that was moved, say: its users turn to the next one after a failure, and no SYN is refused."""
    closed = threading.Event()
    timeouts: list[float] = []

    def answer_and_close(client: socket.socket) -> None:
        answer(client)
        client.shutdown(socket.SHUT_RDWR)
        closed.set()

    def drop(_address: tuple[str, int], timeout: float) -> socket.socket:
        timeouts.append(timeout)
        raise TimeoutError

    clock = FakeClock()
    peers.append(Peer(answer_and_close))
    with NodeConnection("127.0.0.1", peers[0].port, clock=clock, timeout_ms=30_000) as connection:
        assert versions(connection).error_code == 35
        assert closed.wait(WAIT_S)
        clock.advance_ms(QUIET_MS)
        monkeypatch.setattr(socket, "create_connection", drop)
        for _ in range(2):
            with pytest.raises(NodeConnectionError, match="no response in time"):
                versions(connection)
    assert timeouts == [REOPEN_MS / 1000, 30], "the first attempt only"


def test_a_silent_peer_times_out(peers: list[Peer]) -> None:
    peers.append(Peer(swallow))
    with (
        NodeConnection("127.0.0.1", peers[0].port, timeout_ms=50) as connection,
        pytest.raises(NodeConnectionError, match="no response in time"),
    ):
        versions(connection)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (lambda client: answer(client, correlation_id=99), "the response has correlation id 99, not 1"),
        (lambda client: (read_request(client), client.sendall(b"\xff\xff\xff\xff")), "a size of -1 bytes"),
        (lambda client: (read_request(client), client.sendall(b"\x7f\xff\xff\xff")), "a size of 2147483647"),
        (
            lambda client: (read_request(client), client.sendall(b"\0\0\0\x05\0\0\0\x01\0")),
            "ApiVersionsRequest v0",
        ),
    ],
)
def test_invalid_responses_are_errors(peers: list[Peer], script: Script, message: str) -> None:
    peers.append(Peer(script))
    with (
        NodeConnection("127.0.0.1", peers[0].port) as connection,
        pytest.raises(NodeConnectionError, match=message),
    ):
        versions(connection)


def test_another_thread_can_abort(peers: list[Peer]) -> None:
    reached = threading.Event()

    def wait(client: socket.socket) -> None:
        read_request(client)
        reached.set()
        receive(client, 1)

    peers.append(Peer(wait))
    connection = NodeConnection("127.0.0.1", peers[0].port)
    aborter = threading.Thread(target=lambda: reached.wait(WAIT_S) and connection.abort())
    aborter.start()
    with pytest.raises(NodeConnectionError):
        versions(connection)
    aborter.join()
    with pytest.raises(NodeConnectionError, match="was aborted"):
        versions(connection)
