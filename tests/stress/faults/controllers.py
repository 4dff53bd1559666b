"""Faults of several controllers: the active one above all.

    kill, pause the active controller   another one is elected
    isolate a controller                nodes do not reach it, and it reaches none; it may believe that it is active
    mute a controller                   it is cut off one way: what it sends arrives nowhere, but it hears the others
    kill all controllers                nothing is decided until a majority is back
    replace a controller's disk         it starts with an empty directory, and fetches the log from the others

A voter of `controller.quorum.voters` has no directory id (kraft.version 0), so nothing protects the quorum from a voter
that has forgotten its vote and its log. As an operator must, the fault waits until the others have elected a leader and
have the whole log, and no other fault is active meanwhile.

If the brokers are the controllers, too, these faults hit both, and no disk is replaced: the brokers' disks are not
replaced elsewhere either.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterable

from barnabas.cluster import Node
from tests.stress.cluster import BROKERS, StressCluster
from tests.stress.faults.fault import Fault, Link
from tests.stress.faults.mistakes import move_away
from tests.support.waiting import eventually

AGREEMENT_TIMEOUT_MS = 60_000


class ControllerFaults:
    """Causes these faults in a cluster with several controllers. Owner: the thread that runs the stress."""

    def __init__(self, cluster: StressCluster, choice: random.Random, cut: Callable[[list[Link], str], Fault]) -> None:
        """`cut` makes a fault that cuts links."""
        self._cluster = cluster
        self._random = choice
        self._cut = cut
        self.kinds: dict[Callable[[], Fault], int] = {
            self._kill_active_controller: 6,
            self._pause_active_controller: 3,
            self._kill_all_controllers: 1,
        }
        if not cluster.is_combined:
            self.kinds[self._replace_controller_disk] = 2
        if cluster.network is not None:
            self.kinds |= {self._isolate_controller: 4, self._mute_controller: 3}

    def _active(self) -> Node:
        """The active controller; any, if none says that it is active."""
        return self._cluster.active_controller() or self._random.choice(self._cluster.controllers)

    def _kill_active_controller(self) -> Fault:
        node = self._active()
        return self._killed([node], f"kill the active controller, {node.name}")

    def _kill_all_controllers(self) -> Fault:
        return self._killed(self._cluster.controllers, "kill all controllers")

    def _killed(self, nodes: list[Node], what: str) -> Fault:
        def begin() -> None:
            for node in nodes:
                self._cluster.stop_node(node, signal.SIGKILL)

        def end() -> None:
            for node in nodes:
                self._cluster.start_node(node)

        return Fault(what, frozenset(node.node_id for node in nodes), begin, end)

    def _pause_active_controller(self) -> Fault:
        node = self._active()
        return Fault(
            f"pause the active controller, {node.name}",
            frozenset({node.node_id}),
            lambda: self._cluster.signal_node(node, signal.SIGSTOP),
            lambda: self._cluster.signal_node(node, signal.SIGCONT),
        )

    def _isolate_controller(self) -> Fault:
        node = self._active()
        links = [link for other in self._others(node) for link in ((node.node_id, other), (other, node.node_id))]
        return self._cut(links, f"isolate {node.name}")

    def _mute_controller(self) -> Fault:
        node = self._active()
        return self._cut([(node.node_id, other) for other in self._others(node)], f"mute {node.name}")

    def _others(self, node: Node) -> Iterable[int]:
        return [each for each in self._cluster.nodes if each != node.node_id]

    def _replace_controller_disk(self) -> Fault:
        cluster, node = self._cluster, self._random.choice(self._cluster.controllers)
        others = [each for each in cluster.controllers if each is not node]

        def begin() -> None:
            self._await_agreement(cluster.controllers)
            cluster.stop_node(node, signal.SIGKILL)
            move_away(node.directory / "data")
            self._await_agreement(others)
            cluster.format_controllers()
            cluster.start_node(node)

        def end() -> None:
            self._await_agreement(cluster.controllers)

        impaired = frozenset({*range(BROKERS), *(each.node_id for each in cluster.controllers)})
        return Fault(f"replace the disk of {node.name}", impaired, begin, end, is_exclusive=True)

    def _await_agreement(self, controllers: Iterable[Node]) -> None:
        """Wait until one of these leads, and the others have all of the log that it has now."""
        ids = {node.node_id for node in controllers}
        wanted = -1

        def has_whole_log() -> bool:
            nonlocal wanted
            ends = self._cluster.controller_log_ends()
            if not ids <= ends.keys():
                return False
            if wanted < 0:
                wanted = max(ends.values())
            return all(ends[each] >= wanted for each in ids)

        eventually(f"controllers {sorted(ids)} have the whole log", has_whole_log, AGREEMENT_TIMEOUT_MS)
