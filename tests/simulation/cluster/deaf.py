"""Brokers that the controllers do not reach, though their heartbeats arrive: they would lead without knowing it.

A broker that is active has applied, within `barnabas.metadata.lag.max.ms` and a little more, what another active broker
had applied. Otherwise it is fenced (controller/sessions.py). It must have caught up for some time before: its first
push may take longer, until a heartbeat has told the controller that it was applied.

Looked at while the active controller runs and its disk is sound: a flush of seconds delays all of its decisions.

Threads: the task that looks. It looks at the processes from outside, and changes nothing.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from barnabas.common.clock import NS_PER_MS
from tests.simulation.cluster.serving import serving

#: For a heartbeat, which brings the offset, and for links that are slow.
SLACK_MS: Final = 5_000


class _Behind(NamedTuple):
    """What a broker has to apply next."""

    process: Any
    offset: int
    since_ns: int
    first_ns: int  # when it was caught up for the first time


class DeafBrokers:
    """The looks at a cluster."""

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes
        self._controller: Any = None  # the process of the active one
        self._behind: dict[str, _Behind] = {}  # those that have caught up once
        self.problems: list[str] = []

    def look(self, now_ns: int) -> None:
        """Look at every broker that runs."""
        controller, image = self._nodes.controller, self._nodes.committed_image()
        is_sound = image is not None and controller.is_active and controller.disk.faults.is_sound
        if not is_sound or controller.process.is_paused or controller.process is not self._controller:
            self._controller, self._behind = controller.process, {}
            return
        applied: list[tuple[Any, int]] = []
        for broker, services in serving(self._nodes):
            registered = image.brokers.get(broker.node.node_id)
            if broker.process.is_paused or registered is None or not registered.is_active:
                continue
            if registered.epoch == broker.server.link.lifecycle.epoch:
                applied.append((broker, services.metadata_cache.offset))  # as its heartbeats have it
        known = max((offset for _, offset in applied), default=-1)
        names = {broker.name for broker, _ in applied}
        self._behind = {name: each for name, each in self._behind.items() if name in names}
        for broker, offset in applied:
            before = self._behind.get(broker.name)
            if before is not None and before.process is not broker.process:
                before = None
            if before is not None and offset < before.offset:
                limit_ms = controller.controller.sessions.lag_timeout_ms + SLACK_MS
                was_known = before.since_ns - before.first_ns >= SLACK_MS * NS_PER_MS
                if was_known and now_ns - before.since_ns > limit_ms * NS_PER_MS:
                    self.problems.append(
                        f"{broker.name} is active, but in {limit_ms} ms it has not applied {before.offset}: it knows "
                        f"{offset}"
                    )
            elif before is not None or offset == known:
                first_ns = now_ns if before is None else before.first_ns
                self._behind[broker.name] = _Behind(broker.process, known, now_ns, first_ns)
