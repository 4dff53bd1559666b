"""SslTransport: over a pair of sockets, with a session in memory as the client."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import socket
import struct
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.network.connection import (
    EXPECTED_BYTES_MAX,
    EXPECTED_BYTES_MIN,
    SECURE_EXPECTED_BYTES_MAX,
    Connection,
)
from barnabas.broker.network.connections import TLS_BUFFER_BYTES
from barnabas.broker.network.secure.ssl_transport import (
    HANDSHAKE_BYTES_MAX,
    RECORD_BYTES_MAX,
    RECORD_EXTRA_BYTES,
    SslTransport,
)
from barnabas.broker.network.transport import TURN_BYTES
from barnabas.broker.processors import SECURE_SCRATCH_BYTES
from barnabas.broker.requests.request import RequestContext
from barnabas.security.tls.contexts import client_context, server_context
from barnabas.security.tls.errors import TlsError
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

    def __init__(self, sock: socket.socket, server: socket.socket) -> None:
        self.sock = sock
        self.server = server  # the transport's
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
    transport = SslTransport(ours, AT_SERVER, memoryview(bytearray(TLS_BUFFER_BYTES)))
    with theirs:
        yield transport, Client(theirs, ours)
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
    with pytest.raises(TlsError, match=reason):
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

    with pytest.raises(TlsError):
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


class CountingSocket(socket.socket):
    """Counts the reads."""

    reads = 0

    def recv_into(self, *args: Any) -> int:
        self.reads += 1
        return super().recv_into(*args)


def test_a_large_request_that_is_there_takes_few_reads() -> None:
    """However its records are cut; Java's producer sends a batch as one record, and a small one before it."""
    theirs, ours = socket.socketpair()
    counting = CountingSocket(fileno=ours.detach())
    counting.setblocking(False)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    transport = SslTransport(counting, AT_SERVER, memoryview(bytearray(TLS_BUFFER_BYTES)))
    with theirs, contextlib.closing(transport):
        client = Client(theirs, counting)
        while not transport.handshake():
            client.step()
        client.step()
        pieces = [bytes(60), bytes(15_500)] * 6
        size = sum(map(len, pieces))
        pieces[0] = size.to_bytes(4, "big") + pieces[0]
        for piece in pieces:
            client.write(piece)
        connection = Connection(0, transport, None, CONTEXT, size)
        connection.secure = transport
        counting.reads = 0
        frame = connection.read_frame(memoryview(bytearray(SECURE_SCRATCH_BYTES)))
        assert frame is not None
        assert len(frame) == size
        assert counting.reads == 1


def test_the_end_of_the_stream_may_share_the_edge_of_a_cut_record(secured: Secured) -> None:
    """A client that dies amid a record: nothing can be decrypted, and no other edge comes."""
    secured.send(framed(SMALL)[:60])
    assert secured.read() is None
    secured.client.session.write(bytes(SMALL))
    secured.send_raw(secured.client.session.take_output()[:100])
    secured.client.sock.close()
    secured.connection.is_hung_up = True
    assert secured.read() is None
    assert secured.connection.may_have_input
    with pytest.raises(EOFError):
        secured.read()


def test_a_record_is_read_to_its_end_and_hardly_further(secured: Secured) -> None:
    """However small the caller's buffer is: of a part of a record, nothing can be decrypted."""
    secured.send(bytes(RECORD_BYTES_MAX))
    secured.send(bytes(RECORD_BYTES_MAX))
    assert secured.transport.receive_into(memoryview(bytearray(10))) == 10
    assert 0 <= RECORD_BYTES_MAX - secured.queued() < 2 * RECORD_EXTRA_BYTES


