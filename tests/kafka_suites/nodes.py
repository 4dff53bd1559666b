"""The nodes of one cluster of a test: `NodesProgram.java` starts this program and writes a request a line.

Request and answer are JSON. The program ends, and its nodes with it, when its input does.

| request | does |
|---|---|
| `{"do": "plan", "cluster": {...}}` | chooses ports and directories; answers `{"nodes": [...]}` |
| `{"do": "start"}` | starts what was planned, with `"properties": {...}` as defaults; waits until clients can use it |
| `{"do": "add_broker", "id": 0, "properties": {...}}` | plans a broker with these properties; answers with its ports |
| `{"do": "start_broker", "id": 0}` | starts a broker that was added or stopped, and waits until clients can use it |
| `{"do": "stop_broker", "id": 0}` | a controlled shutdown |
| `{"do": "stop"}` | kills all nodes |

It runs as a script with `python -P`, so that it starts what is installed.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from barnabas.client.client_properties import ClientProperties
from barnabas.client.connection import Connect, NodeConnection
from barnabas.cluster.directory import ClusterDirectory
from barnabas.cluster.errors import ClusterError, ProcessDiedError
from barnabas.cluster.node import Node
from barnabas.cluster.processes import await_end, signal_process, start_process
from barnabas.cluster.readiness import await_nodes
from barnabas.common.clock import SystemClock
from barnabas.common.deadline import Deadline
from barnabas.common.ids import random_uuid, uuid_to_string
from barnabas.common.processes import interpreter
from barnabas.controller.metadata.durable_end import TOPIC_PARTITION
from barnabas.controller.metadata.opened_log import FORMATTED
from barnabas.controller.metadata.snapshot import encode_snapshot
from barnabas.controller.raft.batches import control_record
from barnabas.controller.raft.raft_config import KRAFT_VERSIONS
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterNode, VoterSet
from barnabas.protocol.data.control_records import KRaftVersionRecord

HOST: Final = "localhost"  # as in the addresses of Kafka's own test clusters
FIRST_CONTROLLER: Final = 3000  # likewise
START_TIMEOUT_MS: Final = 120_000
STOP_TIMEOUT_MS: Final = 60_000
ADMIN: Final = ("plain-admin", "plain-admin-secret")  # the users of Kafka's test clusters
USER: Final = ("plain-user1", "plain-user1-secret")
LOGIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
PROTOCOLS: Final = "listener.security.protocol.map"
PERSISTER: Final = "group.share.persister.class.name"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True)
class Wanted:
    """What a test asks of its cluster: the values of a ClusterConfig."""

    cluster_id: str
    brokers: int
    controllers: int
    disks: int
    combined: bool
    standalone: bool  # the first controller is the only voter of a quorum whose voters can change
    broker_listener: str
    broker_protocol: str
    controller_listener: str
    controller_protocol: str
    properties: dict[str, str]
    properties_of: dict[str, dict[str, str]]  # by node id
    bootstrap: str  # the directory with the bootstrap.checkpoint of the controllers


@dataclass
class Nodes:
    """The processes of one cluster."""

    directory: Path
    wanted: Wanted
    nodes: dict[int, Node] = field(default_factory=dict)
    given: dict[int, dict[str, str]] = field(default_factory=dict)  # all properties of the brokers that were added
    defaults: dict[str, str] = field(default_factory=dict)  # of the nodes that `start` starts
    ports: list[int] = field(default_factory=list)
    claim: ClusterDirectory = field(init=False)
    clock: SystemClock = field(default_factory=SystemClock)

    def __post_init__(self) -> None:
        self.claim = ClusterDirectory(self.directory)
        for number in range(self.wanted.brokers):
            both = self.wanted.combined and number < self.wanted.controllers
            node = Node("broker", number, self._port(), -1, self.directory / f"broker-{number}")
            node.controller_port = self._port() if both else 0
            self.nodes[number] = node
        for number in self._ids_of_controllers_alone():
            node = Node("controller", number, self._port(), -1, self.directory / f"controller-{number}")
            self.nodes[number] = node

    def _port(self) -> int:
        self.ports.append(self.claim.draw_port(self.ports))
        return self.ports[-1]

    def _ids_of_controllers_alone(self) -> range:
        """Combined nodes count from 0: controllers beyond the number of brokers go on there."""
        if self.wanted.combined:
            return range(self.wanted.brokers, self.wanted.controllers)
        return range(FIRST_CONTROLLER, FIRST_CONTROLLER + self.wanted.controllers)

    @property
    def controllers(self) -> list[Node]:
        """The nodes that are controllers."""
        return [node for node in self.nodes.values() if node.is_controller]

    def properties(self, node: Node) -> dict[str, str]:
        """The server properties of a node, in the order of Kafka's test clusters: later ones count."""
        if node.node_id in self.given:
            return self.given[node.node_id]
        wanted = self.wanted
        listeners = [] if node.role == "controller" else [f"{wanted.broker_listener}://{HOST}:{node.port}"]
        if node.is_controller:
            port = node.controller_port or node.port
            listeners.append(f"{wanted.controller_listener}://{HOST}:{port}")
        protocols = f"{wanted.broker_listener}:{wanted.broker_protocol}"
        protocols += f",{wanted.controller_listener}:{wanted.controller_protocol}"
        defaults = {
            PROTOCOLS: protocols,
            "listeners": ",".join(listeners),
            "inter.broker.listener.name": wanted.broker_listener,
            "controller.listener.names": wanted.controller_listener,
            "log.cleaner.dedupe.buffer.size": "2097152",
            "unstable.feature.versions.enable": "true",
            "unstable.api.versions.enable": "true",
            **self._security(node),
        }
        assigned = {
            "process.roles": "broker,controller" if node.controller_port else node.role,
            "node.id": str(node.node_id),
            "log.dirs": ",".join(map(str, self.log_directories(node))),
            "barnabas.metrics.port": "-1",
        }
        if node.is_controller:
            assigned["metadata.log.dir"] = str(self._metadata_directory(node))
        addresses = {each.node_id: f"{HOST}:{each.controller_port or each.port}" for each in self.controllers}
        if wanted.standalone:
            assigned["controller.quorum.bootstrap.servers"] = ",".join(addresses.values())
        else:
            assigned["controller.quorum.voters"] = ",".join(f"{number}@{at}" for number, at in addresses.items())
        if wanted.properties.get(PERSISTER) == "":  # Kafka keeps no state of share groups then, and needs no topic
            defaults |= {"share.coordinator.state.topic.replication.factor": "1"}
            defaults |= {"share.coordinator.state.topic.min.isr": "1"}
        own = dict(wanted.properties_of.get(str(node.node_id), {}))
        if own.get("listeners", "").endswith(":0"):  # nobody would know the port that the system chooses
            own["listeners"] = defaults["listeners"]
        return {**self._with_defaults(defaults), **wanted.properties, **assigned, **own}

    def _with_defaults(self, defaults: dict[str, str]) -> dict[str, str]:
        """The defaults of Kafka's test clusters and of the request `start`."""
        both = {**defaults, **self.defaults}
        pairs = [pair.strip() for each in (defaults, self.defaults) for pair in each.get(PROTOCOLS, "").split(",")]
        both[PROTOCOLS] = ",".join(dict.fromkeys(filter(None, pairs)))
        return both

    def _security(self, node: Node) -> dict[str, str]:
        """The defaults of Kafka's test clusters with SASL_PLAINTEXT, and their users.

        A controller connects to brokers, so it has a login, too; an authorizer only if its own listener has SASL.
        """
        if "SASL_PLAINTEXT" not in (self.wanted.broker_protocol, self.wanted.controller_protocol):
            return {}
        users = "".join(f' user_{name}="{password}"' for name, password in (ADMIN, USER))
        jaas = f'{LOGIN_MODULE} required username="{ADMIN[0]}" password="{ADMIN[1]}"{users};'
        listeners = (self.wanted.broker_listener, self.wanted.controller_listener)
        login = {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": jaas for name in listeners},
        }
        if node.role == "controller" and self.wanted.controller_protocol == "PLAINTEXT":
            return login
        rights = {"allow.everyone.if.no.acl.found": "false", "super.users": f"User:{ADMIN[0]}"}
        return {**login, "authorizer.class.name": AUTHORIZER, **rights}

    def log_directories(self, node: Node) -> list[Path]:
        """The log.dirs of a node."""
        if node.role == "controller":
            return [self._metadata_directory(node)]
        return [node.directory / f"data{number}" for number in range(self.wanted.disks)]

    def _metadata_directory(self, node: Node) -> Path:
        return node.directory / "metadata"

    def plan(self) -> dict[str, Any]:
        """Format the controllers' directories; return what a test may know of each node."""
        for node in self.controllers:
            self._format(node)
        return {"nodes": [self._description(node) for node in self.nodes.values()]}

    def _description(self, node: Node) -> dict[str, Any]:
        return {
            "id": node.node_id,
            "broker": node.role == "broker",
            "controller": node.is_controller,
            "port": node.port if node.role == "broker" else -1,
            "controller_port": (node.controller_port or node.port) if node.is_controller else -1,
            "properties": self.properties(node),
        }

    def _format(self, node: Node) -> None:
        """Write what `kafka-storage format` writes, with the feature levels that the test asks for."""
        directory = self._metadata_directory(node)
        directory.mkdir(parents=True)
        shutil.copy(Path(self.wanted.bootstrap) / "bootstrap.checkpoint", directory)
        directory_id = random_uuid()
        if self.wanted.standalone and node is self.controllers[0]:
            self._write_voter(node, directory_id)
        content = f"version=1\ncluster.id={self.wanted.cluster_id}\nnode.id={node.node_id}\n"
        content += f"directory.id={uuid_to_string(directory_id)}\n"
        (directory / "meta.properties").write_text(content)

    def _write_voter(self, node: Node, directory_id: bytes) -> None:
        """Write the snapshot that has this controller as the only voter."""
        listener = Listener(self.wanted.controller_listener, HOST, node.controller_port or node.port)
        voters = VoterSet([VoterNode(ReplicaKey(node.node_id, directory_id), (listener,), KRAFT_VERSIONS)])
        now_ms = self.clock.wall_ms()
        version = KRaftVersionRecord(version=0, kraft_version=KRAFT_VERSIONS[1])
        control = [control_record(record, now_ms) for record in (version, voters.to_record())]
        path = self._metadata_directory(node) / str(TOPIC_PARTITION)
        path.mkdir()
        (path / FORMATTED).write_bytes(encode_snapshot(0, (), now_ms, control))

    def start(self, defaults: dict[str, str] | None = None) -> None:
        """Start all nodes but those that were added, and wait until clients can use them."""
        self.defaults = defaults or {}
        planned = [node for node in self.nodes.values() if node.node_id not in self.given]
        for node in sorted(planned, key=lambda node: not node.is_controller):
            self._start(node)
        self._await(planned)

    def add_broker(self, number: int, properties: dict[str, str]) -> dict[str, Any]:
        """Plan a broker with all its properties; each of its listeners with port 0 gets one."""
        ports: dict[str, int] = {}
        listeners = []
        for listener in properties["listeners"].split(","):
            at, _, port = listener.strip().rpartition(":")
            name = at.partition("://")[0]
            ports[name] = int(port) or self._port()
            listeners.append(f"{at}:{ports[name]}")
        metrics_port = self._port()
        controllers = ",".join(f"{each.node_id}@{HOST}:{each.port}" for each in self.controllers)
        assigned = {
            "listeners": ",".join(listeners),
            "controller.quorum.voters": controllers,
            "barnabas.metrics.port": str(metrics_port),
        }
        self.given[number] = {**properties, **assigned}
        first = next(iter(ports.values()))
        self.nodes[number] = Node("broker", number, first, metrics_port, self.directory / f"broker-{number}")
        return {**self._description(self.nodes[number]), "ports": ports}

    def start_broker(self, number: int) -> None:
        """Start a broker that was stopped, and wait until clients can use it."""
        self._start(self.nodes[number])
        self._await([self.nodes[number]])

    def _start(self, node: Node) -> None:
        command = [*interpreter.command(f"barnabas.{node.program}.main"), str(node.directory / "server.properties")]
        start_process(node, self.properties(node), command)

    def _await(self, nodes: list[Node]) -> None:
        added = [node for node in nodes if node.node_id in self.given]
        for node in added:  # they can have any security, but every broker's page tells
            self._await_page(node)
        nodes = [node for node in nodes if node not in added]
        running = {node.node_id for node in self.nodes.values() if node.role == "broker" and node.is_running}
        if self.wanted.broker_protocol != self.wanted.controller_protocol:  # one login cannot ask both
            nodes = [node for node in nodes if node.role == "broker"]
        await_nodes(nodes, running, START_TIMEOUT_MS, self.clock, connect=self._connect())

    def _await_page(self, node: Node) -> None:
        deadline = Deadline(self.clock, START_TIMEOUT_MS)
        while not _is_ready(node.metrics_port):
            if not node.is_running:
                raise ProcessDiedError(f"{node.name} ended at start: {node.last_words()}")
            if deadline.is_expired():
                raise ProcessDiedError(f"{node.name} was not ready after {START_TIMEOUT_MS} ms")
            time.sleep(0.05)

    def _connect(self) -> Connect | None:
        login = secured_login(self.wanted)
        return (
            None if login is None else partial(NodeConnection, security=ClientProperties(login, self.clock).security())
        )

    def stop_broker(self, number: int) -> None:
        """Shut a broker down in order."""
        node = self.nodes[number]
        if node.is_running:
            signal_process(node, signal.SIGTERM, self.clock)
            await_end(node, Deadline(self.clock, STOP_TIMEOUT_MS))

    def stop(self) -> None:
        """Kill all nodes."""
        running = [node for node in self.nodes.values() if node.is_running]
        for node in running:
            signal_process(node, signal.SIGKILL, self.clock)
        for node in running:
            await_end(node, Deadline(self.clock, STOP_TIMEOUT_MS))
        self.claim.release()


