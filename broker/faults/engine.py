"""The active faults of a node, and the path of a request through them.

    handler -> row of the wrapped table -> cut links -> recorder -> fault 1 -> fault 2 -> … -> the API

`wrap` makes an API table whose rows take this path; the handlers, the network threads and the APIs do not depend on it.
Faults apply in the order in which they were added. This module also keeps the faults of the disk, of links and of the
clock, and passes them to the file layer, `Links` and `SkewedClock`.

Threads: handlers call `handle`; the threads of the HTTP page (and tests) add and remove faults, under `_lock`. Held and
delayed requests continue on the threads of the engine's own scheduler, `fault-N`, which start when they are needed.
"""

from __future__ import annotations

import dataclasses
import itertools
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.faults.actions.call import Call, TopicName
from barnabas.broker.faults.actions.wire import ACTIONS
from barnabas.broker.faults.armed import Armed
from barnabas.broker.faults.links import REFUSE
from barnabas.broker.faults.matching import sending_node
from barnabas.broker.faults.triggers import SPENT
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Close, Ending
from barnabas.broker.requests.parking import Answer, Park
from barnabas.faults.definition import DISK_ACTIONS, Fault, FaultError

if TYPE_CHECKING:
    from barnabas.broker.faults.disk import FaultableFileSystem
    from barnabas.broker.faults.links import Links
    from barnabas.broker.faults.recorder import Recorder
    from barnabas.broker.faults.skewed_clock import SkewedClock
    from barnabas.broker.requests.api import Api, Table
    from barnabas.broker.requests.request import Request
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.faults")

#: Upper limits: of kept faults that will never fire again (older ones are dropped), and of all faults (others are
#: refused).
SPENT_KEPT: Final = 200
FAULTS_MAX: Final = 1000


