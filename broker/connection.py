"""A client's connection: its frames coming in, its answer going out, and whether it may be read.

Format of the stream (Kafka protocol guide, "Requests"): frames of
    offset 0   int32   size of the rest, 0 .. socket.request.max.bytes
    offset 4   size bytes: request header and body

States, and who moves them (all on the processor's thread)
    open ------- frame complete: mute() -----------------> in progress
    in progress - answer sent, or none to send: unmute() -> open, or throttled until `muted_until_ns`
                                                            (in progress again with the next of its run)
    any -------- close()                                 -> closed

Invariants
1. At most one request of a connection is carried out at a time, and those after it in the order in which they came.
   What came whole in the same read may go with it as its run (`Request.following`); all else that the client sent
   waits in the kernel, or (at most one read's worth) in `FrameReader`.
2. While a connection is muted its socket is not read; `may_have_input` remembers an edge that came meanwhile.

Threads: one processor owns a connection. Others hold it through a `Request` and may read `context` only.
Source: Kafka's NetworkReceive, KafkaChannel (4.3).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.request_channel import HAS_GLOBAL_LOCK
from barnabas.broker.transport import TURN_BYTES

if TYPE_CHECKING:
    from barnabas.broker.request_channel import Request, RequestContext
    from barnabas.broker.transport import Transport

SIZE_BYTES: Final = 4
# A frame's buffer starts no larger than this and grows as bytes arrive: a false size costs its sender, not us.
_TRUSTED_BYTES: Final = 1 << 20

_NOTHING: Final = memoryview(b"")

_unpack_size = struct.Struct(">i").unpack_from


class InvalidFrameError(Exception):
    """The client sent a size that no frame may have; the connection cannot go on."""


class FrameReader:
    """Cuts a stream of bytes into frames; does no I/O.

    Bytes are copied once, from the chunk given to `receive`; the frames that are whole in it are views of that copy.
    When a frame is larger than its chunk, `wanted` gives the rest of its own buffer, to be filled directly; `filled`
    says how far.
    """

    __slots__ = ("_body", "_filled", "_rest", "_size", "_size_max")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._rest = _NOTHING  # our copy of what follows the last frame; no whole frame, but before `next_frame`
        self._body: bytearray | None = None  # the incomplete frame, of which `_filled` bytes are there
        self._size = 0
        self._filled = 0

    def receive(self, chunk: memoryview, admit: Callable[[int], bool] | None = None) -> memoryview | None:
        """Take bytes; return the frame that they complete, if any. What follows it is kept for `next_frame`.

        The frame is writable, and nobody else's. An incomplete one of so many bytes gets its buffer only if `admit`
        says so, else `is_held` tells of it. Raises InvalidFrameError.
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
        copy = memoryview(bytearray(chunk))
        if end == len(copy):
            return copy[SIZE_BYTES:]
        self._rest = copy[end:]
        return _apart(copy[SIZE_BYTES:end])

    def next_frame(self, admit: Callable[[int], bool] | None = None) -> memoryview | None:
        """Return the next frame if what was received with the last one holds all of it; raises InvalidFrameError."""
        rest = self._rest
        if len(rest) < SIZE_BYTES:
            return None
        size = self._size_at(rest)
        end = SIZE_BYTES + size
        if end > len(rest) and not (admit is None or admit(size)):
            return None
        # Why not an empty view: it would keep all that was received with it.
        self._rest = rest[end:] if end < len(rest) else _NOTHING
        if end > len(rest):
            self._begin(size, rest[SIZE_BYTES:])
            return None
        frame = rest[SIZE_BYTES:end]
        return frame if end == len(rest) else _apart(frame)

    def wanted(self) -> memoryview | None:
        """Return where the missing bytes of the incomplete frame belong; None when no frame's size is known."""
        body = self._body
        if body is None:
            return None
        if self._filled == len(body):
            body.extend(bytes(min(len(body), self._size - len(body))))
        return memoryview(body)[self._filled :]

    def filled(self, count: int) -> memoryview | None:
        """Announce bytes written to `wanted`, whose view was released; return the frame if it is complete."""
        self._filled += count
        if self._filled < self._size:
            return None
        body, self._body = self._body, None
        assert body is not None
        assert len(body) == self._size
        return memoryview(body)

    def is_at_boundary(self) -> bool:
        """Tell whether the stream may end here without cutting a frame."""
        return self._body is None and not self._rest

    def is_held(self) -> bool:
        """Tell whether the beginning of a frame is here that has not got its buffer yet."""
        return self._body is None and len(self._rest) >= SIZE_BYTES

    def begun_bytes(self) -> int:
        """Return the size of the incomplete frame; 0 when no frame's size is known."""
        return 0 if self._body is None else self._size

    def _size_at(self, chunk: memoryview) -> int:
        """Return the size of the frame that begins here."""
        size: int = _unpack_size(chunk)[0]
        if not 0 <= size <= self._size_max:
            raise InvalidFrameError(f"invalid frame size {size}, allowed are 0 to {self._size_max} bytes")
        return size

    def _begin(self, size: int, start: memoryview) -> None:
        body = bytearray(min(size, max(_TRUSTED_BYTES, len(start))))
        body[: len(start)] = start
        self._body = body
        self._size = size
        self._filled = len(start)


