"""The two queues between network processors and request handlers.

    processor --put--> RequestQueue (bounded) --get--> handler --put--> ResponseQueue (one a processor) --> processor

Rules
1. The request queue is bounded (queued.max.requests). A full queue blocks the processor: that is the back-pressure.
2. A response queue never blocks its putter. Muting bounds it already: a connection has one request in progress. If it
   blocked: 1. all handlers wait for a processor to take responses; 2. the processor waits for a free place in the
   request queue. Neither could continue.
3. Wake-ups are rationed. With a global interpreter lock each hands the lock to another thread; without one, each moves
   values to the caches of another core, and handlers beyond the cores only wait for each other:
   - A handler that finishes takes the next request itself. A sleeping handler is woken only if fewer than
     `parallel_threads` are awake, or if none has taken a request for `STALL_NS` while requests wait (they are all
     blocked or slow): one more each time.
   - A handler that returns while that many others are awake and take requests faster than one in `SHED_NS` goes to
     sleep.
   - A processor is woken only when it sleeps in its selector, once, however many responses follow.
   No request may be forgotten: a processor that goes to sleep while requests wait checks again after `STALL_NS`
   (`wake_if_stalled`), and so does one that waits for space while a handler sleeps.
4. Requests of a connection that arrived together are queued together (`Request.following`). The handler that takes the
   first carries them out one after the other. Each counts as one request.

Threads: any thread may use the queues.
Source: Kafka's RequestChannel (4.3).
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from barnabas.common.clock import SystemClock
from barnabas.common.locks.factory import count_mutex
from barnabas.common.threads import HAS_GLOBAL_LOCK

if TYPE_CHECKING:
    from barnabas.broker.requests.request import Request

STALL_NS: Final = 500_000
STALL_S: Final = STALL_NS / 1e9
SHED_NS: Final = 200_000


def parallel_threads(cores: int) -> int:
    """Return how many handlers are woken without delay, and how many processors share a few connections: one with a
    global lock; else half of the cores, at least one.

    Why half: network threads need the other half, or handlers, and clients.
    """
    return 1 if HAS_GLOBAL_LOCK else max(1, cores // 2)


class StagePauses(Protocol):
    """Pauses at the stages of a request (`SlowMotion` in broker/requests/slow_motion.py)."""

    def before_queueing(self) -> None:
        """Pause a network thread that has read requests."""

    def before_taking(self) -> None:
        """Pause a request handler before it takes a request."""

    def before_sending(self, responses: ResponseQueue) -> None:
        """Pause a network thread before it takes responses."""


Wake: TypeAlias = Callable[[], None]

#: Gets one None, which wakes the handler. Why no lock: without a global lock, a thread that waits for one gives up its
#: core forty times before it sleeps, which takes longer than a request.
Sleeper: TypeAlias = "queue.SimpleQueue[None]"


def _following_count(item: Request | None) -> int:
    """Return how many requests an entry of the request queue holds beyond one; the sentinel holds none."""
    return 0 if item is None or item.following is None else len(item.run()) - 1


class QueueClosed(Exception):  # noqa: N818 - a state, not an error
    """The process shuts down and takes no more requests."""


class RequestQueue(queue.Queue["Request | None"]):
    """The bounded queue of requests, with rationed wake-ups (rule 3).

    Holds `Request`s, and None as the sentinel that ends one handler.
    """

    def __init__(self, maxsize: int, now_ns: Callable[[], int] = SystemClock.monotonic_ns) -> None:
        super().__init__(maxsize)
        count_mutex(self, "request-queue")
        self._now_ns = now_ns  # fixed before start
        self.slow_motion: StagePauses | None = None  # replaced whole by SlowMotion; None at full speed
        self._parallel = parallel_threads(len(os.sched_getaffinity(0)))  # fixed before start
        self._sleepers: list[Sleeper] = []  # guarded by: mutex; one for each sleeping handler
        self._handler_count = 0  # guarded by: mutex
        self._last_take_ns = 0  # guarded by: mutex; when a handler last took
        self._last_wake_ns = 0  # guarded by: mutex; when one was last woken because of a stall
        self._following = 0  # guarded by: mutex; requests that follow queued ones
        self._waiting_putters = 0  # guarded by: mutex
        self._is_closed = False  # guarded by: mutex

    def add_handlers(self, count: int) -> None:
        """Note that `count` more handlers (fewer, if negative) call `get`."""
        with self.mutex:
            self._handler_count += count

    def put_all(self, requests: Sequence[Request]) -> None:
        """Add requests in order, waiting whenever the queue is full."""
        added = 0
        while added < len(requests):
            with self.mutex:
                if self._is_full_locked():
                    self._wait_for_space_locked(True, None)
                if self._is_closed:
                    raise QueueClosed
                before = added
                while added < len(requests) and not self._is_full_locked():
                    self._append_locked(requests[added])
                    added += 1
                sleepers = self._sleepers_to_wake_locked(added - before)
            for sleeper in sleepers:
                sleeper.put(None)

    def put(self, item: Request | None, block: bool = True, timeout: float | None = None) -> None:
        """Add a request, and wake a handler if needed (rule 3); None, the sentinel, is always accepted.

        Raises queue.Full, or QueueClosed after `close`.
        """
        with self.mutex:
            if item is not None:
                if self._is_full_locked():
                    self._wait_for_space_locked(block, timeout)
                if self._is_closed:
                    raise QueueClosed
            self._append_locked(item)
            sleeper = self._sleeper_to_wake_locked() if self._sleepers else None
        if sleeper is not None:
            sleeper.put(None)

    def get(self, block: bool = True, timeout: float | None = None) -> Request | None:
        """Take the next request, sleeping until there is one; None is the sentinel.

        Raises queue.Empty if there is none and `block` is false, or after `timeout` seconds.
        """
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
                sleeper: Sleeper = queue.SimpleQueue()  # what this handler sleeps on
                self._sleepers.append(sleeper)
                if self.queue and self._waiting_putters:
                    self.not_full.notify()  # a putter that waits without a limit, since no handler slept
            try:
                sleeper.get(True, timeout)
            except queue.Empty:
                self._give_up_sleeping(sleeper)

    def wake_if_stalled(self) -> None:
        """Wake one more handler if requests wait and handlers have taken none for a while."""
        if not self.queue:
            return
        with self.mutex:
            sleeper = self._sleeper_to_wake_locked() if self.queue and self._sleepers else None
        if sleeper is not None:
            sleeper.put(None)

    def close(self) -> None:
        """Take no more requests: putters, waiting ones too, get QueueClosed. Queued requests are still handled."""
        with self.mutex:
            self._is_closed = True
            self.not_full.notify_all()

    def has_waiting(self) -> bool:
        """Return whether requests wait; unlocked, so the answer may be stale."""
        return bool(self.queue)

    def is_idle(self) -> bool:
        """Return whether no request waits and all handlers sleep; unlocked, so the answer may be stale."""
        return not self.queue and len(self._sleepers) == self._handler_count

    def last_take_ns(self) -> int:
        """Return when a handler last took a request; a changed value shows traffic."""
        return self._last_take_ns

    def sleeping_handlers(self) -> int:
        """Return how many handlers sleep."""
        return len(self._sleepers)

    def waiting(self) -> list[Request]:
        """Return a snapshot of the waiting requests, oldest first."""
        with self.mutex:
            return [request for first in self.queue if first is not None for request in first.run()]

    def blocked_putters(self) -> int:
        """Return how many processors wait because the queue is full."""
        return self._waiting_putters

    def _qsize(self) -> int:
        """Return how many requests wait; see queue.Queue."""
        return len(self.queue) + self._following

    def _is_full_locked(self) -> bool:
        return 0 < self.maxsize <= len(self.queue) + self._following

    def _append_locked(self, item: Request | None) -> None:
        self.queue.append(item)
        self._following += _following_count(item)

    def _wait_for_space_locked(self, block: bool, timeout: float | None) -> None:
        self._waiting_putters += 1
        try:
            while self._is_full_locked() and not self._is_closed:
                if not block:
                    raise queue.Full
                if self._sleepers and (sleeper := self._sleeper_to_wake_locked()) is not None:
                    sleeper.put(None)
                stall_s = STALL_S if self._sleepers else None
                if not self.not_full.wait(stall_s if timeout is None else timeout) and timeout is not None:
                    raise queue.Full
        finally:
            self._waiting_putters -= 1

    def _is_superfluous_locked(self, now_ns: int) -> bool:
        """Return whether the calling handler may sleep although requests wait: enough others are awake and fast."""
        return self._handler_count - len(self._sleepers) > self._parallel and now_ns - self._last_take_ns < SHED_NS

    def _sleeper_to_wake_locked(self) -> Sleeper | None:
        """Choose the handler that fell asleep last (its caches are warm); None if none must be woken."""
        if self._handler_count - len(self._sleepers) >= self._parallel:  # enough handlers are awake
            now_ns = self._now_ns()
            if now_ns - max(self._last_take_ns, self._last_wake_ns) < STALL_NS:
                return None
            self._last_wake_ns = now_ns
        return self._sleepers.pop()

    def _sleepers_to_wake_locked(self, count: int) -> list[Sleeper]:
        """Choose handlers for `count` new requests."""
        wanted = min(count, self._parallel, len(self._sleepers))
        chosen = [self._sleeper_to_wake_locked() for _ in range(wanted)]
        return [sleeper for sleeper in chosen if sleeper is not None]

    def _give_up_sleeping(self, sleeper: Sleeper) -> None:
        """End a timed wait; raises queue.Empty unless the handler was woken at the same moment."""
        with self.mutex:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                raise queue.Empty


class ResponseQueue(queue.Queue["Request"]):
    """Answered requests on their way to one processor; never blocks its putter (rule 2)."""

    def __init__(self, wake: Wake) -> None:
        super().__init__()
        count_mutex(self, "response-queue")
        self._wake = wake  # fixed before start; makes the processor's selector return
        self._is_asleep = False  # guarded by: mutex; the processor is in its selector, or about to be
        self._has_ended = False  # guarded by: mutex; the processor has ended, and takes no response any more

    def put(self, item: Request, block: bool = True, timeout: float | None = None) -> None:
        """Add a response, and wake the processor if it sleeps."""
        if self.add(item):
            self._wake()

    def add(self, item: Request) -> bool:
        """Add a response; true when the caller must call `wake` soon, since no other thread will."""
        with self.mutex:
            has_ended = self._has_ended
            if not has_ended:
                self.queue.append(item)
            must_wake = self._is_asleep
            self._is_asleep = False
        if has_ended:
            _drop(item)
        return must_wake

    def wake(self) -> None:
        """Make the processor's selector return."""
        self._wake()

    def interrupt(self) -> None:
        """Wake the processor, if it sleeps, for another reason than a response (a connection, memory)."""
        with self.mutex:
            must_wake = self._is_asleep
            self._is_asleep = False
        if must_wake:
            self._wake()

    def may_sleep(self) -> bool:
        """Note that the processor goes to sleep; false if responses are there already."""
        with self.mutex:
            self._is_asleep = not self.queue
            return self._is_asleep

    def stay_awake(self) -> None:
        """Note that the processor is awake: responses need no wake-up from now on."""
        if self._is_asleep:
            with self.mutex:
                self._is_asleep = False

    def has_waiting(self) -> bool:
        """Return whether responses wait; unlocked, so the answer may be stale."""
        return bool(self.queue)

    def take_all(self) -> list[Request]:
        """Remove and return all responses."""
        if not self.queue:
            return []
        with self.mutex:
            taken = list(self.queue)
            self.queue.clear()
        return taken

    def end(self) -> None:
        """Drop the responses, and those that are added later: their processor has ended."""
        with self.mutex:
            self._has_ended = True
        for request in self.take_all():
            _drop(request)

    def waiting(self) -> list[Request]:
        """Return a snapshot of the waiting responses, oldest first."""
        with self.mutex:
            return list(self.queue)


def _drop(answered: Request) -> None:
    """Give back what the run of a request that nobody will send the answer of holds of the memory pool."""
    if answered.connection is not None and not answered.goes_on:
        answered.connection.release_memory()


class RequestChannel:
    """The request queue, the control plane's if there is one, and every processor's response queue."""

    def __init__(self, queued_max_requests: int, control_max_requests: int = 0) -> None:
        self.requests = RequestQueue(queued_max_requests)  # fixed before start
        # Fixed before start. For the controller's pushes, which must not wait behind clients' requests.
        self.control = RequestQueue(control_max_requests) if control_max_requests else None
        self._lock = threading.Lock()  # a leaf
        self._responses: dict[int, ResponseQueue] = {}  # guarded by: _lock; by processor id

    def add_processor(self, processor_id: int, responses: ResponseQueue) -> None:
        """Add the response queue of a new processor."""
        with self._lock:
            assert processor_id not in self._responses, f"two processors with id {processor_id}"
            self._responses[processor_id] = responses

    def remove_processor(self, processor_id: int) -> None:
        """Remove the response queue of a processor that ended."""
        with self._lock:
            self._responses.pop(processor_id, None)

    def request_queue_size(self) -> int:
        """Return how many requests wait for a handler, without the control plane's."""
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
