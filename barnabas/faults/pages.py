"""Where the nodes of a cluster are asked: the HTTP page of each, and how they are found."""

from __future__ import annotations

import http.client
import json
import signal
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from barnabas.cluster import ClusterError, LocalCluster
from barnabas.common.cluster_file import read_cluster_file
from barnabas.control import ask
from barnabas.faults.definition import FaultError

TIMEOUT_S: Final = 10.0
HOST: Final = "127.0.0.1"
OFF: Final = frozenset({404, 405})  # without a word of JSON: the answer of a page that takes no faults
SIGNALS_THAT_END: Final = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}
SIGNALS_THAT_DO_NOT: Final = {"pause": signal.SIGSTOP, "resume": signal.SIGCONT}


class FaultsUnavailableError(ConnectionError):
    """A node does not answer, or does not take faults: one line that says why."""


class NodeSilentError(FaultsUnavailableError):
    """A node does not answer: it is gone, or stands still."""


class NodePage:
    """The page of one process."""

    def __init__(self, node_id: int, role: str, host: str, port: int) -> None:
        self.node_id = node_id
        self.role = role
        self.host = host
        self.port = port

    @property
    def name(self) -> str:
        """`broker-0`, as people and directories call it."""
        return f"{self.role}-{self.node_id}"

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Ask, and return the answer; raises FaultError for what is refused, FaultsUnavailableError."""
        status, answer = self._ask(method, path, body)
        if status >= 400:
            raise FaultError(str(answer.get("error", f"{self.name} answers {status}")))
        return answer

    def find(self, method: str, path: str) -> dict[str, Any] | None:
        """Ask for something that may not be there (any more): None, then. Raises FaultsUnavailableError."""
        status, answer = self._ask(method, path, None)
        return answer if status < 400 else None

    def _ask(self, method: str, path: str, body: Any) -> tuple[int, dict[str, Any]]:
        if self.port <= 0:
            raise FaultsUnavailableError(f"{self.name} has no page that takes faults: set barnabas.metrics.port")
        connection = http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise NodeSilentError(f"{self.name} does not answer at {self.host}:{self.port}: {error}") from error
        finally:
            connection.close()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {}
        if response.status in OFF and not answer:
            raise FaultsUnavailableError(f"{self.name} takes no faults: start it with barnabas.faults.enable=true")
        return response.status, answer if isinstance(answer, dict) else {}


@runtime_checkable
class Target(Protocol):
    """A cluster, as far as faults go."""

    def pages(self) -> dict[int, NodePage]:
        """The pages of the nodes that run, by node id."""

    def act(self, action: str, node_id: int) -> str:
        """Do something to a process: one of PROCESS_ACTIONS. Returns what was done; raises ClusterError."""


class LocalTarget:
    """A `LocalCluster` of this process."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def pages(self) -> dict[int, NodePage]:
        """See Target."""
        return {
            node.node_id: NodePage(node.node_id, node.role, node.host, node.metrics_port)
            for node in self._cluster.nodes.values()
            if node.is_running
        }

    def act(self, action: str, node_id: int) -> str:
        """See Target."""
        cluster = self._cluster
        node = cluster.nodes.get(node_id)
        if node is None:
            raise ClusterError(f"there is no node {node_id}; the ids are {', '.join(map(str, sorted(cluster.nodes)))}")
        if action in SIGNALS_THAT_END:
            cluster.stop_node(node, SIGNALS_THAT_END[action])
        elif action in SIGNALS_THAT_DO_NOT:
            cluster.signal_node(node, SIGNALS_THAT_DO_NOT[action])
        elif action == "start":
            cluster.start_node(node)
            cluster.await_ready(nodes=[node])
        else:
            raise ClusterError(f"'{action}' is no action")
        return f"{node.name}: {action}"


class DirectoryTarget:
    """The cluster that runs on a directory, whoever started it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def pages(self) -> dict[int, NodePage]:
        """See Target."""
        content = read_cluster_file(self.directory)
        if content is None:
            raise FaultsUnavailableError(f"no cluster runs in {self.directory}")
        found = {}
        for process in content["processes"]:
            page = NodePage(process["id"], process["role"], HOST, process["metrics_port"])
            if Path(f"/proc/{process['pid']}").exists():
                found[page.node_id] = page
        return found

    def act(self, action: str, node_id: int) -> str:
        """See Target; the supervisor does it."""
        return ask(self.directory, action, node_id)


class AddressTarget:
    """Processes known by the addresses of their pages."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    def pages(self) -> dict[int, NodePage]:
        """See Target; asks each who it is."""
        found = {}
        for address in self._addresses:
            host, _, port = address.removeprefix("http://").partition("/")[0].rpartition(":")
            if not host or not port.isdecimal():
                raise FaultError(f"{address!r} is no HOST:PORT of a metrics page")
            page = NodePage(-1, "process", host.strip("[]"), int(port))
            answer = page.ask("GET", "/faults")
            found[answer["node"]] = NodePage(answer["node"], answer["role"], page.host, page.port)
        return found

    def act(self, action: str, node_id: int) -> str:
        """See Target."""
        raise ClusterError(f"{action} needs the cluster itself, or its directory: addresses lead to no process")


def target_of(target: Any) -> Target:
    """What a person names a cluster by."""
    if isinstance(target, Target):
        return target
    if isinstance(target, LocalCluster):
        return LocalTarget(target)
    if isinstance(target, Path):
        return DirectoryTarget(target)
    if isinstance(target, str):
        if Path(target).is_dir():
            return DirectoryTarget(Path(target))
        return AddressTarget([part.strip() for part in target.split(",") if part.strip()])
    raise FaultError(f"{target!r} is no cluster: a LocalCluster, its directory, or addresses of metrics pages are")
