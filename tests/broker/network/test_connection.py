"""Frames: each stream is fed whole, byte by byte, and with bytes of the next frame behind it."""

from __future__ import annotations

import errno
import fcntl
import random
import select
import socket
import struct
import termios
from typing import Any

import pytest

from barnabas.broker.network.batches.many_sockets import EACH_BYTES
from barnabas.broker.network.connection import (
    EXPECTED_BYTES_MAX,
    EXPECTED_BYTES_MIN,
    START_BYTES,
    Connection,
    FrameReader,
    InvalidFrameError,
)
from barnabas.broker.network.memory_pool import MemoryGate, MemoryPool
from barnabas.broker.network.transport import TURN_BYTES, PlainTransport
from barnabas.broker.requests.request import Request, RequestContext

SIZE_MAX = 3_000_000
CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1")

STREAMS: dict[str, list[bytes]] = {
    "one": [b"abc"],
    "empty": [b""],
    "several": [b"a", b"", b"bc" * 100, b"d" * 4],
    "large": [random.Random(1).randbytes(70_000), b"x"],
    "larger than what is trusted": [b"y" * 2_500_000, b"z"],
}


def framed(payloads: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def feed(reader: FrameReader, data: bytes, chunk_size: int) -> list[bytes]:
    """Give `data` to the reader in chunks, as a connection does; return the frames."""
    frames: list[bytes] = []
    view = memoryview(data)
    while len(view):
        wanted = reader.wanted()
        if wanted is None:
            frame = reader.receive(view[:chunk_size])
            view = view[chunk_size:]
        else:
            count = min(len(wanted), len(view), chunk_size)
            wanted[:count] = view[:count]
            wanted.release()
            view = view[count:]
            frame = reader.filled(count)
        while frame is not None:
            assert not frame.readonly, "storage patches batch headers in place"
            frames.append(bytes(frame))
            frame = reader.next_frame()
    return frames


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("chunk_size", [1, 3, 4, 7, 65_536, 10**9])
def test_frames_come_out_however_they_are_cut(name: str, chunk_size: int) -> None:
    payloads = STREAMS[name]
    if chunk_size < 8 and sum(map(len, payloads)) > 100_000:
        chunk_size += 4_000
    reader = FrameReader(SIZE_MAX)
    assert feed(reader, framed(payloads), chunk_size) == payloads
    assert reader.is_at_boundary()


@pytest.mark.parametrize("name", STREAMS)
def test_bytes_after_a_frame_are_kept(name: str) -> None:
    reader = FrameReader(SIZE_MAX)
    assert feed(reader, framed(STREAMS[name]) + b"\0\0", 10**9) == STREAMS[name]
    assert not reader.is_at_boundary()
    assert feed(reader, b"\0\1!", 10**9) == [b"!"]


@pytest.mark.parametrize("size", [-1, -(2**31), SIZE_MAX + 1, 2**31 - 1])
@pytest.mark.parametrize("chunk_size", [1, 4, 100])
def test_impossible_sizes_are_refused(size: int, chunk_size: int) -> None:
    reader = FrameReader(SIZE_MAX)
    with pytest.raises(InvalidFrameError, match=str(size)):
        feed(reader, struct.pack(">i", size) + b"rest", chunk_size)


def test_a_false_size_allocates_no_memory() -> None:
    reader = FrameReader(100_000_000)
    reader.receive(memoryview(struct.pack(">i", 100_000_000) + b"x"))
    wanted = reader.wanted()
    assert wanted is not None
    assert len(wanted) < 2_000_000


def test_a_frame_whose_sender_is_not_trusted_grows_with_its_bytes() -> None:
    reader = FrameReader(500_000)
    reader.trusted_bytes = 4096
    payload = random.Random(1).randbytes(500_000)
    reader.receive(memoryview(struct.pack(">i", len(payload))))
    at, frame = 0, None
    while frame is None:
        wanted = reader.wanted()
        assert wanted is not None
        assert len(wanted) <= max(4096, at)
        count = min(1000, len(wanted))
        wanted[:count] = payload[at : at + count]
        wanted.release()
        at += count
        frame = reader.filled(count)
    assert bytes(frame) == payload


@pytest.mark.parametrize("seed", range(10))
def test_random_streams_in_random_cuts(seed: int) -> None:
    random_ = random.Random(seed)
    payloads = [random_.randbytes(random_.choice((0, 1, 30, 5_000))) for _ in range(30)]
    data = framed(payloads)
    reader = FrameReader(SIZE_MAX)
    frames: list[bytes] = []
    while data:
        count = random_.randrange(1, 3_000)
        frames += feed(reader, data[:count], random_.randrange(1, 3_000))
        data = data[count:]
    assert frames == payloads


SIZE = 5 * TURN_BYTES


class Peer:
    """A connection over a socket pair, or over TCP."""

    def __init__(self, pair: tuple[socket.socket, socket.socket] | None = None) -> None:
        self.client, self.server = pair or socket.socketpair()
        self.server.setblocking(False)
        self.connection = Connection(self.server.fileno(), PlainTransport(self.server), None, CONTEXT, SIZE_MAX)
        self.scratch = memoryview(bytearray(64))

    def read(self) -> bytes | None:
        frame = self.connection.read_frame(self.scratch)
        return None if frame is None else bytes(frame)

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture
def peer() -> Any:
    peer = Peer()
    yield peer
    peer.close()


def test_pipelined_frames_are_read_one_at_a_time(peer: Peer) -> None:
    payloads = [b"first", b"2" * 200, b"third"]
    peer.client.sendall(framed(payloads))
    assert [peer.read(), peer.read(), peer.read(), peer.read()] == [*payloads, None]
    assert not peer.connection.may_have_input


def test_more_input_is_remembered(peer: Peer) -> None:
    peer.client.sendall(framed([b"a" * 60, b"b"]))
    assert peer.read() == b"a" * 60
    assert peer.connection.may_have_input, "the read filled its buffer: no edge reports the rest"


def test_the_end_of_the_stream_may_share_the_edge_of_the_last_frame(peer: Peer) -> None:
    peer.client.sendall(framed([b"last"]))
    peer.client.close()
    peer.connection.is_hung_up = True
    assert peer.read() == b"last"
    assert peer.connection.may_have_input
    with pytest.raises(EOFError):
        peer.read()


def test_a_cut_frame_ends_the_stream(peer: Peer) -> None:
    peer.client.sendall(framed([b"abc"])[:-1])
    assert peer.read() is None
    peer.client.close()
    with pytest.raises(EOFError):
        peer.read()


def test_a_connection_whose_requests_are_small_takes_what_was_received_for_it(peer: Peer) -> None:
    connection = peer.connection
    assert not connection.reads_small(), "nothing is known of it"
    peer.client.sendall(framed([b"small"]))
    peer.read()
    assert connection.reads_small()
    payloads = [b"first", b"", b"third"]
    frame = connection.take_frame(bytearray(framed(payloads)))
    assert frame is not None
    assert not frame.readonly
    assert [bytes(frame), peer.read(), peer.read(), peer.read()] == [*payloads, None]
    assert bytes(connection.take_frame(bytearray(framed([b"whole"]))) or b"") == b"whole"
    assert not connection.may_have_input
    connection.is_hung_up = True
    connection.take_frame(bytearray(framed([b"last"])))
    assert connection.may_have_input, "the end of the stream may have shared the edge"


@pytest.mark.parametrize("cut", [1, 3, 4, 5, 30])
def test_a_frame_of_which_a_part_was_received_is_read_on(peer: Peer, cut: int) -> None:
    stream = framed([b"x" * 40, b"next"])
    assert peer.connection.take_frame(bytearray(stream[:cut])) is None
    assert not peer.connection.reads_small()
    peer.client.sendall(stream[cut:])
    assert [peer.read(), peer.read()] == [b"x" * 40, b"next"]


def test_what_fills_a_small_read_may_have_a_rest(peer: Peer) -> None:
    payload = b"x" * 5_000
    stream = framed([payload])
    assert peer.connection.take_frame(bytearray(stream[:EACH_BYTES])) is None
    assert peer.connection.may_have_input
    peer.client.sendall(stream[EACH_BYTES:])
    peer.scratch = memoryview(bytearray(EACH_BYTES))
    assert peer.read() == payload
    assert not peer.connection.reads_small()


def test_errors_of_a_received_piece(peer: Peer) -> None:
    connection = peer.connection
    connection.may_have_input = True
    assert connection.take_frame(-errno.EAGAIN) is None
    assert not connection.may_have_input
    with pytest.raises(ConnectionResetError):
        connection.take_frame(-errno.ECONNRESET)
    with pytest.raises(EOFError):
        connection.take_frame(bytearray())
    with pytest.raises(InvalidFrameError):
        connection.take_frame(bytearray(b"\xff" * 8))


def test_a_connection_with_large_requests_is_not_read_in_small_pieces() -> None:
    """Nor one whose frames wait for memory."""
    peer = Peer()
    peer.client.sendall(framed([b"x" * 100]))
    assert len(peer.read() or b"") == 100
    assert not peer.connection.reads_small(), "the request took two reads, although the second one was small"
    for _ in range(2):  # the first one takes two reads, since it might have been large again
        peer.client.sendall(framed([b"x" * 10]))
        assert peer.read() == b"x" * 10
    assert peer.connection.reads_small()
    peer.connection.gate = MemoryGate(MemoryPool(1, lambda: 0), lambda: None)
    assert not peer.connection.reads_small()
    peer.close()


def test_a_muted_connection_is_not_read(peer: Peer) -> None:
    request = Request(peer.connection, None, CONTEXT, memoryview(b""))
    peer.connection.mute(request)
    with pytest.raises(AssertionError):
        peer.read()
    with pytest.raises(AssertionError):
        peer.connection.mute(request)
    assert peer.connection.is_muted


def test_a_large_frame_is_read_over_several_turns() -> None:
    """However fast its sender is. The rest is read in the next turn; no edge reports it."""

    class Endless:
        may_go_on = False

        def receive_into(self, buffer: memoryview) -> int:
            if not self.began:
                buffer[:4] = SIZE.to_bytes(4, "big")
            self.began = True
            return len(buffer)

        began = False

    connection = Connection(0, Endless(), None, CONTEXT, SIZE)  # type: ignore[arg-type]
    scratch = memoryview(bytearray(64 * 1024))
    turns = 1
    while connection.read_frame(scratch) is None:
        assert connection.may_have_input
        turns += 1
        assert turns < 100
    assert 3 <= turns <= SIZE // TURN_BYTES


class NotingSocket(socket.socket):
    """Notes how much each read asks for."""

    asked: list[int]

    def recv_into(self, *args: Any) -> int:
        self.asked.append(len(args[0]))
        return super().recv_into(*args)


def test_after_a_large_frame_the_next_one_is_read_into_its_own_buffer() -> None:
    client, server = socket.socketpair()
    noting = NotingSocket(fileno=server.detach())
    noting.asked = []
    noting.setblocking(False)
    peer = Peer((client, noting))
    peer.client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    scratch = memoryview(bytearray(64 * 1024))
    bodies = [random.Random(size).randbytes(size) for size in (64 * 1024 + 1, 90_000, 10, 20)]
    for body in bodies:
        peer.client.sendall(framed([body]))
        frame = peer.connection.read_frame(scratch)
        assert frame is not None
        assert bytes(frame) == body
    peer.close()
    first, rest = len(scratch), 4 - START_BYTES
    assert noting.asked == [first, 5, START_BYTES, 90_000 + rest, START_BYTES, 10 + rest, first]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 100])
