"""A client's connection: its incoming frames, its outgoing responses, and whether it may be read.

Format of the stream (Kafka protocol guide, "Requests"): frames of
    offset 0   int32   size of the rest, 0 .. socket.request.max.bytes
    offset 4   size bytes: request header and body

States and their transitions (all on the processor's thread)
    open ------- frame complete: mute() -----------------> in progress
    in progress - response sent, or none to send: unmute() -> open, or throttled until `muted_until_ns`
                                                            (in progress again with the next of its run)
    any -------- close()                                 -> closed

Invariants
1. At most one request of a connection is carried out at a time, in the order in which they came. Frames that came whole
   in the same read may be queued with it as its run (`Request.following`). All else that the client sent waits in the
   kernel, or (at most one read's worth) in `FrameReader`.
2. While a connection is muted its socket is not read; `may_have_input` remembers an edge that came meanwhile.
3. While much of a frame is missing, the kernel reports input only when a large piece of it is there (`expected_bytes`).
   Otherwise a client that sends many small pieces, as Java's do with TLS, would wake the processor for each of them.
   The kernel waits only for bytes that the frame needs, so it always reports a complete frame. With TLS it reports
   nothing but a full buffer while a large request is in progress: the next read is due when it is answered.

Threads: one processor owns a connection. Other threads hold it through a `Request`: they may read `context`, release
the request's memory, and set `access` while they carry the request out.
Source: Kafka's NetworkReceive, KafkaChannel (4.3).
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.broker.network.batches.many_sockets import EACH_BYTES
from barnabas.broker.network.transport import TURN_BYTES, small_bytes
from barnabas.common.threads import HAS_GLOBAL_LOCK

if TYPE_CHECKING:
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.network.memory_pool import MemoryGate
    from barnabas.broker.network.sasl.server_authenticator import SaslServerAuthenticator
    from barnabas.broker.network.secure.ssl_transport import SslTransport
    from barnabas.broker.network.transport import Transport
    from barnabas.broker.quotas.throttle import Throttle
    from barnabas.broker.requests.request import Request, RequestContext
    from barnabas.protocol.schema import Part

SIZE_BYTES: Final = 4
EXPECTED_BYTES_MIN: Final = 16 * 1024  # a TLS record: less comes at once
EXPECTED_BYTES_MAX: Final = 64 * 1024  # well below a receive buffer: its client must be able to send meanwhile
# With TLS, as much as Kafka's default receive buffer holds is expected at once: Java's producers send it in a dozen
# pieces. Of what is larger, EXPECTED_BYTES_MAX.
SECURE_EXPECTED_BYTES_MAX: Final = 100 * 1024
# A frame's buffer starts no larger than this and grows as bytes arrive: a false size costs its sender, not the broker.
TRUSTED_BYTES: Final = 1 << 20

# What is read first of a frame that is expected to take two reads: its size, API key and version. The second one then
# fills the frame's own buffer, and nothing is copied. With TLS that gains nothing: a copy is little beside decrypting.
START_BYTES: Final = 8

_NOTHING: Final = memoryview(b"")

_unpack_size = struct.Struct(">i").unpack_from


class InvalidFrameError(Exception):
    """The client sent an invalid frame size; its connection must be closed."""


class FrameReader:
    """Cuts a stream of bytes into frames; does no I/O.

    Bytes are copied once, from the chunk given to `receive`; frames that are whole in it are views of that copy. For a
    frame larger than its chunk, `wanted` returns the rest of the frame's own buffer, to be filled directly; `filled`
    reports how many bytes were written there.
    """

    __slots__ = ("_body", "_filled", "_rest", "_size", "size_max", "trusted_bytes")

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max  # of the next frame
        self.trusted_bytes = TRUSTED_BYTES  # what the next frame's buffer starts with at most
        self._rest = _NOTHING  # our copy of what follows the last frame; a whole frame only before `next_frame`
        self._body: bytearray | None = None  # the incomplete frame; `_filled` bytes are there
        self._size = 0
        self._filled = 0

    def receive(self, chunk: memoryview, admit: Callable[[int], bool] | None = None) -> memoryview | None:
        """Take bytes; return the frame that they complete, if any. The bytes after it are kept for `next_frame`.

        The frame is writable, and the caller's alone. An incomplete frame gets its buffer only if `admit(size)` is
        true; else it is held (`is_held`). Raises InvalidFrameError.
        """
        assert self._body is None, "an incomplete frame is filled through `wanted`"
        if self._rest or len(chunk) < SIZE_BYTES:
            joined = bytearray(self._rest)
            joined += chunk
            self._rest = memoryview(joined)
            return self.next_frame(admit)
        size = self._size_at(chunk)
        end = SIZE_BYTES + size
        if end > len(chunk):
            if admit is None or admit(size):
                self._begin(size, chunk[SIZE_BYTES:])
            else:
                self._rest = memoryview(bytearray(chunk))
            return None
        return self._cut(memoryview(bytearray(chunk)), end)

    def take(self, chunk: bytearray) -> memoryview | None:
        """Do what `receive` does at a frame's boundary, with bytes that the caller gives away: they are not copied."""
        assert self.is_at_boundary()
        view = memoryview(chunk)
        if len(view) < SIZE_BYTES:
            self._rest = view
            return None
        size = self._size_at(view)
        if SIZE_BYTES + size > len(view):
            self._begin(size, view[SIZE_BYTES:])
            return None
        return self._cut(view, SIZE_BYTES + size)

    def next_frame(self, admit: Callable[[int], bool] | None = None) -> memoryview | None:
        """Return the next frame if it was received whole with the last one; raises InvalidFrameError."""
        rest = self._rest
        if len(rest) < SIZE_BYTES:
            return None
        size = self._size_at(rest)
        end = SIZE_BYTES + size
        if end > len(rest) and not (admit is None or admit(size)):
            return None
        # Why not an empty view: it would keep the whole chunk alive.
        self._rest = rest[end:] if end < len(rest) else _NOTHING
        if end > len(rest):
            self._begin(size, rest[SIZE_BYTES:])
            return None
        frame = rest[SIZE_BYTES:end]
        return frame if end == len(rest) else _apart(frame)

    def wanted(self) -> memoryview | None:
        """Return the buffer for the missing bytes of the incomplete frame; None while no frame's size is known."""
        body = self._body
        if body is None:
            return None
        if self._filled == len(body):
            body.extend(bytes(min(len(body), self._size - len(body))))
        return memoryview(body)[self._filled :]

    def filled(self, count: int) -> memoryview | None:
        """Note `count` bytes written to `wanted`, whose view was released; return the frame if it is complete."""
        self._filled += count
        if self._filled < self._size:
            return None
        body, self._body = self._body, None
        assert body is not None
        assert len(body) == self._size
        return memoryview(body)

    def is_at_boundary(self) -> bool:
        """Return whether the stream may end here without cutting a frame."""
        return self._body is None and not self._rest

    def is_held(self) -> bool:
        """Return whether the start of a frame is here without its buffer."""
        return self._body is None and len(self._rest) >= SIZE_BYTES

    def next_key(self) -> int:
        """Return the API key of the frame whose start is here; -1 if it is not."""
        rest = self._rest
        return -1 if len(rest) < SIZE_BYTES + 2 else rest[SIZE_BYTES] << 8 | rest[SIZE_BYTES + 1]

    def held_bytes(self) -> int:
        """Return how many bytes it keeps until a frame is complete."""
        return len(self._rest) + (0 if self._body is None else len(self._body))

    def drop(self) -> None:
        """Forget what has come of incomplete frames; none will be read any more."""
        self._rest = _NOTHING
        self._body = None

    def missing_bytes(self) -> int:
        """Return how many bytes the incomplete frame still needs; 0 while no frame's size is known."""
        return 0 if self._body is None else self._size - self._filled

    def begun_bytes(self) -> int:
        """Return the size of the incomplete frame; 0 while no frame's size is known."""
        return 0 if self._body is None else self._size

    def _cut(self, chunk: memoryview, end: int) -> memoryview:
        """Return the frame at the start of our own `chunk`, and keep what follows its end."""
        if end == len(chunk):
            return chunk[SIZE_BYTES:]
        self._rest = chunk[end:]
        return _apart(chunk[SIZE_BYTES:end])

    def _size_at(self, chunk: memoryview) -> int:
        """Return the size of the frame at the start of `chunk`."""
        size: int = _unpack_size(chunk)[0]
        if not 0 <= size <= self.size_max:
            raise InvalidFrameError(f"invalid frame size {size}, allowed are 0 to {self.size_max} bytes")
        return size

    def _begin(self, size: int, start: memoryview) -> None:
        body = bytearray(min(size, max(self.trusted_bytes, len(start))))
        memoryview(body)[: len(start)] = start  # Why a view: the array itself would copy what it is given first
        self._body = body
        self._size = size
        self._filled = len(start)


