"""SslTransport: over a pair of sockets, with a session in memory as the client."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.secure.ssl_transport import (
    HANDSHAKE_BYTES_MAX,
    PIECE_BYTES,
    RAW_BYTES,
    HandshakeError,
    SslTransport,
)
from barnabas.broker.network.transport import TURN_BYTES
from barnabas.broker.requests.request import RequestContext
from barnabas.security.tls.contexts import client_context, server_context
from barnabas.security.tls.session import TlsSession
from barnabas.security.tls.settings import settings_of
from barnabas.security.tls.stores import KeyEntry
from tests.support.certificates import Authority

AUTHORITY = Authority()
SERVER = AUTHORITY.issue("server")
SETTINGS = settings_of({}, "L")
AT_SERVER = server_context(SETTINGS, KeyEntry(SERVER.key, (SERVER.certificate,)), None)
AT_CLIENT = client_context(SETTINGS, None, (AUTHORITY.certificate,))
CONTEXT = RequestContext("SSL", "SSL", "127.0.0.1", 1, "a-b-0-1")


class Client:
    """The other end: a blocking socket and a session."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.session = TlsSession(AT_CLIENT, is_server=False, server_hostname="localhost")

    def step(self) -> None:
        """Continue the handshake with what the server has sent."""
        self._take()
        if not self.session.is_established:
            self.session.handshake()
        self.flush()

    def write(self, data: bytes) -> None:
        self.session.write(data)
        self.flush()

    def flush(self) -> None:
        output = self.session.take_output()
        if output:
            self.sock.sendall(output)

    def read(self, size: int) -> bytes:
        self._take()
        buffer = memoryview(bytearray(size))
        return bytes(buffer[: self.session.read_into(buffer)])

    def _take(self) -> None:
        while True:
            try:
                data = self.sock.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            if not data:
                return
            self.session.receive(data)


@pytest.fixture
def ends() -> Iterator[tuple[SslTransport, Client]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    transport = SslTransport(ours, AT_SERVER, memoryview(bytearray(RAW_BYTES)))
    with theirs:
        yield transport, Client(theirs)
        transport.close()


@pytest.fixture
def connected(ends: tuple[SslTransport, Client]) -> tuple[SslTransport, Client]:
    transport, client = ends
    while not transport.handshake():
        client.step()
    client.step()
    return ends


def test_a_handshake_takes_many_turns(ends: tuple[SslTransport, Client]) -> None:
    transport, client = ends
    assert not transport.handshake()
    client.session.handshake()
    hello = client.session.take_output()
    for index in range(len(hello)):
        client.sock.sendall(hello[index : index + 1])
        assert not transport.handshake()
    client.step()
    assert transport.handshake()
    assert transport.session.cipher()[1] == "TLSv1.3"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\0\0\0\x10\0\x12\0\0", "the client does not speak TLS"),
        (b"GET / HTTP/1.1\r\n", "the client does not speak TLS"),
        (b"\x16\x03\x01\0\x05junk!", "."),
    ],
)
def test_a_failed_handshake(ends: tuple[SslTransport, Client], data: bytes, reason: str) -> None:
    transport, client = ends
    client.sock.sendall(data)
    with pytest.raises(HandshakeError, match=reason):
        transport.handshake()


def test_an_end_during_the_handshake(ends: tuple[SslTransport, Client]) -> None:
    transport, client = ends
    client.sock.shutdown(socket.SHUT_WR)
    with pytest.raises(EOFError):
        transport.handshake()