def test_a_frame_of_any_size_follows_a_large_one(peer: Peer, size: int) -> None:
    large, small = bytes(1000), random.Random(size).randbytes(size)
    assert len(large) > len(peer.scratch)
    peer.client.sendall(framed([large, small, small, large]))
    assert [peer.read() for _ in range(5)] == [large, small, small, large, None]


def test_a_small_frame_after_a_large_one_needs_no_memory_of_the_pool(peer: Peer) -> None:
    """Read whole, it is let in although others hold the pool (memory_pool.py, rule 3)."""
    pool = MemoryPool(1000, lambda: 0)
    peer.connection.gate = MemoryGate(pool, lambda: None)
    peer.client.sendall(framed([bytes(500)]))
    assert len(peer.read() or b"") == 500
    peer.connection.release_memory()
    pool.take(1000)
    peer.client.sendall(framed([b"heartbeat"]))
    assert peer.read() == b"heartbeat"


class TcpPeer(Peer):
    """A connection over TCP, watched as a processor's selector does."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            client = socket.create_connection(server.getsockname())
            super().__init__((client, server.accept()[0]))
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self.scratch = memoryview(bytearray(64 * 1024))
        self._epoll = select.epoll()
        self._epoll.register(self.server, select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET)

    def has_edge(self, timeout_s: float = 0) -> bool:
        return bool(self._epoll.poll(timeout_s))

    def send(self, data: bytes | memoryview) -> None:
        """Send bytes, and wait until they are there."""
        held = self._queued()
        self.client.sendall(data)
        while self._queued() < held + len(data):
            select.select([], [], [], 0.001)

    def expected(self) -> int:
        return self.server.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

    def _queued(self) -> int:
        return struct.unpack("i", fcntl.ioctl(self.server, termios.FIONREAD, bytes(4)))[0]

    def close(self) -> None:
        super().close()
        self._epoll.close()


@pytest.fixture
def tcp_peer() -> Any:
    peer = TcpPeer()
    yield peer
    peer.close()


def test_pieces_of_a_large_frame_do_not_wake_the_processor(tcp_peer: TcpPeer) -> None:
    body = random.Random(3).randbytes(EXPECTED_BYTES_MAX + 2 * EXPECTED_BYTES_MIN)
    stream = memoryview(framed([body]))
    tcp_peer.send(stream[:1000])
    assert tcp_peer.has_edge(10)
    assert tcp_peer.read() is None
    assert tcp_peer.expected() == EXPECTED_BYTES_MAX
    for start in range(1000, 1000 + EXPECTED_BYTES_MAX - 1000, 1000):
        tcp_peer.send(stream[start : start + 1000])
    assert not tcp_peer.has_edge()
    sent = start + 1000
    tcp_peer.send(stream[sent : 1000 + EXPECTED_BYTES_MAX])
    assert tcp_peer.has_edge(10), "a large piece is there"
    assert tcp_peer.read() is None
    assert tcp_peer.expected() == len(stream) - 1000 - EXPECTED_BYTES_MAX, "no more than what is missing"
    tcp_peer.send(stream[1000 + EXPECTED_BYTES_MAX :])
    assert tcp_peer.has_edge(10)
    assert tcp_peer.read() == body


def test_any_byte_of_the_next_frame_wakes_the_processor(tcp_peer: TcpPeer) -> None:
    body = bytes(2 * EXPECTED_BYTES_MIN)
    stream = framed([body])
    tcp_peer.send(stream[:100])
    assert tcp_peer.read() is None
    tcp_peer.send(stream[100:])
    assert tcp_peer.read() == body
    assert (tcp_peer.expected(), tcp_peer.connection.expected_bytes) == (1, 0)
    tcp_peer.has_edge()
    tcp_peer.send(b"\0")
    assert tcp_peer.has_edge(10)


def test_the_end_of_the_stream_is_reported_however_much_is_missing(tcp_peer: TcpPeer) -> None:
    tcp_peer.send(framed([bytes(EXPECTED_BYTES_MAX)])[:100])
    assert tcp_peer.has_edge(10)
    assert tcp_peer.read() is None
    tcp_peer.client.close()
    assert tcp_peer.has_edge(10)
    with pytest.raises(EOFError):
        tcp_peer.read()


def test_the_last_bytes_of_a_frame_are_not_waited_for_in_one_piece(tcp_peer: TcpPeer) -> None:
    tcp_peer.send(framed([bytes(EXPECTED_BYTES_MIN + 4)])[:8])
    assert tcp_peer.read() is None
    assert tcp_peer.expected() == 1


@pytest.mark.parametrize(("buffer_bytes", "expected"), [(102_400, EXPECTED_BYTES_MAX), (32_768, 1)])
def test_a_small_receive_buffer_is_read_at_once(tcp_peer: TcpPeer, buffer_bytes: int, expected: int) -> None:
    """The buffer of Kafka's default is none; a client would fill a smaller one to its end, and be stopped for long."""
    tcp_peer.server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    tcp_peer.send(framed([bytes(4 * EXPECTED_BYTES_MAX)])[:100])
    assert tcp_peer.has_edge(10)
    assert tcp_peer.read() is None
    assert tcp_peer.expected() == expected


def test_expecting_anything_reports_what_is_there(tcp_peer: TcpPeer) -> None:
    assert not tcp_peer.connection.expect_any()
    tcp_peer.send(framed([bytes(EXPECTED_BYTES_MAX)])[:100])
    assert tcp_peer.has_edge(10)
    assert tcp_peer.read() is None
    tcp_peer.send(bytes(100))
    assert not tcp_peer.has_edge()
    assert tcp_peer.connection.expect_any()
    assert tcp_peer.has_edge(10)
    assert not tcp_peer.connection.expect_any()
