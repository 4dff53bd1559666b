"""Faults from Python: add them to a running cluster, see what fired, take them away again.

    faults = Faults(cluster)                       # a LocalCluster, its directory, or the addresses of metrics pages
    with faults.add(Fault(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2)) as handle:
        produce_something()
        handle.wait_fired(2)

A fault without `node` goes to every broker that runs; counts (`times`, `on_call`) are each broker's own. Processes must
run with barnabas.faults.enable=true.

Threads: a `Faults` and what it gives may be used from several; each question is a connection of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import select
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

from barnabas.common.clock import SystemClock
from barnabas.faults.definition import CONTROLLER, WIRE_ACTIONS, Fault, FaultError
from barnabas.faults.nodes import NodeFaults
from barnabas.faults.pages import FaultsUnavailableError, NodePage, NodeSilentError, Target, target_of
from barnabas.faults.recording import Recorder

POLL_S_MIN: Final = 0.005
POLL_S_MAX: Final = 0.1
TIMEOUT_S: Final = 30.0
_MIRRORED: Final = {"to": "from", "from": "to", "both": "both"}

T = TypeVar("T")


class FaultTimeoutError(AssertionError):
    """What was waited for did not happen in time."""


class Faults:
    """The faults of a cluster; see the module.

    `target`: a `LocalCluster`, the directory of one (of `barnabas up --data-dir`), or the addresses of the metrics
    pages of its processes, "127.0.0.1:9404,…", as `barnabas up` prints them after `metrics=`.
    """

    def __init__(self, target: Target | Any) -> None:
        self._target = target_of(target)
        self.recorder = Recorder(self._target)

    def add(self, fault: Fault) -> FaultHandle:
        """Put a fault in force; raises FaultError for one that cannot be, FaultsUnavailableError for a node that is not
        there.
        """
        pages = self._target.pages()
        handle = FaultHandle(fault)
        try:
            for page, of_node in self._spread(fault, pages):
                handle._added(page, page.ask("POST", "/faults", of_node.to_json())["faults"][0])
        except BaseException:
            handle.remove()
            raise
        return handle

    def add_all(self, faults: Iterable[Fault]) -> list[FaultHandle]:
        """Put several in force, or none of them."""
        handles: list[FaultHandle] = []
        try:
            handles.extend(map(self.add, faults))
        except BaseException:
            for handle in handles:
                handle.remove()
            raise
        return handles

    def list(self) -> list[dict[str, Any]]:
        """The state of every fault on every node that answers, as GET /faults tells it, with `node`."""
        told = []
        for answer in self._ask_all("GET"):
            told += [{"node": answer["node"], **state} for state in answer["faults"]]
        return told

    def node(self, node_id: int) -> NodeFaults:
        """One node, to be broken as a whole."""
        return NodeFaults(self, node_id)

    def act(self, action: str, node_id: int) -> str:
        """kill, stop, start, pause or resume the process of a node; returns what was done. Raises ClusterError."""
        return self._target.act(action, node_id)

    def remove(self, fault_id: str, node: int | None = None) -> int:
        """Remove the fault of this id (of one node, or of each that has one); returns how many there were."""
        pages = self._target.pages()
        chosen = pages.values() if node is None else [_page_of(pages, node)]
        return sum(page.find("DELETE", f"/faults/{fault_id}") is not None for page in chosen)

    def remove_all(self) -> int:
        """Remove every fault of every node that answers; returns how many there were."""
        return sum(len(answer["faults"]) for answer in self._ask_all("DELETE"))

    def _ask_all(self, method: str) -> Iterator[dict[str, Any]]:
        """What each node that answers says of all its faults."""
        for page in self._target.pages().values():
            with contextlib.suppress(NodeSilentError):
                yield page.ask(method, "/faults")

    def __enter__(self) -> Faults:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove_all()

    def _spread(self, fault: Fault, pages: dict[int, NodePage]) -> Iterator[tuple[NodePage, Fault]]:
        """Which node is given which fault."""
        if fault.action == "cut":
            yield from _both_ends(fault, pages)
        elif fault.node is not None:
            yield _page_of(pages, fault.node), fault
        elif fault.action not in WIRE_ACTIONS:
            raise FaultError(f"{fault.action} is a fault of one node: say which with node=")
        else:
            brokers = [page for page in pages.values() if page.role == "broker"]
            if not brokers:
                raise FaultsUnavailableError("no broker runs")
            for page in brokers:
                yield page, fault


def _page_of(pages: dict[int, NodePage], node_id: int) -> NodePage:
    page = pages.get(node_id)
    if page is None:
        raise FaultsUnavailableError(
            f"node {node_id} does not run; those that do: {', '.join(map(str, sorted(pages)))}"
        )
    return page


def _both_ends(fault: Fault, pages: dict[int, NodePage]) -> Iterator[tuple[NodePage, Fault]]:
    """A link is cut at both its ends, so that it stays cut when one of the nodes is started again."""
    if fault.node is None:
        raise FaultError("cut is a fault of one node: say which with node=")
    other = fault.cut
    if other == CONTROLLER:
        other = next((page.node_id for page in pages.values() if page.role == "controller"), None)
    if fault.node == other:
        raise FaultError(f"node {fault.node} has no link to itself")
    page, other_page = pages.get(fault.node), pages.get(other) if isinstance(other, int) else None
    if page is None and other_page is None:
        raise FaultsUnavailableError(f"neither node {fault.node} nor {fault.cut} runs")
    if page is not None:
        yield page, fault
    if other_page is not None:
        direction = _MIRRORED[fault.direction or "both"]
        yield other_page, dataclasses.replace(fault, node=other_page.node_id, cut=fault.node, direction=direction)


class FaultHandle:
    """A fault that was added: what it fired for, and its end. A context manager that removes it."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._places: list[tuple[NodePage, str]] = []  # where it is in force: page and id; grows in `add` only
        self._last: dict[tuple[int, str], dict[str, Any]] = {}  # as each node last told; replaced by whoever asks
        self.is_removed = False  # set once

    def _added(self, page: NodePage, state: dict[str, Any]) -> None:
        self._places.append((page, state["id"]))
        self._last[page.node_id, state["id"]] = state

    @property
    def ids(self) -> list[tuple[int, str]]:
        """Node and id of the fault, wherever it was added."""
        return [(page.node_id, fault_id) for page, fault_id in self._places]

    def states(self) -> list[dict[str, Any]]:
        """The fault's state on each node, as GET /faults/ID tells it; the last known one of a node that is gone."""
        if not self.is_removed:
            for page, fault_id in self._places:
                with contextlib.suppress(FaultsUnavailableError):
                    state = page.find("GET", f"/faults/{fault_id}")
                    if state is not None:
                        self._last[page.node_id, fault_id] = state
        return list(self._last.values())

    @property
    def fired(self) -> int:
        """For how many requests (operations of the disk, …) the fault has fired, over all nodes."""
        return sum(state["fired"] for state in self.states())

    @property
    def calls(self) -> int:
        """How many it met, fired or not."""
        return sum(state["calls"] for state in self.states())

    @property
    def held(self) -> int:
        """How many requests it holds now."""
        return sum(state["held"] for state in self.states())

    @property
    def events(self) -> list[dict[str, Any]]:
        """The last requests (operations, …) that it fired for, oldest first; at most 100 of each node."""
        events = [event for state in self.states() for event in state["events"]]
        return sorted(events, key=lambda event: event["time_ms"])

    def wait_fired(self, count: int = 1, timeout_s: float = TIMEOUT_S) -> int:
        """Wait until the fault has fired so often; returns how often. Raises FaultTimeoutError."""
        return wait_for(
            lambda: fired if (fired := self.fired) >= count else None,
            lambda: f"the fault ({self.fault}) fired {self.fired} times in {timeout_s:g} s, not {count}",
            timeout_s,
        )

    def remove(self) -> None:
        """End the fault: nothing of it stays. Removing twice is fine, and so is a node that is gone."""
        if self.is_removed:
            return
        for page, fault_id in self._places:
            with contextlib.suppress(FaultsUnavailableError):
                state = page.find("DELETE", f"/faults/{fault_id}")
                if state is not None:
                    self._last[page.node_id, fault_id] = state
        self.is_removed = True

    def __enter__(self) -> FaultHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        return f"<fault {self.fault} on {', '.join(f'{node}:{fault_id}' for node, fault_id in self.ids)}>"


def wait_for(probe: Callable[[], T | None], complaint: Callable[[], str], timeout_s: float) -> T:
    """Ask until the answer is not None; raises FaultTimeoutError with the complaint."""
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + int(timeout_s * 1000)
    pause_s = POLL_S_MIN
    while True:
        value = probe()
        if value is not None:
            return value
        if clock.monotonic_ms() >= until_ms:
            raise FaultTimeoutError(complaint())
        select.select([], [], [], pause_s)
        pause_s = min(POLL_S_MAX, pause_s * 1.5)
