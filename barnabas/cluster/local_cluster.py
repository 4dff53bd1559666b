"""`LocalCluster`: starts, watches and stops the processes of one local cluster."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from barnabas.cluster.directory import ClusterDirectory
from barnabas.cluster.errors import ClusterError
from barnabas.cluster.node import Node
from barnabas.cluster.plan import CLOCK_FILE, CLOCK_KEY, FAULTS_KEY, Plan, metadata_directory
from barnabas.cluster.processes import ask_to_end, await_end, signal_process, start_process
from barnabas.cluster.readiness import await_nodes, never
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.deadline import Deadline
from barnabas.common.pages.page_access import (
    CHANGE_KEY,
    NO_CREDENTIALS,
    OPEN,
    PAGE_KEYS,
    Access,
    Credentials,
    access_of,
    credentials_of,
    new_token,
    write_access,
)
from barnabas.common.processes import interpreter
from barnabas.common.processes.ports import HOST

if TYPE_CHECKING:
    from barnabas.client.connection import Connect
    from barnabas.cluster.security.cluster_security import ClusterSecurity

READY_TIMEOUT_MS: Final = 60_000  # on a busy machine; a process that ends is noticed at once
STOP_TIMEOUT_MS: Final = 30_000
FAILED_START_STOP_MS: Final = 3_000
VARIABLE: Final = "${"  # of a config provider: the value is known later


@dataclass(slots=True)
class LocalCluster:
    """Starts, watches and stops the processes of one local cluster.

    `config` holds Kafka server properties for every process; `barnabas.cluster.plan.Plan` describes how each process
    gets its own ports and directories. A subclass may override `host_of` and `command`.
    """

    directory: Path
    broker_count: int = 3
    first_port: int = 9092  # 0: any free ports
    config: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    nodes: dict[int, Node] = field(default_factory=dict)  # by node id; filled by `plan`
    is_cancelled: Callable[[], bool] = never  # called while waiting for processes to be ready
    control_url: str = ""  # URL of the control page; the supervisor sets it before the start
    first_id: int = 0  # of the brokers
    page_access: Access = OPEN  # how to ask for its pages; `use_credentials` replaces it before the start
    page_credentials: Credentials = NO_CREDENTIALS  # what its pages accept; likewise
    change_token: str = ""  # for requests that change something; likewise
    security: ClusterSecurity | None = None  # None: PLAINTEXT
    controller_count: int = 1  # several elect the active one
    is_combined: bool = False  # every broker is a controller, too; `controller_count` has no effect
    _claim: ClusterDirectory = field(init=False)
    _plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        self._claim = ClusterDirectory(self.directory)
        self.config = {**self.config, **_of_environment((FAULTS_KEY, CLOCK_KEY, *PAGE_KEYS))}
        self.use_credentials(*map(self._page_properties().get, PAGE_KEYS))

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def use_credentials(self, token: str | None, users: str | None, change_token: str | None) -> None:
        """Ask for the pages with what the configuration makes them demand; values with variables are left out.

        If it has no credential and requests may be able to change the nodes, make a token for that.
        """
        token, users, change_token = ("" if VARIABLE in (text or "") else text for text in (token, users, change_token))
        pages = self._page_properties()
        if self.can_be_changed and not change_token and pages.keys().isdisjoint(PAGE_KEYS):
            change_token = new_token()
        self.change_token = change_token or ""
        with contextlib.suppress(ValueError):  # the processes refuse these values
            accepted = self.page_credentials = credentials_of(token, users, change_token)
            self.page_access = access_of(pages, next(iter((*accepted.changers, *accepted.readers)), ""))

    @property
    def can_be_changed(self) -> bool:
        """Whether requests may be able to break the nodes, or to move their clocks."""
        texts = [self.config.get(key, "").strip().lower() for key in (FAULTS_KEY, CLOCK_KEY)]
        return any(text == "true" or VARIABLE in text for text in texts)

    def _page_properties(self) -> dict[str, str]:
        """Return the properties that say who may read the pages; every node has the same, but for its key."""
        own = {} if self.security is None else self.security.page_properties("", self.config)
        return {**own, **self.config}

    @property
    def broker_ids(self) -> range:
        """The ids of the brokers."""
        return range(self.first_id, self.first_id + self.broker_count)

    @property
    def brokers(self) -> list[Node]:
        """The brokers, by id."""
        return [node for node in self.nodes.values() if node.role == "broker"]

    @property
    def controller(self) -> Node:
        """The first controller."""
        return self.controllers[0]

    @property
    def controllers(self) -> list[Node]:
        """The controllers, by id; with `is_combined` they are the brokers."""
        return [node for node in self.nodes.values() if node.is_controller]

    @property
    def bootstrap(self) -> str:
        """`host:port,...` of all brokers, for a client's bootstrap.servers."""
        return ",".join(f"{node.host}:{node.port}" for node in self.brokers)

    @property
    def metrics(self) -> str:
        """`host:port,...` of every process's metrics page, the controllers' last."""
        nodes = [*self.brokers, *(node for node in self.controllers if node.role == "controller")]
        return ",".join(f"{node.host}:{node.metrics_port}" for node in nodes if node.metrics_port > 0)

    @property
    def command_config(self) -> str:
        """The file with which commands connect to a secured cluster as its user admin; "" for another one."""
        return "" if self.security is None else str(self.security.settings_file())

    def left_out(self) -> list[str]:
        """Return the brokers that have data in the directory but are not in this cluster: `broker-1`, by id."""
        found = [path.parent.name for path in self.directory.glob("broker-*/server.properties")]
        ids = sorted(int(number) for name in found if (number := name.removeprefix("broker-")).isdecimal())
        return [f"broker-{broker_id}" for broker_id in ids if broker_id not in self.broker_ids]

    def forgets_clock(self) -> bool:
        """Return whether the clock was moved in an earlier run and is not to be moved in this one."""
        return self.config.get(CLOCK_KEY, "").lower() != "true" and (self.directory / CLOCK_FILE).exists()

    def host_of(self, node_id: int) -> str:
        """Return the address that a node listens on; a subclass may give each node its own."""
        return HOST

    def command(self, node: Node) -> list[str]:
        """Return the command that runs a node; a subclass may wrap it in one that ends with exec (same pid)."""
        return [*interpreter.command(f"barnabas.{node.program}.main"), str(node.directory / "server.properties")]

    def plan(self) -> None:
        """Lock the directory and choose the ports; `start` does it if it has not been done. Raises ClusterError."""
        plan = Plan(
            self.directory,
            self.broker_ids,
            self.first_port,
            self.config,
            self.host_of,
            self._claim.draw_port,
            self.security,
            self.controller_count,
            self.is_combined,
        )
        plan.check()
        self._claim.take()
        try:
            self._check_roles()
            self.nodes = plan.make_nodes()
            if self.security is not None:
                self.security.prepare(self.nodes.values(), self.bootstrap)
        except BaseException:
            self._claim.release()
            raise
        self._plan = plan

    def _check_roles(self) -> None:
        """Refuse the directory of a cluster whose metadata is elsewhere: it would start empty. Raises ClusterError."""
        files = self.directory.glob("*/server.properties")
        had = {file.parent.name: "process.roles=broker,controller" in file.read_text().splitlines() for file in files}
        apart = sorted(name for name in had if name.startswith("controller-"))
        if self.is_combined and apart:
            raise ClusterError(f"{self.directory} has its metadata in {apart[0]}: start it without --combined")
        both = sorted(name for name, is_combined in had.items() if is_combined)
        if not self.is_combined and both:
            raise ClusterError(f"{self.directory} has its metadata in {both[0]}: start it with --combined")

    def renew_certificates(self) -> bool:
        """Issue the certificates of a secured cluster again if they expire soon; return whether they do."""
        if self.security is None:
            return False
        return self.security.renew(self.nodes.values(), self.bootstrap, self.clock.wall_ms())

    def properties(self, node: Node) -> dict[str, str]:
        """Return the server properties of a node; `plan` comes first."""
        properties = self._plan.properties(node, self.nodes)
        return {CHANGE_KEY: self.change_token, **properties} if self.change_token else properties

    def start(self) -> None:
        """Start all processes and return when clients can use every broker.

        Raises ClusterError; no process is left running then.
        """
        if not self._claim.is_taken:
            self.plan()
        try:
            write_access(self.directory, self.page_access, self.change_token)
            if len(self.controllers) > 1:
                self._prepare_quorum()
            for node in self.nodes.values():
                self.start_node(node)
            self.await_ready()
            self._add_users()
        except BaseException:
            self.stop(FAILED_START_STOP_MS)
            raise

    def _prepare_quorum(self) -> None:
        """Give the controllers one cluster id and, if there was only one until now, its log. Raises ClusterError."""
        from barnabas.cluster.quorum import prepare_quorum  # Why here: most clusters have one controller

        directories = [Path(metadata_directory(self.properties(node))) for node in self.controllers]
        prepare_quorum(directories, self.controller.node_id)

    def start_node(self, node: Node) -> None:
        """Start the process of a node that is not running, without waiting until it is ready. Raises ClusterError."""
        start_process(node, self.properties(node), self.command(node))
        self._claim.write_cluster_file(self.bootstrap, self.nodes.values(), self.control_url, self.command_config)

    def await_ready(self, timeout_ms: int = READY_TIMEOUT_MS, nodes: Sequence[Node] | None = None) -> None:
        """Wait until clients can use these nodes (default: all that were started).

        A broker is ready when it lists all running brokers. Raises ProcessDiedError when one ends or time is up.
        """
        expected = {node.node_id for node in self.brokers if node.is_running and not node.paused}
        chosen = self.nodes.values() if nodes is None else nodes
        await_nodes(chosen, expected, timeout_ms, self.clock, self.is_cancelled, self._connect())

    def _connect(self) -> Connect | None:
        """Return what connects to the listeners between nodes; None without security."""
        if self.security is None:
            return None
        from barnabas.cluster.security.node_client import connect_as  # Why here: few clusters are secured

        return connect_as(self.security.node_login(), self.clock)

    def _add_users(self) -> None:
        """Give the users of a secured cluster their SCRAM credentials. Raises ClusterError."""
        connect = self._connect()
        if self.security is None or connect is None or self.security.protocol == "SSL":
            return
        from barnabas.cluster.security.node_client import add_users

        users = self.security.users_to_create()
        if users:
            add_users(connect, self.brokers[0], users)
            self.security.users_created()

    def signal_node(self, node: Node, number: signal.Signals) -> None:
        """Send a signal to a running process; after SIGSTOP, return when all its threads have stopped.

        Raises ClusterError if it is not running.
        """
        signal_process(node, number, self.clock)

    def stop_node(self, node: Node, number: signal.Signals = signal.SIGTERM, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """End a process (SIGTERM: controlled shutdown; SIGKILL: at once) and wait until it has ended.

        Raises ClusterError if it is not running.
        """
        if node.paused and number != signal.SIGKILL:
            self.signal_node(node, signal.SIGCONT)
        self.signal_node(node, number)
        await_end(node, Deadline(self.clock, timeout_ms))

    def kill(self) -> None:
        """Kill every process without waiting. Safe in a signal handler; a wait for a process's end then returns."""
        for node in self.nodes.values():
            if node.child is not None:
                node.child.kill()

    def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Stop all processes: first the brokers, since a controlled shutdown needs the controller.

        A process that does not end in time is killed.
        """
        for group in (self.brokers, [node for node in self.controllers if node.role == "controller"]):
            running = [node for node in group if node.is_running]
            for node in running:
                ask_to_end(node, self.clock)
            deadline = Deadline(self.clock, timeout_ms)
            for node in running:
                await_end(node, deadline)
        if self._claim.is_taken:
            write_access(self.directory, OPEN)
            self._claim.remove_cluster_file()
            self._claim.release()


def _of_environment(keys: Iterable[str]) -> dict[str, str]:
    """Return those of these properties of ours that the nodes find in their environment, where they count more."""
    # Why not from_environment: config takes long to import, and most clusters do not need it.
    names = {key: key.upper().replace(".", "_") for key in keys}
    found = {key: os.environ.get(f"KAFKA_{name}", os.environ.get(name)) for key, name in names.items()}
    return {key: text for key, text in found.items() if text is not None}
