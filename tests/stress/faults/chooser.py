"""Faults of the cluster, chosen at random from a seed and undone after a while.

A fault impairs nodes (their process is dead or paused) or links. At most two are active at once, never of the same node
or link. The seed determines the kinds, their order and their duration. It does not determine the exact moment, nor the
leaders at that moment.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Collection, Sequence
from functools import partial

from tests.stress.cluster import BROKERS, PARTITIONS, StressCluster, StressTarget
from tests.stress.faults.controllers import ControllerFaults
from tests.stress.faults.fault import Fault, Link
from tests.stress.faults.mistakes import Mistakes
from tests.support.security_faults import SecurityFault, SecurityFaults

HOLD_MS = (100, 4_500)  # around both session timeout and replica.lag.time.max.ms


class Faults:
    """Chooses faults for a cluster.

    `leader_of` returns the present leader of a partition. `only` lists the kinds to choose from (empty: all).
    """

    def __init__(
        self,
        cluster: StressTarget,
        choice: random.Random,
        leader_of: Callable[[int], int],
        only: Collection[str] = (),
        security: SecurityFaults | None = None,
    ) -> None:
        self._cluster = cluster
        self._random = choice
        self._leader_of = leader_of
        self._controllers = sorted(node.node_id for node in cluster.nodes.values() if node.role == "controller")
        self._all = [*range(BROKERS), *self._controllers]
        self._kinds: dict[Callable[[], Fault], int] = {
            self._kill_leader: 6,
            self._kill_any_broker: 2,
            self._pause_broker: 5,
            self._stop_broker: 3,
        }
        if self._controllers:  # else the brokers are the controllers, too
            self._kinds |= {self._kill_controller: 3, self._pause_controller: 1}
        if cluster.network is not None:
            self._kinds |= {self._cut_one_way: 4, self._cut_both_ways: 3, self._isolate: 3}
        if isinstance(cluster, StressCluster):
            self._kinds |= Mistakes(cluster, choice).kinds
            if len(cluster.controllers) > 1:
                self._kinds |= ControllerFaults(cluster, choice, self._cut).kinds
        if security is not None:
            self._kinds |= {partial(_of_security, kind): weight for kind, weight in security.kinds.items()}
        named = {name_of(kind): kind for kind in self._kinds}
        if only:
            self._kinds = {named[name]: self._kinds[named[name]] for name in only}

    def choose(self, active: Sequence[Fault]) -> Fault | None:
        """Draw a fault; None if it impairs a node or link of an active fault."""
        kind = self._random.choices(list(self._kinds), list(self._kinds.values()))[0]
        fault = kind()
        if active and fault.is_exclusive:
            return None
        impaired = frozenset[int | Link]().union(*(other.impaired for other in active))
        return None if fault.impaired & impaired else fault

    def hold_ms(self) -> int:
        """The duration of a fault, drawn at random."""
        return self._random.randint(*HOLD_MS)

    # Processes

    def _kill_leader(self) -> Fault:
        partition = self._random.randrange(PARTITIONS)
        return self._killed(self._leader_of(partition), f"the leader of partition {partition}, ")

    def _kill_any_broker(self) -> Fault:
        return self._killed(self._random.randrange(BROKERS))

    def _kill_controller(self) -> Fault:
        return self._killed(self._random.choice(self._controllers))

    def _killed(self, node_id: int, what: str = "") -> Fault:
        return self._ended(node_id, signal.SIGKILL, f"kill {what}")

    def _stop_broker(self) -> Fault:
        return self._ended(self._random.randrange(BROKERS), signal.SIGTERM, "controlled shutdown of ")

    def _ended(self, node_id: int, number: signal.Signals, what: str) -> Fault:
        cluster, node = self._cluster, self._cluster.nodes[node_id]
        return Fault(
            f"{what}{node.name}",
            frozenset({node_id}),
            lambda: cluster.stop_node(node, number),
            lambda: cluster.start_node(node),
        )

    def _pause_broker(self) -> Fault:
        return self._paused(self._random.randrange(BROKERS))

    def _pause_controller(self) -> Fault:
        return self._paused(self._random.choice(self._controllers))

    def _paused(self, node_id: int) -> Fault:
        cluster, node = self._cluster, self._cluster.nodes[node_id]
        return Fault(
            f"pause {node.name}",
            frozenset({node_id}),
            lambda: cluster.signal_node(node, signal.SIGSTOP),
            lambda: cluster.signal_node(node, signal.SIGCONT),
        )

    # Links

    def _cut_one_way(self) -> Fault:
        source, target = self._random.sample(self._all, 2)
        return self._cut([(source, target)], f"cut {self._name(source)} -> {self._name(target)}")

    def _cut_both_ways(self) -> Fault:
        one, other = self._random.sample(self._all, 2)
        return self._cut([(one, other), (other, one)], f"cut {self._name(one)} <-> {self._name(other)}")

    def _isolate(self) -> Fault:
        """Cut a broker off from the other nodes. Clients still reach it, so it may believe that it leads."""
        broker_id = self._random.randrange(BROKERS)
        others = [node_id for node_id in self._all if node_id != broker_id]
        links = [link for other in others for link in ((broker_id, other), (other, broker_id))]
        return self._cut(links, f"isolate {self._name(broker_id)}")

    def _cut(self, links: list[Link], description: str) -> Fault:
        network = self._cluster.network
        assert network is not None, "links are cut only where there are some"

        def begin() -> None:
            for source, target in links:
                network.cut(source, target)

        def end() -> None:
            for source, target in links:
                network.heal(source, target)

        return Fault(description, frozenset(links), begin, end)

    def _name(self, node_id: int) -> str:
        return self._cluster.nodes[node_id].name


def name_of(kind: Callable[[], Fault]) -> str:
    """The name of a kind of faults, as in --only."""
    function = kind.args[0] if isinstance(kind, partial) else kind
    return str(function.__name__).strip("_")


def _of_security(kind: Callable[[], SecurityFault]) -> Fault:
    """A change of certificates, rights or logins; the nodes that it needs are nobody else's."""
    fault = kind()
    return Fault(fault.description, fault.nodes, fault.begin, fault.end)