def _apart(frame: memoryview) -> memoryview:
    """Return a frame as a handler may have it while the processor looks at what follows it.

    Without a global lock that is a copy: views of one buffer must not be cut by two threads, since CPython miscounts
    them then (python/cpython#127716).
    """
    return frame if HAS_GLOBAL_LOCK else memoryview(bytearray(frame))


class Connection:
    """One client's connection."""

    __slots__ = (
        "answered",
        "authenticator",
        "client_software",
        "context",
        "fd",
        "frames",
        "gate",
        "idle_bucket",
        "is_broken",
        "is_closed",
        "is_hung_up",
        "is_large",
        "is_muted",
        "is_to_be_dealt",
        "last_active_ns",
        "may_have_input",
        "muted_until_ns",
        "outgoing",
        "pooled_bytes",
        "postponed",
        "request",
        "transport",
    )

    def __init__(
        self, fd: int, transport: Transport, authenticator: Any, context: RequestContext, frame_size_max: int
    ) -> None:
        # Fixed before start.
        self.fd = fd
        self.transport = transport
        self.authenticator = authenticator
        self.context = context
        # owner: processor
        self.frames = FrameReader(frame_size_max)
        self.request: Request | None = None  # in progress: the first of its run that was not answered to the end
        self.answered: Request | None = None  # the last one of its run of which the answer is known
        self.postponed: Request | None = None  # what follows in the run, when it has to be queued anew
        self.outgoing: list[Any] | None = None  # what is left to send of its answer
        self.is_muted = False
        self.muted_until_ns = 0  # of the throttle time
        self.may_have_input = False  # an edge came that was not read to its end
        self.is_hung_up = False  # the client sends no more: the stream ends after what is there
        self.is_broken = False  # nothing goes either way
        self.is_closed = False
        self.is_large = False  # it has moved a large piece
        self.is_to_be_dealt = False  # it may change its processor before its next request
        self.last_active_ns = 0
        self.idle_bucket = 0  # where it lies in IdleConnections
        self.gate: Any = None  # its processor's MemoryGate, if there is a pool
        self.pooled_bytes = 0  # what its frame takes of the pool; owner: who has its request, while there is one
        self.client_software: tuple[str, str] | None = None  # name and version, once ApiVersions told them

    def read_frame(self, scratch: memoryview) -> memoryview | None:
        """Read until a frame is complete, nothing more is there or much was read (then `may_have_input` stays true);
        return the frame. One that is not whole in what is read first stays there if there is no memory for it.

        Raises EOFError at the end of the stream, InvalidFrameError, OSError when the connection is broken.
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
                wanted = frames.wanted()
                if wanted is None:
                    asked = len(scratch)
                    count = self.transport.receive_into(scratch)
                    if count == 0:
                        raise EOFError
                    frame = frames.receive(scratch[:count], admit)
                else:
                    asked = len(wanted)
                    count = self.transport.receive_into(wanted)
                    wanted.release()
                    if count == 0:
                        raise EOFError
                    frame = frames.filled(count)
                # Why: a read that got less than it asked for emptied the socket; the next bytes will be an edge, but
                # the end of the stream may have shared the edge of the last bytes.
                self.may_have_input = count == asked or self.is_hung_up
                left -= count
                if frame is not None or not self.may_have_input or left <= 0 or frames.is_held():
                    return frame
        except BlockingIOError:
            self.may_have_input = False
            return None

    def _admit(self, size_bytes: int) -> bool:
        admits: bool = self.gate.begin(self, size_bytes)
        return admits

    def take_answer(self, request: Request) -> None:
        """Have the answer to a request sent after those of its run that are not out yet."""
        parts, request.parts = request.parts, None
        if parts is not None:
            self.outgoing = parts if self.outgoing is None else self.outgoing + parts
        self.answered = request

    def mute(self, request: Request) -> None:
        """Begin a request (inv. 1)."""
        assert self.request is None, "(inv. 1)"
        self.request = request
        self.is_muted = True
