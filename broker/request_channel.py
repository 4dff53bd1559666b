"""The two queues between network processors and request handlers, and the request that travels through them.

    processor --put--> RequestQueue (bounded) --get--> handler --put--> ResponseQueue (one a processor) --> processor

Rules
1. The request queue is bounded (queued.max.requests): a full one blocks the processor, which is the back-pressure.
2. A response queue never blocks its putter. Muting bounds it already: a connection has one request in progress. Were
   it to block: 1. all handlers wait for a processor to take responses; 2. the processor waits for room in the request
   queue. Neither would ever go on.
3. Wake-ups are the dear part (each hands the interpreter lock around), so they are rationed:
   - a handler that finishes takes the next request itself; a sleeping one is woken only if no handler is awake, or if
     none came to take for `STALL_NS` while requests wait (they are all blocked or slow): one more each time;
   - a handler that comes back while others are awake and take requests faster than one in `SHED_NS` goes to sleep: on
     an interpreter with a global lock more handlers than that only wait for each other;
   - a processor is woken only when it sleeps in its selector, once, however many responses follow.
   Nobody may be forgotten: a processor that goes to sleep while requests wait looks again after `STALL_NS`
   (`wake_if_stalled`).
4. Requests of a connection that came together travel together (`following`): the handler that takes the first carries
   out one after the other. They count as what they are, several.

Threads: `Request` belongs to one thread at a time, whoever took it from a queue; the queues are for any thread.
Source: Kafka's RequestChannel (4.3).
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from barnabas.common.clock import SystemClock

if TYPE_CHECKING:
    from barnabas.broker.apis.api import Api
    from barnabas.broker.slow_motion import SlowMotion
    from barnabas.protocol.headers import RequestHeader
    from barnabas.protocol.schema import Message

STALL_NS: Final = 500_000
STALL_S: Final = STALL_NS / 1e9
SHED_NS: Final = 200_000

HAS_GLOBAL_LOCK: bool = getattr(sys, "_is_gil_enabled", lambda: True)()

ANONYMOUS: Final = "User:ANONYMOUS"


class FileRegion(Protocol):
    """Part of an open file that a processor sends without copying it (storage's FileSlice)."""

    size: int
    position: int

    def fileno(self) -> int:
        """Return the descriptor of the open file."""

    def read(self) -> bytes:
        """Return the bytes, for transports that cannot send from a file."""


Part: TypeAlias = "bytes | bytearray | memoryview | FileRegion"


@dataclass(slots=True, frozen=True)
class RequestContext:
    """Where a request came from and on whose behalf; shared by all requests of a connection."""

    listener_name: str
    security_protocol: str
    client_address: str
    client_port: int
    connection_id: str
    principal: str = ANONYMOUS
    is_for_clients: bool = False  # the listener is: brokers and controllers use another one


class Action(IntEnum):
    """What the processor does with an answered request."""

    SEND = 0
    NO_OP = 1
    CLOSE = 2
    SEND_AND_CLOSE = 3


_NO_OP: Final = Action.NO_OP  # Why: looked up for every request
CLOSING: Final = (Action.CLOSE, Action.SEND_AND_CLOSE)  # the connection is closed after them


class Request:
    """One request on its way; every time is in nanoseconds of the monotonic clock, 0 while unknown."""

    __slots__ = (
        "action",
        "api",
        "api_local_done_ns",
        "api_remote_done_ns",
        "api_throttle_ms",
        "bodies",
        "buffer",
        "client_software_name",
        "client_software_version",
        "connection",
        "context",
        "dequeued_ns",
        "error_codes",
        "following",
        "goes_on",
        "header",
        "header_bytes",
        "is_follower",
        "message",
        "moved",
        "ok_count",
        "operation",
        "parts",
        "processor",
        "received_ns",
        "response_dequeued_ns",
        "response_size_bytes",
        "sent_ns",
        "size_bytes",
    )

    header: RequestHeader  # set by the handler before the API sees the request
    message: Any  # the decoded body, likewise
    api: Api | None

    def __init__(self, connection: Any, processor: Any, context: RequestContext, buffer: memoryview) -> None:
        # Set by the processor.
        self.connection = connection
        self.processor = processor
        self.context = context
        self.buffer: memoryview | None = buffer  # the frame without its size, writable; dropped when answered
        self.size_bytes = len(buffer)
        self.header_bytes = 0  # of these, the header's; set by the handler
        self.received_ns = 0  # the frame was complete
        self.following: Request | None = None  # the connection's next one, if it came with this one (rule 4)
        # Set by the handler and the API.
        self.api = None
        self.message = None
        self.moved: list[Hashable] = []  # keys whose purgatories the handler wakes once the API has returned
        self.is_follower: bool | None = None  # a Fetch says whose it is: it is counted twice
        self.bodies: dict[str, Any] | None = None  # request and response as JSON values, if the request log wants them
        self.operation: Any = None  # the DelayedOperation that it waits for, while it does
        self.ok_count = 0  # how many items of the answer carry no error
        self.error_codes: list[int] | None = None  # of the answer, when the API knows them; else they are looked up
        self.client_software_name = ""  # told by ApiVersions
        self.client_software_version = ""
        self.dequeued_ns = 0  # a handler took it
        self.api_local_done_ns = 0  # the API returned
        self.api_remote_done_ns = 0  # the answer was known
        # Set by whoever answers; read by the processor.
        self.goes_on = False  # whoever answered carries `following` out too; else that is the processor's to queue
        self.action = _NO_OP
        self.parts: list[Any] | None = None  # what to send, size included
        self.response_size_bytes = 0
        self.api_throttle_ms = 0  # how long the connection stays muted after the answer
        self.response_dequeued_ns = 0  # the processor took the answer
        self.sent_ns = 0  # its last byte was given to the kernel

    @classmethod
    def for_message(cls, header: RequestHeader, message: Message, context: RequestContext) -> Request:
        """Make a request that did not come in as a frame of its own (the inner one of an Envelope, tests)."""
        request = cls(None, None, context, memoryview(b""))
        request.header = header
        request.message = message
        return request

    def run(self) -> list[Request]:
        """Return it and all that follow it (rule 4)."""
        requests = [self]
        while (following := requests[-1].following) is not None:
            requests.append(following)
        return requests

    @property
    def listener_name(self) -> str:
        return self.context.listener_name

    @property
    def security_protocol(self) -> str:
        return self.context.security_protocol

    @property
    def client_address(self) -> str:
        return self.context.client_address

    @property
    def connection_id(self) -> str:
        return self.context.connection_id

    @property
    def principal(self) -> str:
        return self.context.principal

    @property
    def client_id(self) -> str | None:
        return self.header.client_id

    @property
    def version(self) -> int:
        return self.header.api_version


Wake: TypeAlias = Callable[[], None]


def _following_count(item: Request | None) -> int:
    """Return how many requests an entry of the request queue holds beyond one; the end of a handler holds none."""
    return 0 if item is None or item.following is None else len(item.run()) - 1


class QueueClosed(Exception):  # noqa: N818 - a state, not a mistake
    """The process shuts down: no more requests are taken."""


class RequestQueue(queue.Queue[Any]):
    """The bounded queue of requests, with rationed wake-ups (rule 3).

    Holds `Request`s, and None as the sentinel that ends one handler.
    """

    def __init__(self, maxsize: int, now_ns: Callable[[], int] = SystemClock.monotonic_ns) -> None:
        super().__init__(maxsize)
        self._now_ns = now_ns  # fixed before start
        self.slow_motion: SlowMotion | None = None  # replaced whole by SlowMotion; None at full speed
        # Why: where handlers run in parallel there is nothing to ration.
        self._stall_ns = STALL_NS if HAS_GLOBAL_LOCK else 0  # fixed before start
        self._shed_ns = SHED_NS if HAS_GLOBAL_LOCK else 0  # fixed before start
        self._sleepers: list[threading.Lock] = []  # guarded by: mutex; a held lock for each sleeping handler
        self._handler_count = 0  # guarded by: mutex
        self._last_take_ns = 0  # guarded by: mutex; when a handler last took
        self._last_wake_ns = 0  # guarded by: mutex; when one was last woken because none came to take
        self._following = 0  # guarded by: mutex; requests that came together with one in the queue, and follow it
        self._waiting_putters = 0  # guarded by: mutex
        self._is_closed = False  # guarded by: mutex

    def add_handlers(self, count: int) -> None:
        """Announce that `count` more (or fewer) handlers will call `get`."""
        with self.mutex:
            self._handler_count += count

    def put_all(self, requests: Sequence[Request]) -> None:
        """Add requests in order, waiting for room as often as needed."""
        added = 0
        while added < len(requests):
            with self.mutex:
                if self._is_full_locked():
                    self._wait_for_room_locked(True, None)
                if self._is_closed:
                    raise QueueClosed
                before = added
                while added < len(requests) and not self._is_full_locked():
                    self._append_locked(requests[added])
                    added += 1
                sleepers = self._sleepers_to_wake_locked(added - before)
            for sleeper in sleepers:
                sleeper.release()

    def put(self, item: Request | None, block: bool = True, timeout: float | None = None) -> None:
        """Add one; waits for room unless told otherwise, and wakes a handler if none will come by itself."""
        with self.mutex:
            if item is not None:
                if self._is_full_locked():
                    self._wait_for_room_locked(block, timeout)
                if self._is_closed:
                    raise QueueClosed
            self._append_locked(item)
            sleeper = self._sleeper_to_wake_locked() if self._sleepers else None
        if sleeper is not None:
            sleeper.release()

    def get(self, block: bool = True, timeout: float | None = None) -> Request | None:
        """Take the next request, sleeping until there is one; raises queue.Empty when told not to wait."""
        while True:
            if self.slow_motion is not None and self.queue:
                self.slow_motion.before_taking()
            with self.mutex:
                now_ns = self._now_ns()
                if self.queue and not self._is_superfluous_locked(now_ns):
                    item: Request | None = self.queue.popleft()
                    self._following -= _following_count(item)
                    self._last_take_ns = now_ns
                    if self._waiting_putters:
                        self.not_full.notify()
                    return item
                if not block:
                    raise queue.Empty
                sleeper = threading.Lock()  # what this handler sleeps on
                sleeper.acquire()
                self._sleepers.append(sleeper)
            if not sleeper.acquire(timeout=-1 if timeout is None else timeout):
                self._give_up_sleeping(sleeper)

    def wake_if_stalled(self) -> None:
        """Wake one more handler when requests wait and none is being taken."""
        if not self.queue:
            return
        with self.mutex:
            sleeper = self._sleeper_to_wake_locked() if self.queue and self._sleepers else None
        if sleeper is not None:
            sleeper.release()

    def close(self) -> None:
        """Take no more requests: putters, waiting ones too, get `QueueClosed`; what is queued will be handled."""
        with self.mutex:
            self._is_closed = True
            self.not_full.notify_all()

    def has_waiting(self) -> bool:
        """Tell whether requests wait, at a glance."""
        return bool(self.queue)

    def is_idle(self) -> bool:
        """Tell whether nothing waits and no handler has anything in hand, at a glance."""
        return not self.queue and len(self._sleepers) == self._handler_count

    def last_take_ns(self) -> int:
        """Return when a handler last took a request: who asks twice learns whether there was one."""
        return self._last_take_ns

    def sleeping_handlers(self) -> int:
        """Return how many handlers sleep."""
        return len(self._sleepers)

    def waiting(self) -> list[Request]:
        """Return a snapshot of the waiting requests, oldest first."""
        with self.mutex:
            return [request for first in self.queue if first is not None for request in first.run()]

    def blocked_putters(self) -> int:
        """Return how many processors wait for room."""
        return self._waiting_putters

    def _qsize(self) -> int:
        """See queue.Queue: how many requests wait."""
        return len(self.queue) + self._following

    def _is_full_locked(self) -> bool:
        return 0 < self.maxsize <= len(self.queue) + self._following

    def _append_locked(self, item: Request | None) -> None:
        self.queue.append(item)
        self._following += _following_count(item)

    def _wait_for_room_locked(self, block: bool, timeout: float | None) -> None:
        self._waiting_putters += 1
        try:
            while self._is_full_locked() and not self._is_closed:
                if not block:
                    raise queue.Full
                if self._sleepers and (sleeper := self._sleeper_to_wake_locked()) is not None:
                    sleeper.release()
                stall_s = STALL_S if self._sleepers else None
                if not self.not_full.wait(stall_s if timeout is None else timeout) and timeout is not None:
                    raise queue.Full
        finally:
            self._waiting_putters -= 1

    def _is_superfluous_locked(self, now_ns: int) -> bool:
        """Tell whether the calling handler may sleep although requests wait: another one is awake, and quick."""
        return self._handler_count - len(self._sleepers) > 1 and now_ns - self._last_take_ns < self._shed_ns

    def _sleeper_to_wake_locked(self) -> threading.Lock | None:
        """Choose the handler that fell asleep last (its caches are warm), if one must be woken at all."""
        if len(self._sleepers) < self._handler_count:  # somebody is awake
            now_ns = self._now_ns()
            if now_ns - max(self._last_take_ns, self._last_wake_ns) < self._stall_ns:
                return None
            self._last_wake_ns = now_ns
        return self._sleepers.pop()

    def _sleepers_to_wake_locked(self, count: int) -> list[threading.Lock]:
        """Choose handlers for `count` new requests: one is enough where wake-ups are rationed."""
        wanted = min(count if self._stall_ns == 0 else 1, len(self._sleepers))
        chosen = (self._sleeper_to_wake_locked() for _ in range(wanted))
        return [sleeper for sleeper in chosen if sleeper is not None]

    def _give_up_sleeping(self, sleeper: threading.Lock) -> None:
        """End a timed wait; the handler may have been woken at the same moment, then it looks once more."""
        with self.mutex:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                raise queue.Empty


class ResponseQueue(queue.Queue[Any]):
    """Answered requests on their way to one processor; never blocks its putter (rule 2)."""

    def __init__(self, wake: Wake) -> None:
        super().__init__()
        self._wake = wake  # fixed before start; makes the processor's selector return
        self._is_asleep = False  # guarded by: mutex; the processor is in its selector, or about to be

    def put(self, item: Request, block: bool = True, timeout: float | None = None) -> None:
        """Add one and wake the processor if it sleeps."""
        if self.add(item):
            self._wake()

    def add(self, item: Request) -> bool:
        """Add one; true when the caller must call `wake` (soon: nobody else will)."""
        with self.mutex:
            self.queue.append(item)
            must_wake = self._is_asleep
            self._is_asleep = False
        return must_wake

    def wake(self) -> None:
        """Make the processor's selector return."""
        self._wake()

    def interrupt(self) -> None:
        """Wake the processor for another reason than a response (a connection, a shutdown), if it sleeps."""
        with self.mutex:
            must_wake = self._is_asleep
            self._is_asleep = False
        if must_wake:
            self._wake()

    def may_sleep(self) -> bool:
        """Announce that the processor goes to sleep; false when answers are there already."""
        with self.mutex:
            self._is_asleep = not self.queue
            return self._is_asleep

    def stay_awake(self) -> None:
        """Announce that the processor is up: responses need no wake-up from now on."""
        if self._is_asleep:
            with self.mutex:
                self._is_asleep = False

    def has_waiting(self) -> bool:
        """Tell whether answers wait, at a glance."""
        return bool(self.queue)

    def take_all(self) -> list[Request]:
        """Take everything there is."""
        if not self.queue:
            return []
        with self.mutex:
            taken = list(self.queue)
            self.queue.clear()
        return taken

    def waiting(self) -> list[Request]:
        """Return a snapshot of the answered requests that wait, oldest first."""
        with self.mutex:
            return list(self.queue)


class RequestChannel:
    """The request queue, that of the control plane if there is one, and the response queue of every processor."""

    def __init__(self, queued_max_requests: int, control_max_requests: int = 0) -> None:
        self.requests = RequestQueue(queued_max_requests)  # fixed before start
        # Fixed before start. The controller's pushes: they must not wait behind what clients ask.
        self.control = RequestQueue(control_max_requests) if control_max_requests else None
        self._lock = threading.Lock()  # a leaf
        self._responses: dict[int, ResponseQueue] = {}  # guarded by: _lock; by processor id

    def add_processor(self, processor_id: int, responses: ResponseQueue) -> None:
        with self._lock:
            assert processor_id not in self._responses, f"two processors with id {processor_id}"
            self._responses[processor_id] = responses

    def remove_processor(self, processor_id: int) -> None:
        with self._lock:
            self._responses.pop(processor_id, None)

    def request_queue_size(self) -> int:
        return self.requests.qsize()

    def close(self) -> None:
        """Take no more requests."""
        self.requests.close()
        if self.control is not None:
            self.control.close()

    def response_queue_size(self) -> int:
        """Return how many responses wait, over all processors."""
        return sum(self.response_queue_sizes().values())

    def response_queue_sizes(self) -> dict[int, int]:
        """Return how many responses wait for each processor."""
        with self._lock:
            queues = dict(self._responses)
        return {processor_id: responses.qsize() for processor_id, responses in queues.items()}
