"""Faults from Python: add them to a running cluster, see what fired, remove them again.

    faults = Faults(cluster)                       # a LocalCluster, its directory, or the addresses of metrics pages
    with faults.add(Fault(api="Produce", topic="orders", error="NOT_LEADER_OR_FOLLOWER", times=2)) as handle:
        produce_something()
        handle.wait_fired(2)

A fault without `node` is added on every running broker, and each broker counts for itself (`times`, `on_call`). The
processes must run with barnabas.faults.enable=true.

Threads: any; each request to a node has its own connection.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas.faults.definition import CONTROLLER, WIRE_ACTIONS, Fault, FaultError
from barnabas.faults.handle import FaultHandle
from barnabas.faults.nodes import NodeFaults
from barnabas.faults.pages import FaultsUnavailableError, NodePage, NodeSilentError, target_of
from barnabas.faults.recording import Recorder

_MIRRORED: Final = {"to": "from", "from": "to", "both": "both"}


class Faults:
    """The faults of a cluster; see the module.

    `target` is a `LocalCluster`, the directory of one (`barnabas up --data-dir`), or the addresses of its metrics
    pages, "127.0.0.1:9404,…", as `barnabas up` prints them after `metrics=`.
    """

    def __init__(self, target: object) -> None:
        self._target = target_of(target)
        self.recorder = Recorder(self._target)

    def add(self, fault: Fault) -> FaultHandle:
        """Add a fault. Raises FaultError for an impossible one, and FaultsUnavailableError without its node."""
        pages = self._target.pages()
        handle = FaultHandle(fault)
        try:
            for page, of_node in self._spread(fault, pages):
                handle.added(page, page.ask("POST", "/faults", of_node.to_json())["faults"][0])
        except BaseException:
            _clean_up([handle])
            raise
        return handle

    def add_all(self, faults: Iterable[Fault]) -> list[FaultHandle]:
        """Add several faults, or none of them. Raises as `add` does."""
        handles: list[FaultHandle] = []
        try:
            handles.extend(map(self.add, faults))
        except BaseException:
            _clean_up(handles)
            raise
        return handles

    def list(self) -> list[dict[str, Any]]:
        """Return the state of every fault on every node that answers, as in GET /faults, with `node`."""
        states = []
        for answer in self._ask_all("GET"):
            states += [{"node": answer["node"], **state} for state in answer["faults"]]
        return states

    def node(self, node_id: int) -> NodeFaults:
        """Return the faults of a node as a whole: its process, disk, links and clock."""
        return NodeFaults(self, node_id)

    def act(self, action: str, node_id: int) -> str:
        """Kill, stop, start, pause or resume the process of a node; return a line about it. Raises ClusterError."""
        return self._target.act(action, node_id)

    def remove(self, fault_id: str, node: int | None = None) -> int:
        """Remove the fault of this id, on one node or on all; return how many nodes had it."""
        pages = self._target.pages()
        chosen = pages.values() if node is None else [_page_of(pages, node)]
        return sum(page.find("DELETE", f"/faults/{fault_id}") is not None for page in chosen)

    def remove_all(self) -> int:
        """Remove every fault of every node that answers; return how many there were."""
        return sum(len(answer["faults"]) for answer in self._ask_all("DELETE"))

    def _ask_all(self, method: str) -> Iterator[dict[str, Any]]:
        """Yield the answer about all faults of each node that answers."""
        for page in self._target.pages().values():
            with contextlib.suppress(NodeSilentError):
                yield page.ask(method, "/faults")

    def __enter__(self) -> Faults:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove_all()

    def _spread(self, fault: Fault, pages: dict[int, NodePage]) -> Iterator[tuple[NodePage, Fault]]:
        """Yield the nodes on which a fault is added, each with its fault."""
        if fault.action == "cut":
            self._check_exists(fault.node, fault.cut)
            yield from _both_ends(fault, pages)
        elif fault.node is not None:
            yield _page_of(pages, fault.node), fault
        elif fault.action not in WIRE_ACTIONS:
            raise FaultError(f"{fault.action} is a fault of one node: name it with node=")
        else:
            brokers = [page for page in pages.values() if page.role == "broker"]
            if not brokers:
                raise FaultsUnavailableError("no broker is running")
            for page in brokers:
                yield page, fault

    def _check_exists(self, *nodes: object) -> None:
        """Raise FaultError for the id of a node that the cluster does not have. A node that is down may be cut off."""
        known = self._target.ids()
        missing = [node for node in nodes if isinstance(node, int) and known is not None and node not in known]
        if missing:
            raise FaultError(f"there is no node {missing[0]}; the ids are {', '.join(map(str, sorted(known or ())))}")


def _clean_up(handles: Iterable[FaultHandle]) -> None:
    """Remove faults after an error, which is the one to report."""
    for handle in handles:
        with contextlib.suppress(FaultError, FaultsUnavailableError):
            handle.remove()


def _page_of(pages: dict[int, NodePage], node_id: int) -> NodePage:
    page = pages.get(node_id)
    if page is None:
        raise FaultsUnavailableError(
            f"node {node_id} is not running; running nodes: {', '.join(map(str, sorted(pages)))}"
        )
    return page


def _both_ends(fault: Fault, pages: dict[int, NodePage]) -> Iterator[tuple[NodePage, Fault]]:
    """Yield both ends of a link with their faults: cut at both, it stays cut when one node restarts."""
    if fault.node is None:
        raise FaultError("cut is a fault of one node: name it with node=")
    other = fault.cut
    if other == CONTROLLER:
        other = next((page.node_id for page in pages.values() if page.role == "controller"), None)
    if fault.node == other:
        raise FaultError(f"node {fault.node} has no link to itself")
    page, other_page = pages.get(fault.node), pages.get(other) if isinstance(other, int) else None
    if page is None and other_page is None:
        raise FaultsUnavailableError(f"neither node {fault.node} nor {fault.cut} is running")
    if page is not None:
        yield page, fault
    if other_page is not None:
        direction = _MIRRORED[fault.direction or "both"]
        yield other_page, dataclasses.replace(fault, node=other_page.node_id, cut=fault.node, direction=direction)
