"""The event loop: the single thread that makes all decisions.

    submit -> queue -> take a group of events -> each: decide, prepare, append -> flush once
    commit (of the quorum) -> publish -> respond

Rules
1. Only the event thread reads and changes the controller's state. Other threads submit events and calls.
2. One flush commits a whole group of events (group commit). An event sees the effects of earlier events, committed or
   not. So its outcome, a read or an error as well, waits until all that was appended before it is committed. No
   response and no push leaves the process before that. The thread itself does not wait: it decides the next group.
3. A timer is an event that the loop submits to itself when it is due.
4. An `ApiError` becomes the response. Any other exception of a decision is a bug: it is logged and counted, the
   response is UNKNOWN_SERVER_ERROR, and nothing is written. A disk error ends the process, since the state in memory
   may be ahead of the log. Only a replay can tell.
5. No request ends the thread. `prepare` encodes the records and applies them to a copy of the state, without any
   change to the state itself. Records that cannot be encoded or applied are refused there. A callback that raises is
   logged.
6. A call brings news of the log (commits, leaders) to the event thread, before the next decision. Calls keep their
   order. When the lead is lost, `fail_deferred` answers everything that still waits.

Threads: `submit` and `call` are for any thread; the event thread runs `run`; tests call `step`, the body of `run`.

Source: KafkaEventQueue, DeferredEventQueue, QuorumController.ControllerWriteEvent (Kafka 4.3).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from barnabas.common.clock import Clock
from barnabas.common.threads import ServiceThread
from barnabas.controller.decision import Decision
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.metadata_records import MetadataRecord

log = logging.getLogger("barnabas.controller.events")

GROUP_SIZE_MAX: Final = 64
IDLE_WAIT_MS_MAX: Final = 60_000

Decide = Callable[[], Decision[Any]]
Succeeded = Callable[[Any], object]
Failed = Callable[[ApiError], None]


@dataclass(slots=True)
class Event:
    """A decision to make. `succeeded` or `failed` is called once, on the event thread, holding no lock."""

    name: str
    decide: Decide
    succeeded: Succeeded
    failed: Failed
    deadline_ns: int | None = None  # on the monotonic clock; a start from then on fails with REQUEST_TIMED_OUT
    enqueued_ns: int = 0


@dataclass(slots=True)
class Timer:
    """A decision to make when it is due. Owner: event thread."""

    name: str
    next_due_ms: Callable[[], int | None]  # on the monotonic clock; None: not now
    decide: Decide


class Machine(Protocol):
    """The state that the loop drives: see `QuorumController`."""

    def prepare(self, records: Sequence[MetadataRecord]) -> Any:
        """Return the argument of `append`; changes nothing (rule 5)."""

    def append(self, prepared: Any) -> None:
        """Append prepared records and show them to the next decision; they are not committed yet.

        Raises NotControllerError if another controller is active.
        """

    def flush(self) -> None:
        """Let everything appended be committed, now or later; called after each group of events."""

    @property
    def appended_offset(self) -> int:
        """The offset of the last record that a decision has seen."""

    @property
    def committed_offset(self) -> int:
        """The offset of the last committed record."""


class NotControllerError(ApiError):
    """Another controller is active, or none."""

    def __init__(self, text: str) -> None:
        super().__init__(ErrorCode.NOT_CONTROLLER, text)


class Observer(Protocol):
    """Counts and times events, for metrics."""

    def event_started(self, queue_time_ns: int) -> None:
        """Count an event taken from the queue."""

    def event_processed(self, processing_time_ns: int) -> None:
        """Count an event that was decided and appended."""

    def event_timed_out(self) -> None:
        """Count an event that started after its deadline."""

    def event_failed(self) -> None:
        """Count an unexpected exception."""


@dataclass(slots=True)
class _Outcome:
    event: Event
    offset: int  # it may be answered once all up to here is committed (rule 2)
    response: Any = None
    error: ApiError | None = None


@dataclass(slots=True)
class _Stop:
    """The last item of the queue: the loop ends."""


@dataclass(slots=True)
class _Wake:
    """There are calls to make (rule 6)."""


@dataclass(slots=True)
class EventLoop:
    """See the module. main calls `start` and `stop`; tests call `step`."""

    name: str
    clock: Clock
    machine: Machine
    observer: Observer
    timers: list[Timer] = field(default_factory=list)  # fixed before start
    _queue: queue.Queue[Event | _Stop | _Wake] = field(default_factory=queue.Queue)
    _calls: deque[Callable[[], None]] = field(default_factory=deque)  # any thread appends, the event thread takes
    _deferred: deque[_Outcome] = field(default_factory=deque)  # owner: event thread; in order of their offsets
    deciding: str | None = None  # owner: event thread; the name of the event in progress
    _is_stopping: bool = False  # set by stop(), read by the loop
    _thread: ServiceThread | None = None  # fixed by start()

    # -- any thread

    def submit(self, event: Event) -> None:
        """Queue an event; after `stop` it fails at once."""
        if self._is_stopping:
            event.failed(ApiError(ErrorCode.NOT_CONTROLLER, "The controller is shutting down."))
            return
        event.enqueued_ns = self.clock.monotonic_ns()
        self._queue.put(event)

    def call(self, function: Callable[[], None]) -> None:
        """Have the event thread call a function soon (rule 6). An exception of it ends the process."""
        self._calls.append(function)
        if self._thread is None or self._thread.ident != threading.get_ident():
            self._queue.put(_Wake())

    def queue_size(self) -> int:
        """Return the number of waiting events."""
        return self._queue.qsize()

    def waiting(self) -> list[Event]:
        """Return a snapshot of the waiting events, oldest first."""
        with self._queue.mutex:
            return [event for event in self._queue.queue if isinstance(event, Event)]

    def start(self) -> None:
        """Start the event thread."""
        self._thread = ServiceThread(self.name, "controller-evt", self.run)
        self._thread.start()

    def stop(self) -> None:
        """Finish the queued events, then end the thread."""
        self._is_stopping = True
        self._queue.put(_Stop())
        if self._thread is not None:
            self._thread.join()

    # -- the event thread

    def run(self) -> None:
        """Handle events and timers until stopped; the body of the event thread."""
        while self.step(self._wait_ms()):
            pass
        self._fail_rest()

    def step(self, wait_ms: int = 0) -> bool:
        """Handle one group of events, then the due timers; False once stopped.

        The wait for the first event takes at most `wait_ms`.
        """
        events, is_stopped = self._take(wait_ms)
        self.run_calls()
        self._handle(events)
        self.run_due_timers()
        return not is_stopped

    def run_calls(self) -> None:
        """Make the calls, then respond to what they have committed."""
        if not self._calls:
            return
        while self._calls:
            self._calls.popleft()()
        self._complete()

    def fail_deferred(self, error: ApiError) -> None:
        """Respond with an error to everything that is not committed."""
        self._complete()
        deferred, self._deferred = self._deferred, deque()
        for outcome in deferred:
            outcome.error = error  # Why also instead of another error: it may be due to what is taken back
            self._respond(outcome)

    def run_due_timers(self) -> None:
        """Handle the timers that are due."""
        now_ms = self.clock.monotonic_ms()
        due = [t for t in self.timers if (when := t.next_due_ms()) is not None and when <= now_ms]
        self._handle([Event(t.name, t.decide, _ignore, _log_timer_error) for t in due])

    def _take(self, wait_ms: int) -> tuple[list[Event], bool]:
        events: list[Event] = []
        try:
            item = self._queue.get(timeout=wait_ms / 1000) if wait_ms > 0 else self._queue.get_nowait()
            while not isinstance(item, _Stop):
                if isinstance(item, Event):
                    events.append(item)
                    if len(events) >= GROUP_SIZE_MAX:
                        return events, False
                item = self._queue.get_nowait()
        except queue.Empty:
            return events, False
        return events, True

    def _handle(self, events: Sequence[Event]) -> None:
        if not events:
            return
        self._deferred += [self._decide(event) for event in events]
        self.machine.flush()
        self.deciding = None
        self.run_calls()
        self._complete()

    def _complete(self) -> None:
        """Respond to everything that is committed."""
        deferred, committed = self._deferred, self.machine.committed_offset
        while deferred and deferred[0].offset <= committed:
            self._respond(deferred.popleft())

    def _respond(self, outcome: _Outcome) -> None:
        """Call one of the event's callbacks; an exception is logged (rule 5)."""
        try:
            if outcome.error is None:
                outcome.event.succeeded(outcome.response)
            else:
                outcome.event.failed(outcome.error)
        except Exception:
            log.exception("The response to event %s could not be sent", outcome.event.name)
            self.observer.event_failed()

    def _decide(self, event: Event) -> _Outcome:
        start_ns = self.clock.monotonic_ns()
        self.deciding = event.name
        self.observer.event_started(start_ns - event.enqueued_ns if event.enqueued_ns else 0)
        if event.deadline_ns is not None and start_ns >= event.deadline_ns:
            self.observer.event_timed_out()
            return self._outcome(event, error=ApiError(ErrorCode.REQUEST_TIMED_OUT))
        try:
            decision = event.decide()
            prepared = self.machine.prepare(decision.records) if decision.records else None
        except ApiError as error:
            return self._outcome(event, error=error)
        except OSError:
            raise  # the disk has failed (rule 4)
        except Exception:
            log.exception("Event %s failed", event.name)
            self.observer.event_failed()
            return self._outcome(event, error=ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        if prepared is not None:
            try:
                self.machine.append(prepared)
            except NotControllerError as refusal:
                return self._outcome(event, error=refusal)
        self.observer.event_processed(self.clock.monotonic_ns() - start_ns)
        return self._outcome(event, response=decision.response)

    def _outcome(self, event: Event, response: Any = None, error: ApiError | None = None) -> _Outcome:
        return _Outcome(event, self.machine.appended_offset, response, error)

    def _wait_ms(self) -> int:
        due = [when for t in self.timers if (when := t.next_due_ms()) is not None]
        if not due:
            return IDLE_WAIT_MS_MAX
        return max(0, min(IDLE_WAIT_MS_MAX, min(due) - self.clock.monotonic_ms()))

    def _fail_rest(self) -> None:
        self.fail_deferred(ApiError(ErrorCode.NOT_CONTROLLER, "The controller is shutting down."))
        while True:
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, Event):
                item.failed(ApiError(ErrorCode.NOT_CONTROLLER, "The controller is shutting down."))


def _ignore(_: object) -> None:
    pass


def _log_timer_error(error: ApiError) -> None:
    log.error("A timed event failed: %s", error)
