"""The handle of a fault that was added: its state on each node, and its removal.

Threads: any.
"""

from __future__ import annotations

import contextlib
from typing import Any

from barnabas.faults.definition import Fault, FaultError
from barnabas.faults.pages import FaultsUnavailableError, NodePage, NodeSilentError
from barnabas.faults.waiting import TIMEOUT_S, wait_for


class FaultHandle:
    """A fault that was added. As a context manager it removes the fault at the end."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._places: list[tuple[NodePage, str]] = []  # page and id of each node with the fault; grows in `added` only
        self._last: dict[tuple[int, str], dict[str, Any]] = {}  # the last known state on each node
        self.is_removed = False  # set once

    def added(self, page: NodePage, state: dict[str, Any]) -> None:
        """Note that a node has the fault in force, in this state."""
        self._places.append((page, state["id"]))
        self._last[page.node_id, state["id"]] = state

    @property
    def ids(self) -> list[tuple[int, str]]:
        """Node and id of the fault, for each node on which it was added."""
        return [(page.node_id, fault_id) for page, fault_id in self._places]

    def states(self) -> list[dict[str, Any]]:
        """Return the state on each node, as in GET /faults/ID; of a node that does not answer, the last known one."""
        if not self.is_removed:
            for page, fault_id in self._places:
                with contextlib.suppress(FaultError, FaultsUnavailableError):
                    state = page.find("GET", f"/faults/{fault_id}")
                    if state is not None:
                        self._last[page.node_id, fault_id] = state
        return list(self._last.values())

    @property
    def fired(self) -> int:
        """The number of requests (disk operations, …) for which the fault fired, over all nodes."""
        return sum(state["fired"] for state in self.states())

    @property
    def calls(self) -> int:
        """The number of matching requests, whether it fired or not."""
        return sum(state["calls"] for state in self.states())

    @property
    def held(self) -> int:
        """The number of requests that it holds now."""
        return sum(state["held"] for state in self.states())

    @property
    def events(self) -> list[dict[str, Any]]:
        """The last requests (disk operations, …) for which it fired, oldest first; at most 100 of each node."""
        events = [event for state in self.states() for event in state["events"]]
        return sorted(events, key=lambda event: event["time_ms"])

    def wait_fired(self, count: int = 1, timeout_s: float = TIMEOUT_S) -> int:
        """Wait until the fault has fired `count` times; return its count. Raises FaultTimeoutError."""
        return wait_for(
            lambda: fired if (fired := self.fired) >= count else None,
            lambda: f"the fault ({self.fault}) fired {self.fired} times in {timeout_s:g} s, not {count}",
            timeout_s,
        )

    def remove(self) -> None:
        """Remove the fault from every node. A second call does nothing; a node that is gone is skipped.

        Raises FaultError or FaultsUnavailableError if a node refuses, after asking the others.
        """
        if self.is_removed:
            return
        refusals: list[Exception] = []
        for page, fault_id in self._places:
            try:
                state = page.find("DELETE", f"/faults/{fault_id}")
            except NodeSilentError:
                continue
            except (FaultError, FaultsUnavailableError) as error:
                refusals.append(error)
                continue
            if state is not None:
                self._last[page.node_id, fault_id] = state
        if refusals:
            raise refusals[0]
        self.is_removed = True

    def __enter__(self) -> FaultHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<fault {self.fault} on {', '.join(f'{node}:{fault_id}' for node, fault_id in self.ids)}>"
