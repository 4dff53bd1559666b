from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from barnabas.client.connection import NodeConnection, NodeConnectionError
from barnabas.protocol.headers import RequestHeader, decode_request_header, response_parts
from barnabas.protocol.messages.k18_api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

Script = Callable[[socket.socket], None]


class Peer:
    """A listener whose connections, in turn, do what the scripts say."""

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
        self._thread.join(10)
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
    """Answer one request, byte by byte."""
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
    """Read a request and wait until the other side gives up."""
    read_request(client)
    receive(client, 1)


def ask(connection: NodeConnection) -> ApiVersionsResponse:
    response = connection.send(ApiVersionsRequest(), 0)
    assert isinstance(response, ApiVersionsResponse)
    return response


def test_requests_are_answered_in_turn(peers: list[Peer]) -> None:
    peers.append(Peer(answer_all))
    with NodeConnection("127.0.0.1", peers[0].port) as connection:
        assert [ask(connection).error_code for _ in range(3)] == [35] * 3


@pytest.mark.parametrize("size", [10, 5_000, 200_000])
def test_answers_of_any_size_arrive_whole(peers: list[Peer], size: int) -> None:
    keys = [ApiVersion(api_key=index % 90, min_version=0, max_version=3) for index in range(size // 6)]

    def answer_twice(client: socket.socket) -> None:
        for _ in range(2):
            parts = response_parts(read_request(client), ApiVersionsResponse(error_code=0, api_keys=keys))
            client.sendall(b"".join(parts))  # type: ignore[arg-type]

    peers.append(Peer(answer_twice))
    with NodeConnection("127.0.0.1", peers[0].port) as connection:
        assert [ask(connection).api_keys for _ in range(2)] == [keys] * 2


def test_what_nobody_asked_for_is_no_answer(peers: list[Peer]) -> None:
    peers.append(Peer(lambda client: (read_request(client), client.sendall(b"\0\0\0\x06\0\0\0\x01\0\0" * 2))))
    with NodeConnection("127.0.0.1", peers[0].port) as connection, pytest.raises(NodeConnectionError, match="more"):
        ask(connection)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(NodeConnectionError, match=f"cannot connect to 127.0.0.1:{port}: Connection refused"):
        ask(NodeConnection("127.0.0.1", port))


def test_after_a_hang_up_it_connects_anew(peers: list[Peer]) -> None:
    peers.append(Peer(lambda client: read_request(client) and None, answer))
    with NodeConnection("127.0.0.1", peers[0].port) as connection:
        with pytest.raises(NodeConnectionError, match="the other side closed the connection"):
            ask(connection)
        assert not connection.is_connected
        assert ask(connection).error_code == 35


def test_silence_is_an_error_in_time(peers: list[Peer]) -> None:
    peers.append(Peer(swallow))
    with (
        NodeConnection("127.0.0.1", peers[0].port, timeout_ms=50) as connection,
        pytest.raises(NodeConnectionError, match="no answer in time"),
    ):
        ask(connection)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (lambda client: answer(client, correlation_id=99), "the answer has correlation id 99, not 1"),
        (lambda client: (read_request(client), client.sendall(b"\xff\xff\xff\xff")), "a size of -1 bytes"),
        (lambda client: (read_request(client), client.sendall(b"\x7f\xff\xff\xff")), "a size of 2147483647"),
        (
            lambda client: (read_request(client), client.sendall(b"\0\0\0\x05\0\0\0\x01\0")),
            "ApiVersionsRequest v0",
        ),
    ],
)
def test_what_is_no_answer(peers: list[Peer], script: Script, message: str) -> None:
    peers.append(Peer(script))
    with (
        NodeConnection("127.0.0.1", peers[0].port) as connection,
        pytest.raises(NodeConnectionError, match=message),
    ):
        ask(connection)


def test_another_thread_can_abort(peers: list[Peer]) -> None:
    reached = threading.Event()

    def wait(client: socket.socket) -> None:
        read_request(client)
        reached.set()
        receive(client, 1)

    peers.append(Peer(wait))
    connection = NodeConnection("127.0.0.1", peers[0].port)
    aborter = threading.Thread(target=lambda: reached.wait(10) and connection.abort())
    aborter.start()
    with pytest.raises(NodeConnectionError):
        ask(connection)
    aborter.join()
    with pytest.raises(NodeConnectionError, match="was aborted"):
        ask(connection)
