"""The event loop: the single thread that makes all decisions.

    submit -> queue -> take a group of events -> each: decide, prepare, append -> commit once -> publish -> respond

Rules
1. Only the event thread reads and changes the controller's state. Other threads submit events.
2. One fsync commits a whole group of events (group commit). While it runs, the next events queue up. Within a group,
   an event sees the effects of earlier events. No response and no push leaves the process before the commit.
3. A timer is an event that the loop submits to itself when it is due.
4. An `ApiError` becomes the response. Any other exception of a decision is a bug: it is logged and counted, the
   response is UNKNOWN_SERVER_ERROR, and nothing is written. A disk error ends the process, since the state in memory
   may be ahead of the log. Only a replay can tell.
5. No request ends the thread. `prepare` encodes the records and applies them to a copy of the state, without any
   change to the state itself. Records that cannot be encoded or applied are refused there. A callback that raises is
   logged.

Threads: `submit` is for any thread; the event thread runs `run`; tests call `step`, the body of `run`.

Source: KafkaEventQueue, QuorumController.ControllerWriteEvent (Kafka 4.3).
"""

from __future__ import annotations

import logging
import queue
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
    deadline_ms: int | None = None  # on the monotonic clock; a later start fails with REQUEST_TIMED_OUT
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
        """Append prepared records and show them to the next decision; they are not durable yet."""

    def commit(self) -> None:
        """Make everything appended durable and offer it to the senders."""


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
    response: Any = None
    error: ApiError | None = None


@dataclass(slots=True)
class _Stop:
    """The last item of the queue: the loop ends."""


@dataclass(slots=True)
class EventLoop:
    """See the module. main calls `start` and `stop`; tests call `step`."""

    name: str
    clock: Clock
    machine: Machine
    observer: Observer
    timers: list[Timer] = field(default_factory=list)  # fixed before start
    _queue: queue.Queue[Event | _Stop] = field(default_factory=queue.Queue)
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
        self._handle(events)
        self.run_due_timers()
        return not is_stopped

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
        outcomes = [self._decide(event) for event in events]
        self.machine.commit()
        self.deciding = None
        for outcome in outcomes:
            self._respond(outcome)

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
        if event.deadline_ms is not None and start_ns // 1_000_000 > event.deadline_ms:
            self.observer.event_timed_out()
            return _Outcome(event, error=ApiError(ErrorCode.REQUEST_TIMED_OUT))
        try:
            decision = event.decide()
            prepared = self.machine.prepare(decision.records) if decision.records else None
        except ApiError as error:
            return _Outcome(event, error=error)
        except OSError:
            raise  # the disk has failed (rule 4)
        except Exception:
            log.exception("Event %s failed", event.name)
            self.observer.event_failed()
            return _Outcome(event, error=ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        if prepared is not None:
            self.machine.append(prepared)
        self.observer.event_processed(self.clock.monotonic_ns() - start_ns)
        return _Outcome(event, response=decision.response)

    def _wait_ms(self) -> int:
        due = [when for t in self.timers if (when := t.next_due_ms()) is not None]
        if not due:
            return IDLE_WAIT_MS_MAX
        return max(0, min(IDLE_WAIT_MS_MAX, min(due) - self.clock.monotonic_ms()))

    def _fail_rest(self) -> None:
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