def test_an_endless_handshake_is_cut(ends: tuple[SslTransport, Client]) -> None:
    transport, client = ends
    # Handshake records that begin a certificate message longer than is ever taken.
    record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(0x4000 - 4)

    def flood() -> None:
        for _ in range(2 * HANDSHAKE_BYTES_MAX // len(record)):
            client.sock.sendall(record)
            transport.handshake()

    with pytest.raises(HandshakeError):
        flood()


def test_one_read_takes_many_records(connected: tuple[SslTransport, Client]) -> None:
    transport, client = connected
    data = os.urandom(60_000)
    client.write(data)
    buffer = memoryview(bytearray(100_000))
    assert transport.receive_into(buffer) == len(data)
    assert bytes(buffer[: len(data)]) == data
    assert not transport.has_more()
    with pytest.raises(BlockingIOError):
        transport.receive_into(buffer)


def test_what_the_buffer_did_not_take_is_reported(connected: tuple[SslTransport, Client]) -> None:
    transport, client = connected
    client.write(bytes(1000))
    assert transport.receive_into(memoryview(bytearray(999))) == 999
    assert transport.has_more()
    assert transport.receive_into(memoryview(bytearray(999))) == 1
    assert not transport.has_more()


def test_a_connection_finds_frames_that_no_edge_reports(connected: tuple[SslTransport, Client]) -> None:
    """Frames larger than the scratch buffer, that came with one read of the socket."""
    transport, client = connected
    connection = Connection(1, transport, None, CONTEXT, 1 << 20)
    connection.secure = transport
    frames = [bytes([number]) * 6000 for number in range(9)]
    client.write(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    scratch = memoryview(bytearray(4096))
    connection.may_have_input = True
    found = []
    while connection.may_have_input or not connection.frames.is_at_boundary():
        frame = connection.read_frame(scratch)
        if frame is None:
            break
        found.append(bytes(frame))
    assert found == frames


def test_the_end_of_the_stream(connected: tuple[SslTransport, Client]) -> None:
    transport, client = connected
    client.write(b"last")
    client.sock.sendall(client.session.close())
    buffer = memoryview(bytearray(100))
    assert transport.receive_into(buffer) == 4
    assert transport.has_more()
    assert transport.receive_into(buffer) == 0


def test_a_stream_cut_without_an_end(connected: tuple[SslTransport, Client]) -> None:
    transport, client = connected
    client.sock.shutdown(socket.SHUT_WR)
    assert transport.receive_into(memoryview(bytearray(100))) == 0


def test_changed_bytes_break_the_connection(connected: tuple[SslTransport, Client]) -> None:
    transport, client = connected
    client.session.write(b"hello")
    output = bytearray(client.session.take_output())
    output[-1] ^= 1
    client.sock.sendall(output)
    with pytest.raises(ssl.SSLError):
        transport.receive_into(memoryview(bytearray(100)))


def test_small_parts_are_one_record(connected: tuple[SslTransport, Client]) -> None:
    transport, client = connected
    assert transport.send([b"a" * 10, memoryview(b"b" * 10), b"", bytearray(b"c")]) is None
    assert client.read(100) == b"a" * 10 + b"b" * 10 + b"c"


class Region:
    """A slice of a file."""

    def __init__(self, path: Path, position: int, size: int) -> None:
        self.file = path.open("rb")
        self.position, self.size = position, size

    def fileno(self) -> int:
        return self.file.fileno()

    def read(self) -> bytes:
        return os.pread(self.fileno(), self.size, self.position)


def test_large_responses_continue_when_the_socket_has_space(
    connected: tuple[SslTransport, Client], tmp_path: Path
) -> None:
    transport, client = connected
    data = os.urandom(3 * TURN_BYTES)
    path = tmp_path / "f"
    path.write_bytes(b"..." + data)
    region = Region(path, 3, len(data))
    left = transport.send([b"head", region, b"x" * (2 * PIECE_BYTES), b"tail"])
    received = b""
    while left is not None or len(received) < len(data) + 2 * PIECE_BYTES + 8:
        piece = client.read(1 << 22)
        received += piece
        if left is not None:
            left = transport.send(left)
    assert received == b"head" + data + b"x" * (2 * PIECE_BYTES) + b"tail"
    region.file.close()


def test_a_file_that_ends_early_breaks_the_connection(connected: tuple[SslTransport, Client], tmp_path: Path) -> None:
    transport, _ = connected
    path = tmp_path / "f"
    path.write_bytes(b"short")
    region = Region(path, 0, 100)
    with pytest.raises(OSError, match="the file ends"):
        transport.send([region])
    region.file.close()


def test_closing_ends_the_session(connected: tuple[SslTransport, Client]) -> None:
    transport, client = connected
    transport.close()
    assert client.read(10) == b""
    assert client.session.is_ended
