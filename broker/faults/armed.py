"""One active fault: the events for which it fired, and the requests that it holds."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.faults.matching import Matcher, Partition
from barnabas.broker.faults.triggers import Trigger

if TYPE_CHECKING:
    from barnabas.broker.requests.request import Request
    from barnabas.broker.storage.scheduler import Task
    from barnabas.common.clock import Clock
    from barnabas.faults.definition import Fault

EVENTS_KEPT: Final = 100
_PRUNE_AT: Final = 256


class Held:
    """A waiting request. The first call of `go` releases it, later ones do nothing."""

    __slots__ = ("_go", "_lock", "request", "task")

    def __init__(self, request: Request, go: Callable[[], object]) -> None:
        self.request = request  # fixed before start
        self.task: Task | None = None  # the timer that releases it, if there is one
        self._lock = threading.Lock()  # a leaf
        self._go: Callable[[], object] | None = go  # guarded by: _lock; None once it was called

    @property
    def is_over(self) -> bool:
        """Whether it was released, or its connection is closed."""
        return self._go is None or bool(getattr(self.request.connection, "is_closed", False))

    def go(self) -> None:
        """Release it."""
        with self._lock:
            go, self._go = self._go, None
        if self.task is not None:
            self.task.cancel()
        if go is not None:
            go()


class Armed:
    """A fault with its state. Threads: any."""

    def __init__(self, fault_id: str, fault: Fault, clock: Clock) -> None:
        # Fixed before start.
        self.id = fault_id
        self.fault = fault
        self.action = fault.action
        self.matcher = Matcher(fault)
        self.trigger = Trigger(fault, clock.monotonic_ms())
        self._clock = clock
        self._lock = threading.Lock()  # a leaf
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS_KEPT)  # guarded by: _lock
        self._held: list[Held] = []  # guarded by: _lock
        self._is_removed = False  # guarded by: _lock
        self.removed = threading.Event()

    def is_time(self) -> bool:
        """Whether a fault that is a state (a cut link, a full disk) is active now."""
        return self.trigger.is_time(self._clock.monotonic_ms())

    def fires(self, about: dict[str, Any]) -> bool:
        """Count a matching call; return whether the fault fires. `about` describes the call in the list of events."""
        if self.removed.is_set() or not self.trigger.call(self._clock.monotonic_ms()):
            return False
        with self._lock:
            self._events.append({"time_ms": self._clock.wall_ms(), **about})
        return True

    def fires_for(self, request: Request, partitions: Iterable[Partition] = ()) -> bool:
        """As `fires`, for a request with these matching partitions."""
        header = request.header
        return self.fires(
            {
                "api": request.api.name if request.api is not None else str(header.api_key),
                "version": header.api_version,
                "correlation_id": header.correlation_id,
                "client_id": header.client_id,
                "connection": request.context.connection_id,
                "partitions": [list(partition) for partition in partitions],
            }
        )

    def hold(self, request: Request, go: Callable[[], object]) -> Held:
        """Let a request wait until `go` of the returned object is called, or the fault is removed."""
        held = Held(request, go)
        with self._lock:
            if len(self._held) >= _PRUNE_AT:
                self._held = [other for other in self._held if not other.is_over]
            self._held.append(held)
            is_removed = self._is_removed
        if is_removed:
            held.go()
        return held

    def remove(self) -> None:
        """Stop firing, and release everything that is held."""
        with self._lock:
            self._is_removed = True
            held, self._held = self._held, []
        self.removed.set()
        for one in held:
            one.go()

    def describe(self) -> dict[str, Any]:
        """Return the fault and its state, as JSON values."""
        with self._lock:
            events = list(self._events)
            held = sum(not one.is_over for one in self._held)
        state = "removed" if self.removed.is_set() else self.trigger.state(self._clock.monotonic_ms())
        return {
            "id": self.id,
            "fault": self.fault.to_json(),
            "state": state,
            "calls": self.trigger.calls,
            "fired": self.trigger.fired,
            "held": held,
            "events": events,
        }