class FaultEngine:
    """See the module. `topic_name` returns the name of a topic id; "" or None if it is unknown."""

    def __init__(
        self,
        node_id: int,
        clock: Clock,
        scheduler: TaskScheduler,
        recorder: Recorder,
        *,
        disk: FaultableFileSystem,
        links: Links,
        wall: SkewedClock,
    ) -> None:
        # Fixed before start.
        self.node_id = node_id
        self.recorder = recorder
        self.topic_name: TopicName = lambda _topic_id: None  # set by FaultKit.serve_…
        self._clock = clock
        self._scheduler = scheduler
        self._disk = disk
        self._links = links
        self._wall = wall
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # taken before the links' and the armed faults' own
        self._armed: dict[str, Armed] = {}  # guarded by: _lock; by id, in order of addition
        self._on_wire: tuple[Armed, ...] = ()  # replaced whole under _lock

    # The active faults

    def add(self, fault: Fault) -> Armed:
        """Add a fault. Raises FaultError if it is for another node."""
        return self.add_all([fault])[0]

    def add_all(self, faults: list[Fault]) -> list[Armed]:
        """Add all of these faults, or none. Raises FaultError."""
        for fault in faults:
            if fault.node is not None and fault.node != self.node_id:
                raise FaultError(f"this is node {self.node_id}, but the fault is for node {fault.node}")
            if fault.cut == self.node_id:
                raise FaultError(f"node {self.node_id} has no link to itself")
        with self._lock:
            self._forget_spent()
            if len(self._armed) + len(faults) > FAULTS_MAX:
                raise FaultError(f"there are {len(self._armed)} faults, and {FAULTS_MAX} is the upper limit")
            added = [Armed(f"f{next(self._numbers)}", fault, self._clock) for fault in faults]
            for armed in added:
                self._armed[armed.id] = armed
                self._install(armed)
        for armed in added:
            log.warning("fault %s: %s", armed.id, armed.fault)
        return added

    def remove(self, fault_id: str) -> Armed | None:
        """Remove a fault, and release everything that it holds; None if it does not exist."""
        with self._lock:
            armed = self._armed.pop(fault_id, None)
            if armed is not None:
                self._uninstall(armed)
        if armed is not None:
            armed.remove()
            log.warning("fault %s was removed; it fired %d times", armed.id, armed.trigger.fired)
        return armed

    def remove_all(self) -> list[Armed]:
        """Remove every fault; return them."""
        removed = [self.remove(armed.id) for armed in self.faults()]
        return [armed for armed in removed if armed is not None]

    def find(self, fault_id: str) -> Armed | None:
        """Return the fault with this id, spent or not; None if it does not exist."""
        return self._armed.get(fault_id)

    def faults(self) -> list[Armed]:
        """Return all faults that were added and not removed, oldest first."""
        with self._lock:
            return list(self._armed.values())

    def _forget_spent(self) -> None:
        now_ms = self._clock.monotonic_ms()
        spent = [armed for armed in self._armed.values() if armed.trigger.state(now_ms) == SPENT]
        for armed in spent[: max(0, len(spent) - SPENT_KEPT)]:
            del self._armed[armed.id]
            self._uninstall(armed)

    def _install(self, armed: Armed) -> None:
        if armed.action in ACTIONS:
            self._on_wire += (armed,)
        elif armed.action in DISK_ACTIONS:
            self._disk.add(armed)
        elif armed.action == "cut":
            self._links.cut(armed)
        else:
            self._wall.skew(armed)

    def _uninstall(self, armed: Armed) -> None:
        if armed.action in ACTIONS:
            self._on_wire = tuple(other for other in self._on_wire if other is not armed)
        elif armed.action in DISK_ACTIONS:
            self._disk.remove(armed)
        elif armed.action == "cut":
            self._links.heal(armed)
        else:
            self._wall.set_right(armed)

    # The path of a request

    def wrap(self, table: Table) -> dict[int, Api]:
        """Return an API table whose rows go through the faults."""
        return {key: self._wrapped(api) for key, api in table.items()}

    def _wrapped(self, api: Api) -> Api:
        def handle(services: Any, request: Request) -> Answer:
            return self.handle(api, services, request)

        return dataclasses.replace(api, handle=handle)

    def handle(self, api: Api, services: Any, request: Request) -> Answer:
        """Answer a request with the active faults."""
        if request.processor is None:  # inside an Envelope, which took this path already
            return api.handle(services, request)
        sender = sending_node(request)
        cut = self._links.cut_from(sender)
        if cut is not None:
            return self._cut_off(cut, request)
        faults, recorder = self._on_wire, self.recorder
        if not faults and not recorder.is_on:
            return api.handle(services, request)
        call = Call(api, services, request, sender, self._scheduler, self.topic_name)
        record = recorder.begin(call) if recorder.is_on else None
        answer = self._go_on(call, faults, 0)
        if record is None:
            return answer

        def recorded(given: Ending) -> Answer:
            recorder.finish(call, record, given)
            return given

        return call.after(answer, recorded)

    def _go_on(self, call: Call, faults: tuple[Armed, ...], index: int) -> Answer:
        """Return the answer of the first fault from this index on that fires, else that of the API."""
        while index < len(faults):
            armed, index = faults[index], index + 1
            if armed.matcher.concerns(call.request, call.sender):
                answer = ACTIONS[armed.action](armed, call, self._proceed(call, faults, index))
                if answer is not None:
                    return answer
        return call.carry_out()

    def _proceed(self, call: Call, faults: tuple[Armed, ...], index: int) -> Callable[[], Answer]:
        return lambda: self._go_on(call, faults, index)

    def _cut_off(self, armed: Armed, request: Request) -> Answer:
        """Answer a request that came over a cut link."""
        armed.fires_for(request)
        if armed.fault.mode == REFUSE:
            return Close(f"fault {armed.id} cuts the link")
        deferred = Deferred()
        armed.hold(request, lambda: deferred.complete(Close(f"fault {armed.id}, which cut the link, was removed")))
        return Park(deferred)
