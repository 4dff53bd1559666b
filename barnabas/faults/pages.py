"""The HTTP pages of a cluster's nodes: finding them, and sending requests to them."""

from __future__ import annotations

import http.client
import json
import signal
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from barnabas.cluster import ClusterError, LocalCluster
from barnabas.common.pages.page_access import OPEN, Access, of_directory, of_environment
from barnabas.common.pages.page_client import UNAUTHORIZED
from barnabas.common.pages.page_client import ask as ask_page
from barnabas.common.processes.cluster_file import read_cluster_file
from barnabas.control import ask
from barnabas.faults.definition import FaultError

TIMEOUT_S: Final = 10.0
HOST: Final = "127.0.0.1"
NOT_FOUND: Final = 404
OFF: Final = frozenset({404, 405})  # the status, without JSON, of a process without fault injection
SIGNALS_THAT_END: Final = {"kill": signal.SIGKILL, "stop": signal.SIGTERM}
SIGNALS_THAT_DO_NOT: Final = {"pause": signal.SIGSTOP, "resume": signal.SIGCONT}


class FaultsUnavailableError(ConnectionError):
    """A node does not answer, or has fault injection disabled: the reason in one line."""


class NodeSilentError(FaultsUnavailableError):
    """A node does not answer: its process has ended or is paused."""


class NodePage:
    """The page of one process."""

    def __init__(self, node_id: int, role: str, host: str, port: int, access: Access = OPEN) -> None:
        self.node_id = node_id
        self.role = role
        self.host = host
        self.port = port
        self.access = access

    @property
    def name(self) -> str:
        """The name of the node, as in its directory: `broker-0`."""
        return f"{self.role}-{self.node_id}"

    def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Send a request and return the answer. Raises FaultError if it is refused, FaultsUnavailableError."""
        return self._checked(*self._ask(method, path, body))

    def _checked(self, status: int, answer: dict[str, Any]) -> dict[str, Any]:
        if status >= 400:
            raise FaultError(str(answer.get("error", f"{self.name} answers with status {status}")))
        return answer

    def find(self, method: str, path: str) -> dict[str, Any] | None:
        """Send a request; return the answer, or None if the resource does not exist. Raises as `ask` does."""
        status, answer = self._ask(method, path, None)
        return None if status == NOT_FOUND and answer else self._checked(status, answer)

    def _ask(self, method: str, path: str, body: object) -> tuple[int, dict[str, Any]]:
        if self.port <= 0:
            raise FaultsUnavailableError(f"{self.name} has no metrics page for faults: set barnabas.metrics.port")
        text = None if body is None else json.dumps(body)
        try:
            response = ask_page(self.host, self.port, method, path, self.access, timeout_s=TIMEOUT_S, body=text)
        except (OSError, http.client.HTTPException) as error:
            raise NodeSilentError(f"{self.name} does not answer at {self.host}:{self.port}: {error}") from error
        if response.status == UNAUTHORIZED:
            raise FaultsUnavailableError(f"{self.name} asks for other credentials than it was given")
        answer = response.fields()
        if response.status in OFF and not answer:
            raise FaultsUnavailableError(f"{self.name} accepts no faults: start it with barnabas.faults.enable=true")
        return response.status, answer


@runtime_checkable
class Target(Protocol):
    """A cluster on which faults can be added."""

    def pages(self) -> dict[int, NodePage]:
        """Return the pages of the running nodes, by node id."""

    def ids(self) -> frozenset[int] | None:
        """Return the ids of all nodes, running or not; None if only running ones are known."""

    def act(self, action: str, node_id: int) -> str:
        """Act on a process with one of PROCESS_ACTIONS; return a line about it. Raises ClusterError."""


class LocalTarget:
    """A `LocalCluster` of this process."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    def pages(self) -> dict[int, NodePage]:
        """See Target."""
        return {
            node.node_id: NodePage(node.node_id, node.role, node.host, node.metrics_port, self._cluster.page_access)
            for node in self._cluster.nodes.values()
            if node.is_running
        }

    def ids(self) -> frozenset[int]:
        """See Target."""
        return frozenset(self._cluster.nodes)

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
            raise ClusterError(f"'{action}' is not an action on a process")
        return f"{node.name}: {action}"


class DirectoryTarget:
    """The cluster that runs on a directory, also when another process started it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def pages(self) -> dict[int, NodePage]:
        """See Target."""
        content = read_cluster_file(self.directory)
        if content is None:
            raise FaultsUnavailableError(f"no cluster runs in {self.directory}")
        found = {}
        access = of_directory(self.directory)
        for process in content["processes"]:
            page = NodePage(process["id"], process["role"], HOST, process["metrics_port"], access)
            if Path(f"/proc/{process['pid']}").exists():
                found[page.node_id] = page
        return found

    def ids(self) -> frozenset[int]:
        """See Target."""
        content = read_cluster_file(self.directory)
        return frozenset() if content is None else frozenset(process["id"] for process in content["processes"])

    def act(self, action: str, node_id: int) -> str:
        """See Target; the supervisor acts."""
        return ask(self.directory, action, node_id)


class AddressTarget:
    """Processes that are known by the addresses of their pages; the environment has the credential for them."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses
        try:
            self._access = of_environment(can_change=True)
        except ValueError as error:
            raise FaultError(str(error)) from None

    def ids(self) -> None:
        """See Target."""
        return

    def pages(self) -> dict[int, NodePage]:
        """See Target; asks each page for its node id and role."""
        found = {}
        for address in self._addresses:
            access = self._access._replace(scheme="https" if address.startswith("https://") else "http")
            host, _, port = address.rpartition("://")[2].partition("/")[0].rpartition(":")
            if not host or not port.isdecimal():
                raise FaultError(f"{address!r} is not the HOST:PORT of a metrics page")
            page = NodePage(-1, "process", host.strip("[]"), int(port), access)
            answer = page.ask("GET", "/faults")
            found[answer["node"]] = NodePage(answer["node"], answer["role"], page.host, page.port, access)
        return found

    def act(self, action: str, node_id: int) -> str:
        """See Target."""
        raise ClusterError(f"{action} needs the cluster or its directory: an address does not identify a process")


def target_of(target: object) -> Target:
    """Return the cluster that a user names. Raises FaultError for anything else."""
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
    raise FaultError(f"{target!r} is not a cluster: give a LocalCluster, its directory, or addresses of metrics pages")
