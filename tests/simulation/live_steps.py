"""The live page's JSON of every node at each step of a life, in files, to be looked at afterwards.

A page is read in a fork of the interpreter, so the history stays the same with and without it. There, an observer looks
at each section as a thread of the node that gets no turn but this one: a section that needs a lock which another thread
holds at this moment says so instead.

Threads: whichever takes the step.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from barnabas.common.pages.live_shape import BrokerLive, ControllerLive
from barnabas.testing.simulation.machine.scheduler import SimulationError

if TYPE_CHECKING:
    from barnabas.testing.simulation.machine.scheduler import Scheduler
    from barnabas.testing.simulation.nodes import Nodes, SimulatedNode


class LiveSteps:
    """Writes `0001.json`, `0002.json`, … to a directory."""

    def __init__(self, scheduler: Scheduler, nodes: Nodes, directory: Path) -> None:
        self._scheduler = scheduler
        self._nodes = nodes
        self._directory = directory
        self._steps = 0
        directory.mkdir(parents=True, exist_ok=True)

    def step(self, told: str) -> None:
        """Write the pages of this moment, with what is told of it."""
        self._steps += 1
        with self._scheduler.observing(None):  # since the interpreter takes locks before and after a fork
            child = os.fork()
        if child:
            os.waitpid(child, 0)
            return
        try:
            pages = {node.name: self._page(node) for node in self._nodes.by_id.values()}
            step = {"at_s": self._scheduler.now_ns / 1e9, "told": told, "nodes": pages}
            path = self._directory / f"{self._steps:04}.json"
            path.write_text(json.dumps(step, indent=1, default=str) + "\n")
        finally:
            os._exit(0)

    def _page(self, node: SimulatedNode) -> Any:
        if not node.is_running or node.server is None or node.process is None:
            return None
        is_broker = node.node.role == "broker"
        view = node.server.pages.view if is_broker else node.server.view
        names = (BrokerLive if is_broker else ControllerLive).__annotations__
        page: dict[str, Any] = {}
        with self._scheduler.observing(node.process):
            for name in names:
                try:
                    page.update(view.look({"section": name}))
                except SimulationError as error:
                    page[name] = {"busy": str(error).splitlines()[0]}
        return page