def _is_ready(metrics_port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics_port}/readyz", timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def secured_login(wanted: Wanted) -> dict[str, str] | None:
    """The properties of a client that may ask every node whether it is ready; None in plain text."""
    if ":SSL" in wanted.properties.get("listener.security.protocol.map", ""):
        own = {key: text for key, text in wanted.properties.items() if key.startswith("ssl.")}
        # Why no check of the name: the certificates are for localhost, and nodes are asked at 127.0.0.1.
        return {**own, "security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    jaas = f'{LOGIN_MODULE} required username="{ADMIN[0]}" password="{ADMIN[1]}";'
    if wanted.broker_protocol == "PLAINTEXT":
        jaas = wanted.properties.get(f"listener.name.{wanted.broker_listener.lower()}.plain.sasl.jaas.config", "")
        if not jaas:
            return None
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}


def main(directory: Path) -> None:
    """Answer the requests of stdin on stdout."""
    nodes: Nodes | None = None
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if request["do"] == "plan":
                nodes = Nodes(directory, Wanted(**request["cluster"]))
            assert nodes is not None
            print(json.dumps(_answer(nodes, request)), flush=True)
    finally:
        if nodes is not None:
            nodes.stop()


def _answer(nodes: Nodes, request: dict[str, Any]) -> dict[str, Any]:
    arguments = [request[key] for key in ("id", "properties") if key in request]
    try:
        return getattr(nodes, request["do"])(*arguments) or {}
    except ClusterError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
