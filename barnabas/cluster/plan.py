"""The plan of a local cluster: the addresses, ports and server properties of each node.

Nothing here starts a process or writes a file.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.node import Node
from barnabas.common.processes.ports import HOST, refusal

if TYPE_CHECKING:
    from barnabas.cluster.security.cluster_security import ClusterSecurity

CONTROLLER_ID: Final = 100
MAX_REPLICAS: Final = 3  # of internal topics, on one machine
MAX_IN_SYNC: Final = 2

VOTERS_KEY: Final = "controller.quorum.voters"
#: `config` must not set these: the plan assigns them.
RESERVED_KEYS: Final = frozenset(
    {
        "process.roles",
        "node.id",
        "broker.id",
        "controller.quorum.bootstrap.servers",
        VOTERS_KEY,
        "controller.listener.names",
    }
)
INTER_BROKER_KEY: Final = "inter.broker.listener.name"
BROKER_ONLY_KEYS: Final = frozenset(
    {"listeners", "advertised.listeners", INTER_BROKER_KEY, "security.inter.broker.protocol"}
)
LISTENER_PREFIX: Final = "listener.name."
#: Once one of these is set, the configuration decides where nodes reach each other; no INTERNAL listener is added.
LISTENER_KEYS: Final = BROKER_ONLY_KEYS | {"listener.security.protocol.map"}
PLAINTEXT: Final = "PLAINTEXT"
INTERNAL: Final = "INTERNAL"  # the listener for nodes, beside the one for clients
DIRECTORY_KEYS: Final = frozenset({"log.dirs", "log.dir", "metadata.log.dir"})
METRICS_PORT_KEY: Final = "barnabas.metrics.port"
PEERS_KEY: Final = "barnabas.live.peers"
CLOCK_KEY: Final = "barnabas.clock.enable"
FAULTS_KEY: Final = "barnabas.faults.enable"
CLOCK_FILE_KEY: Final = "barnabas.clock.file"
CLOCK_FILE: Final = "clock"


@dataclass(frozen=True, slots=True)
class Plan:
    """What each node of a local cluster gets.

    `config` holds Kafka server properties for every process; they override the defaults for one machine. Where a value
    can serve only one process, each process gets its own: the ports in `listeners` and `advertised.listeners` count up
    from the first broker's, and so does `barnabas.metrics.port` (the controllers' are the last). A log directory gets a
    subdirectory for each process.
    """

    directory: Path
    broker_ids: range
    first_port: int  # of the brokers; 0: free ports
    config: Mapping[str, str]
    host_of: Callable[[int], str]  # node id -> the address it listens on
    draw_port: Callable[[Collection[int]], int]  # a free port that is not among these
    security: ClusterSecurity | None = None  # None: PLAINTEXT
    controller_count: int = 1
    is_combined: bool = False  # every broker is a controller, too, and there are no others

    @property
    def controller_ids(self) -> range:
        """The ids of the controllers."""
        if self.is_combined:
            return self.broker_ids
        return range(CONTROLLER_ID, CONTROLLER_ID + self.controller_count)

    def check(self) -> None:
        """Raise ClusterError if the configuration or the ids cannot work."""
        reserved = sorted(RESERVED_KEYS & self.config.keys())
        if reserved:
            raise ClusterError(f"{reserved[0]} cannot be set here: the cluster assigns it to each process")
        taken = sorted(LISTENER_KEYS & self.config.keys()) if self.security is not None else []
        if taken:
            raise ClusterError(f"{taken[0]} cannot be set with --security, which secures every listener itself")
        taken_ids = [] if self.is_combined else sorted(set(self.controller_ids) & set(self.broker_ids))
        if taken_ids:
            raise ClusterError(f"{taken_ids[0]} is a controller's id: no broker can have it")

    def make_nodes(self) -> dict[int, Node]:
        """Return the nodes with their addresses, by node id, the controllers first. Raises ClusterError."""
        listeners = self.config.get("listeners")
        if listeners is not None:
            brokers = [_client_address(listeners, index) for index in range(len(self.broker_ids))]
        else:
            brokers = list(zip(map(self.host_of, self.broker_ids), self._broker_ports(), strict=True))
        taken = {port for _, port in brokers}
        apart = () if self.is_combined else self.controller_ids
        count = len(self.broker_ids) + len(apart)
        metrics = self._metrics_ports([self.draw_port(taken) for _ in range(count)])
        nodes = {}
        for controller_id, metrics_port in zip(apart, metrics[len(self.broker_ids) :], strict=True):
            address = (self.host_of(controller_id), self.draw_port(taken))
            nodes[controller_id] = self._node("controller", controller_id, address, metrics_port)
        for broker_id, address, metrics_port in zip(self.broker_ids, brokers, metrics, strict=False):
            nodes[broker_id] = self._node("broker", broker_id, address, metrics_port)
            if not LISTENER_KEYS & self.config.keys():
                nodes[broker_id].internal_port = self.draw_port(taken)
            if self.is_combined:
                nodes[broker_id].controller_port = self.draw_port(taken)
        return nodes

    def _broker_ports(self) -> Iterable[int]:
        if self.first_port == 0:
            return [self.draw_port(()) for _ in self.broker_ids]
        ports = range(self.first_port, self.first_port + len(self.broker_ids))
        for broker_id, port in zip(self.broker_ids, ports, strict=True):
            error = refusal(port, self.host_of(broker_id))
            if error is not None:
                raise ClusterError(f"{_port_refusal(port, error)}: choose another with --port")
        return ports

    def _metrics_ports(self, spare: list[int]) -> list[int]:
        """Return the ports of the metrics pages, the controllers' last; `spare` unless the configuration has some."""
        text = self.config.get(METRICS_PORT_KEY, "0")
        try:
            first = int(text)
        except ValueError as error:
            raise ClusterError(f"Invalid value {text} for configuration {METRICS_PORT_KEY}: not a number") from error
        if first == 0:
            return spare
        return [first + index if first > 0 else first for index in range(len(spare))]

    def _node(self, role: str, node_id: int, address: tuple[str, int], metrics_port: int) -> Node:
        host, port = address
        return Node(role, node_id, port, metrics_port, self.directory / f"{role}-{node_id}", host)

    def properties(self, node: Node, nodes: Mapping[int, Node]) -> dict[str, str]:
        """Return the server properties of one of these nodes."""
        controllers = [nodes[controller_id] for controller_id in self.controller_ids]
        replicas = str(min(MAX_REPLICAS, len(self.broker_ids)))
        in_sync = str(min(MAX_IN_SYNC, len(self.broker_ids)))
        clients = PLAINTEXT if self.security is None else self.security.client_listener
        listener = "CONTROLLER" if node.role == "controller" else clients
        properties = {
            "process.roles": "broker,controller" if node.controller_port else node.role,
            "node.id": str(node.node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://{node.host}:{node.port}",
            "log.dirs": str(node.directory / "data"),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
        }
        if len(controllers) == 1:
            properties["controller.quorum.bootstrap.servers"] = controllers[0].controller_address
        else:
            properties[VOTERS_KEY] = ",".join(f"{each.node_id}@{each.controller_address}" for each in controllers)
        if node.internal_port:
            properties["listeners"] += f",{INTERNAL}://{node.host}:{node.internal_port}"
            properties[INTER_BROKER_KEY] = INTERNAL
            properties["listener.security.protocol.map"] = ",".join(
                f"{name}:PLAINTEXT" for name in ("CONTROLLER", PLAINTEXT, INTERNAL)
            )
            properties[f"listener.name.{INTERNAL.lower()}.num.network.threads"] = "1"
        if self.security is not None:
            properties |= self.security.properties(node, [each.name for each in nodes.values()], INTERNAL)
            properties |= self.security.page_properties(node.name, self.config)
        for key, value in self.config.items():
            if node.role == "broker" or self._concerns_controller(key):
                properties[key] = self._own_value(node, key, value)
        if node.controller_port:
            properties["listeners"] += f",CONTROLLER://{node.controller_address}"
        properties[METRICS_PORT_KEY] = str(node.metrics_port)
        properties.setdefault(PEERS_KEY, page_addresses(nodes.values()))
        if self.config.get(CLOCK_KEY, "").lower() == "true":
            properties.setdefault(CLOCK_FILE_KEY, str(self.directory / CLOCK_FILE))
        return properties

    def _concerns_controller(self, key: str) -> bool:
        """Return whether a setting of the whole cluster is for the controller: those of clients' listeners are not."""
        if key in BROKER_ONLY_KEYS:
            return False
        between_brokers = self.config.get(INTER_BROKER_KEY, "") if LISTENER_KEYS & self.config.keys() else INTERNAL
        if not between_brokers or not key.startswith(LISTENER_PREFIX):
            return True
        return key.startswith(tuple(f"{LISTENER_PREFIX}{name}." for name in ("controller", between_brokers.lower())))

    def _own_value(self, node: Node, key: str, value: str) -> str:
        """Return the value that a setting of the whole cluster has for one process."""
        if key in ("listeners", "advertised.listeners"):
            return ports_up(value, node.node_id - self.broker_ids.start)
        if key in DIRECTORY_KEYS:
            return ",".join(str(self.directory / part.strip() / node.name) for part in value.split(","))
        if key == "listener.security.protocol.map" and "CONTROLLER:" not in value:
            return f"CONTROLLER:PLAINTEXT,{value}"
        return value


def metadata_directory(properties: Mapping[str, str]) -> str:
    """Return the directory of a controller's metadata log."""
    text = properties.get("metadata.log.dir") or properties.get("log.dirs") or properties["log.dir"]
    return text.split(",")[0].strip()


def page_addresses(nodes: Iterable[Node]) -> str:
    """Return `NAME=HOST:PORT,...` of the nodes' pages, which the live page offers as a menu."""
    named = [(node.name, node) for node in nodes]
    named += [(f"controller-{node.node_id}", node) for _, node in named if node.controller_port]
    return ",".join(f"{name}={node.host}:{node.metrics_port}" for name, node in named if node.metrics_port > 0)


def ports_up(listeners: str, count: int) -> str:
    """Return the listeners with each port raised by `count`; port 0, and text that is not a port, stay."""
    shifted = []
    for listener in listeners.split(","):
        address, separator, port = listener.strip().rpartition(":")
        if separator and port.isdecimal() and int(port):
            shifted.append(f"{address}:{int(port) + count}")
        else:
            shifted.append(listener.strip())
    return ",".join(shifted)


def _client_address(listeners: str, index: int) -> tuple[str, int]:
    """Return the address at which clients reach a broker with configured `listeners`: the first of them."""
    host, _, port = ports_up(listeners, index).split(",")[0].partition("://")[2].rpartition(":")
    if not port.isdecimal() or int(port) == 0:
        raise ClusterError(f"listeners={listeners}: expected NAME://HOST:PORT with a fixed port")
    return (HOST if host in ("", "0.0.0.0", "[::]") else host.strip("[]")), int(port)


def _port_refusal(port: int, error: OSError) -> str:
    """Describe why a listener cannot have a port."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is taken"
    if error.errno == errno.EACCES:
        return f"port {port} may not be opened by this user ({error.strerror}; ports below 1024 are usually for root)"
    return f"port {port} cannot be opened ({error.strerror})"