def _apart(frame: memoryview) -> memoryview:
    """Return a frame that a handler may read while the processor reads the bytes after it.

    Without a global lock that is a copy: two threads must not slice views of one buffer, since CPython then miscounts
    its references (python/cpython#127716).
    """
    return frame if HAS_GLOBAL_LOCK else memoryview(bytearray(frame))


class Connection:
    """One client's connection, see the module."""

    __slots__ = (
        "access",
        "answered",
        "authenticator",
        "client_software",
        "context",
        "expected_bytes",
        "expects_large",
        "fd",
        "frames",
        "gate",
        "handshake",
        "idle_bucket",
        "is_authenticated",
        "is_broken",
        "is_closed",
        "is_hung_up",
        "is_large",
        "is_muted",
        "is_small",
        "is_waiting_for_step",
        "last_active_ns",
        "may_change_processor",
        "may_have_input",
        "may_log_in",
        "muted_until_ns",
        "on_closed",
        "outgoing",
        "pooled_bytes",
        "postponed",
        "request",
        "secure",
        "thread_ns",
        "throttle",
        "transport",
    )

    def __init__(
        self,
        fd: int,
        transport: Transport,
        authenticator: SaslServerAuthenticator | None,
        context: RequestContext,
        frame_size_max: int,
    ) -> None:
        # Fixed before start.
        self.fd = fd
        self.transport = transport
        # owner: processor
        self.authenticator = authenticator  # None: the listener has no SASL; replaced by a client that logs in again
        self.is_authenticated = authenticator is None  # its TLS handshake and its first login are complete
        self.may_log_in = authenticator is not None  # its next frame may belong to a login
        self.context = context  # replaced once the client is authenticated, before its first request
        self.access: Access | None = None  # of its last request; owner: who carries out its requests, one at a time
        self.frames = FrameReader(frame_size_max)
        self.request: Request | None = None  # in progress: the first of its run whose response is not sent
        self.answered: Request | None = None  # the last one of its run whose answer is known
        self.postponed: Request | None = None  # the rest of the run, if it must be queued again
        self.outgoing: list[Part] | None = None  # the unsent parts of its responses
        self.is_muted = False
        self.muted_until_ns = 0  # end of the throttle time
        self.throttle: Throttle | None = None  # why it is throttled, if a quota of this process is the reason
        self.thread_ns = 0  # what it took of the processor's time, not charged to its quota yet
        self.may_have_input = False  # an edge came, and not all of its bytes were read
        self.expected_bytes = 0  # how many must come before the next edge (inv. 3); 0: one
        self.is_hung_up = False  # the client sends no more: the stream ends after the bytes that are there
        self.is_broken = False  # neither side can send
        self.is_closed = False
        self.is_large = False  # it has moved a large piece
        self.is_small = False  # its last request came whole in one small read
        self.expects_large = False  # its last frame took two reads, so the next one may, too; not with TLS or a gate
        self.may_change_processor = False  # before its next request
        self.last_active_ns = 0
        self.idle_bucket = 0  # its bucket in IdleConnections
        self.gate: MemoryGate[Connection] | None = None  # its processor's, if there is a pool
        self.pooled_bytes = 0  # what its frame holds of the pool; owner: the thread that has its request
        self.client_software: tuple[str, str] | None = None  # name and version, from ApiVersions
        self.on_closed: dict[
            str, Callable[[], None]
        ] = {}  # by component; set by a handler that has one of its requests
        # Why two: events ask the one, reads the other, and each is None for nearly every connection.
        self.secure: SslTransport | None = None  # the transport, if it has TLS; fixed before start
        self.handshake: SslTransport | None = None  # likewise, until its handshake is complete
        self.is_waiting_for_step = False  # its processor has it among those that are not authenticated and can go on

    def read_frame(self, scratch: memoryview) -> memoryview | None:
        """Read until a frame is complete, the socket is empty or much was read; return the frame, if any.

        After reading much, `may_have_input` stays true. A frame that is not whole in the first read is held if there is
        no memory for it. Raises EOFError at the end of the stream, InvalidFrameError, OSError if the connection broke.
        """
        assert not self.is_muted, "(inv. 2)"
        frames = self.frames
        admit = None if self.gate is None else self._admit
        frame = frames.next_frame(admit)
        if frame is not None or frames.is_held():
            return frame
        left = TURN_BYTES
        try:
            while True:
                frame, count = self._receive(scratch, admit)
                left -= count
                if frame is not None or not self.may_have_input or left <= 0 or frames.is_held():
                    break
        except BlockingIOError:
            # Why not always false: with TLS, what came may be a part of a record, and the end of the stream behind it.
            self.may_have_input = self.is_hung_up and self.secure is not None
        if frame is not None:
            # Why not with a gate: it lets in what is whole in one read, however small (memory_pool.py, rule 3).
            self.expects_large = self.secure is None and self.gate is None and len(frame) > len(scratch)
        if self.secure is not None:
            self._expect_records(frame)
        elif self.expected_bytes or (not self.may_have_input and frames.missing_bytes() > EXPECTED_BYTES_MIN):
            self._expect_rest()
        return frame

    def reads_small(self) -> bool:
        """Return whether one small read probably brings its next request: `take_frame` may follow (many_sockets.py)."""
        return self.is_small and self.gate is None and self.secure is None and self.frames.is_at_boundary()

    def take_frame(self, received: bytearray | int) -> memoryview | None:
        """Do what `read_frame` does with what `receive_each` has returned for a connection that `reads_small`."""
        assert not self.is_muted, "(inv. 2)"
        if isinstance(received, int):
            if received == -errno.EAGAIN:
                self.may_have_input = False
                return None
            raise OSError(-received, os.strerror(-received))
        if not received:
            raise EOFError
        is_full = len(received) == EACH_BYTES
        self.may_have_input = is_full or self.is_hung_up
        frame = self.frames.take(received)
        self.is_small = frame is not None and not is_full
        if frame is None and not self.may_have_input:
            self._expect_rest()
        return frame

    def _receive(self, scratch: memoryview, admit: Callable[[int], bool] | None) -> tuple[memoryview | None, int]:
        """Read from the transport once; return the frame that is complete now, if any, and how many bytes were read."""
        frames = self.frames
        wanted = frames.wanted()
        if wanted is not None:
            asked = len(wanted)
            count = self.transport.receive_into(wanted)
            wanted.release()
        else:
            start = scratch[:START_BYTES] if self.expects_large else scratch
            asked = len(start)
            count = self.transport.receive_into(start)
        if count == 0:
            raise EOFError
        # Why: a short read emptied the socket, and the next bytes will be an edge. But the end of the stream may have
        # shared the edge of the last bytes, and a TLS session may hold bytes that no edge reports.
        self.may_have_input = count == asked or self.is_hung_up or (self.secure is not None and self.secure.has_more())
        frame = frames.receive(scratch[:count], admit) if wanted is None else frames.filled(count)
        self.is_small = count < EACH_BYTES and frame is not None and wanted is None
        return frame, count

    def _expect_rest(self) -> None:
        """Let the next edge come when a large piece of what the frame needs is there (inv. 3)."""
        missing_bytes = self.frames.missing_bytes()
        self._expect(min(missing_bytes, EXPECTED_BYTES_MAX) if missing_bytes > EXPECTED_BYTES_MIN else 0)

    def expect_any(self) -> bool:
        """Let one byte be an edge again; return false if that was so before (inv. 3)."""
        if not self.expected_bytes:
            return False
        self._expect(0)
        return True

    def _expect_records(self, frame: memoryview | None) -> None:
        """Let the next edge come when the records of the frame are there; none during a large request (inv. 3)."""
        missing_bytes = self.frames.missing_bytes()
        if frame is not None and len(frame) > EXPECTED_BYTES_MIN:
            self._expect(SECURE_EXPECTED_BYTES_MAX)
            self.may_have_input = True  # no edge reports it
        elif self.expected_bytes or (not self.may_have_input and missing_bytes > EXPECTED_BYTES_MIN):
            # Why also for the last bytes of a large frame: to expect them costs no more than to expect one.
            self._expect(missing_bytes if missing_bytes <= SECURE_EXPECTED_BYTES_MAX else EXPECTED_BYTES_MAX)

    def _expect(self, count: int) -> None:
        """Let the next edge come when so many bytes are there; 0 stands for one (inv. 3)."""
        # Why always with TLS: what its session holds may have changed.
        if count != self.expected_bytes or self.secure is not None:
            self.expected_bytes = count
            self.transport.expect(count)

    def _admit(self, size_bytes: int) -> bool:
        assert self.gate is not None
        return self.gate.begin(self, size_bytes)

    def release_memory(self) -> None:
        """Give back to the pool what its frame holds; by the thread that has the request."""
        if self.gate is not None:
            self.gate.release(self)

    def take_answer(self, request: Request) -> None:
        """Append the response of a request to the unsent ones of its run."""
        parts, request.parts = request.parts, None
        if parts is not None:
            self.outgoing = parts if self.outgoing is None else self.outgoing + parts
        self.answered = request

    def small_output(self) -> bytes | None:
        """Return its unsent responses if `send_each` may send them: without TLS, and small together."""
        return None if self.outgoing is None or self.secure is not None else small_bytes(self.outgoing)

    def mute(self, request: Request) -> None:
        """Begin a request: mute the connection (inv. 1)."""
        assert self.request is None, "(inv. 1)"
        self.request = request
        self.is_muted = True