@pytest.mark.parametrize("size", [20_000, 40_000, 100_000, 300_000])
def test_no_more_is_waited_for_than_will_come(connected: tuple[SslTransport, Client], size: int) -> None:
    """Wherever the stream is cut: the session may hold most of a record, of which it reports nothing."""
    transport, client = connected
    connection = Connection(0, transport, None, CONTEXT, size)
    connection.secure = transport
    scratch = memoryview(bytearray(64 * 1024))
    client.session.write(struct.pack(">i", size) + bytes(size))
    stream = memoryview(client.session.take_output())
    waited = 0
    while stream:
        piece = stream[:1009]
        client.sock.sendall(piece)
        stream = stream[len(piece) :]
        frame = connection.read_frame(scratch)
        low_water = client.server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        assert low_water <= max(len(stream), 1) or frame is not None
        if low_water > 1 and frame is None:
            waited += 1
            assert low_water > min(len(stream), EXPECTED_BYTES_MAX - RECORD_BYTES_MAX) - 100, "and hardly less"
    assert frame is not None
    assert len(frame) == size
    assert bool(waited) == (size > 2 * RECORD_BYTES_MAX)


class Secured:
    """A connection over TCP and TLS, watched as a processor's selector does."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            theirs = socket.create_connection(server.getsockname())
            self.server = server.accept()[0]
        theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.setblocking(False)
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.transport = SslTransport(self.server, AT_SERVER, memoryview(bytearray(TLS_BUFFER_BYTES)))
        self.client = Client(theirs, self.server)
        self._epoll = select.epoll()
        self._epoll.register(self.server, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)
        while not self.transport.handshake():
            self.client.step()
            self._epoll.poll(0.01)
        self.client.step()
        self.connection = Connection(0, self.transport, None, CONTEXT, 1 << 20)
        self.connection.secure = self.transport
        self._scratch = memoryview(bytearray(SECURE_SCRATCH_BYTES))

    def has_edge(self, timeout_s: float = 0) -> bool:
        return bool(self._epoll.poll(timeout_s))

    def send(self, data: bytes) -> None:
        """Send bytes as one record or more, and wait until they are there."""
        self.client.session.write(data)
        self.send_raw(self.client.session.take_output())

    def send_raw(self, data: bytes) -> None:
        held = self.queued()
        self.client.sock.sendall(data)
        while self.queued() < held + len(data):
            select.select([], [], [], 0.001)

    def read(self) -> bytes | None:
        frame = self.connection.read_frame(self._scratch)
        return None if frame is None else bytes(frame)

    def low_water(self) -> int:
        return self.server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    def close(self) -> None:
        self.transport.close()
        self.client.sock.close()
        self._epoll.close()

    def queued(self) -> int:
        return int.from_bytes(fcntl.ioctl(self.server, termios.FIONREAD, bytes(4)), "little")


@pytest.fixture
def secured() -> Iterator[Secured]:
    made = Secured()
    yield made
    made.close()


def framed(size: int) -> bytes:
    return size.to_bytes(4, "big") + bytes(size)


LARGE = 6 * 15_500
SMALL = 1000


def test_the_records_of_a_large_frame_wake_the_processor_once(secured: Secured) -> None:
    frame = framed(LARGE)
    secured.send(frame[:60])
    assert secured.read() is None
    secured.has_edge()
    sent = 60
    while sent < len(frame) - 15_500:
        secured.send(frame[sent : sent + 15_500])
        sent += 15_500
        assert not secured.has_edge()
    secured.send(frame[sent:])
    assert secured.has_edge(10)
    assert secured.read() == frame[4:]


def test_nothing_wakes_the_processor_while_a_large_request_is_in_progress(secured: Secured) -> None:
    """What comes meanwhile is found by the read that follows the response."""
    secured.send(framed(LARGE))
    assert secured.read() == bytes(LARGE)
    assert secured.connection.may_have_input
    secured.has_edge()
    for _ in range(9):
        secured.send(bytes(SMALL))
    assert not secured.has_edge()
    secured.send(bytes(SECURE_EXPECTED_BYTES_MAX - 9 * SMALL))
    assert secured.has_edge(10), "the client would have to wait if all that it may send were there"


@pytest.mark.parametrize("size", [None, 0, SMALL])
def test_the_read_after_a_large_request_lets_any_byte_wake_the_processor(secured: Secured, size: int | None) -> None:
    secured.send(framed(LARGE))
    assert secured.read() == bytes(LARGE)
    if size is not None:
        secured.send(framed(size))
    assert secured.read() == (None if size is None else bytes(size))
    assert (secured.low_water(), secured.connection.expected_bytes) == (1, 0)
    assert not secured.connection.may_have_input
    secured.has_edge()
    secured.send_raw(b"\x17")
    assert secured.has_edge(10)


def test_the_end_of_the_stream_is_reported_while_a_large_request_is_in_progress(secured: Secured) -> None:
    secured.send(framed(LARGE))
    assert secured.read() == bytes(LARGE)
    secured.has_edge()
    secured.client.sock.close()
    assert secured.has_edge(10)


def test_a_frame_larger_than_a_receive_buffer_is_read_in_pieces(secured: Secured) -> None:
    """So that its client can go on sending."""
    secured.send(framed(3 * SECURE_EXPECTED_BYTES_MAX)[:60])
    assert secured.read() is None
    assert EXPECTED_BYTES_MAX < secured.low_water() < EXPECTED_BYTES_MAX + 100


def test_a_small_receive_buffer_is_read_at_once(secured: Secured) -> None:
    secured.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
    secured.send(framed(LARGE)[:60])
    assert secured.read() is None
    assert secured.low_water() == 1


def test_a_record_cut_after_its_header_is_waited_for(secured: Secured) -> None:
    frame = framed(EXPECTED_BYTES_MIN + SMALL)
    secured.send(frame[:60])
    assert secured.read() is None
    secured.client.session.write(frame[60:16_000])
    record = secured.client.session.take_output()
    secured.send_raw(record[:9000])
    assert secured.read() is None
    missing = len(record) - 9000 + len(frame) - 16_000
    assert missing - 50 < secured.low_water() <= missing
    secured.send_raw(record[9000:])
    secured.send(frame[16_000:])
    assert secured.has_edge(10)
    assert secured.read() == frame[4:]


def test_a_header_that_has_come_in_part_counts_once(secured: Secured) -> None:
    """The shortest record: TLS_AES_128_CCM_8_SHA256 adds a header of 5 bytes, a type of 1 and a check sum of 8."""
    frame = framed(EXPECTED_BYTES_MIN + SMALL)
    secured.send(frame[: -SMALL * 17])
    assert secured.read() is None
    secured.client.session.write(frame[-SMALL * 17 :])
    raw = secured.client.session.take_output()
    secured.send_raw(raw[:3])
    assert secured.read() is None
    missing = secured.connection.frames.missing_bytes()
    records = -(-missing // RECORD_BYTES_MAX)
    assert secured.low_water() == 2 + missing + records * 14 - 5


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
    with pytest.raises(TlsError):
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
    left = transport.send([b"head", region, b"x" * (2 * TLS_BUFFER_BYTES), b"tail"])
    received = b""
    while left is not None or len(received) < len(data) + 2 * TLS_BUFFER_BYTES + 8:
        piece = client.read(1 << 22)
        received += piece
        if left is not None:
            left = transport.send(left)
    assert received == b"head" + data + b"x" * (2 * TLS_BUFFER_BYTES) + b"tail"
    region.file.close()


def test_a_full_piece_ends_where_a_part_does(connected: tuple[SslTransport, Client]) -> None:
    transport, client = connected
    first, second = os.urandom(TLS_BUFFER_BYTES - 5), os.urandom(TLS_BUFFER_BYTES)
    left = transport.send([first, b"12345", second, b"", b"6"])
    received = b""
    while left is not None or len(received) < 2 * TLS_BUFFER_BYTES + 1:
        received += client.read(1 << 22)
        if left is not None:
            left = transport.send(left)
    assert received == first + b"12345" + second + b"6"


def test_an_empty_response_sends_nothing(connected: tuple[SslTransport, Client]) -> None:
    transport, client = connected
    assert transport.send([b""]) is None
    assert client.read(10) == b""


def test_what_came_with_the_end_of_the_handshake_is_read(ends: tuple[SslTransport, Client]) -> None:
    transport, client = ends
    while not client.session.is_established:
        transport.handshake()
        client.step()
    client.write(b"first")
    while not transport.handshake():
        pass
    buffer = memoryview(bytearray(100))
    assert transport.has_more()
    assert transport.receive_into(buffer) == 5
    assert not transport.has_more()


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
