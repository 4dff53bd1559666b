"""The loop of `barnabas up`, and the socket through which `barnabas node` reaches it.

One thread waits for four kinds of events: a stop signal (through the signal wake-up descriptor), the end of a child
(its pidfd), a connection on DIR/control.sock, and nothing else. Acting on nodes goes through the supervisor because
only a parent can be sure that a pid is still its child.

*Protocol*: one JSON object a connection, {"action": "kill", "id": 0}; the answer is {"done": "..."} or {"error":
"..."}.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from barnabas.cli.running import announce
from barnabas.cluster import ClusterError, LocalCluster, Node

REQUEST_MAX_BYTES = 4096
REQUEST_TIMEOUT_S = 5


def supervise(cluster: LocalCluster) -> None:
    """Start the cluster, print the ready line, serve until SIGINT or SIGTERM, stop everything."""
    supervisor = _Supervisor(cluster)
    try:
        cluster.start()
        supervisor.serve()
    finally:
        supervisor.close()


class _Supervisor:
    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._selector = selectors.DefaultSelector()
        self._stopping = False
        self._pidfds: dict[int, int] = {}  # node id -> pidfd of its process
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._drain_wake_ups)

    def _on_signal(self, *_: object) -> None:
        if not self._cluster.nodes or self._stopping:
            raise SystemExit(130)
        if not self._pidfds:  # still starting: unwind through LocalCluster.start, which stops what runs
            raise SystemExit(130)
        self._stopping = True

    def serve(self) -> None:
        control = self._listen()
        for node in self._cluster.nodes.values():
            self._watch(node)
        pointer = announce(self._cluster.directory)
        print(f"ready bootstrap={self._cluster.bootstrap} metrics={self._cluster.metrics}", flush=True)
        while not self._stopping:
            for key, _ in self._selector.select():
                handler: Callable[[], None] = key.data
                handler()
        pointer.unlink(missing_ok=True)
        self._unlisten(control)
        self._cluster.stop()

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        for descriptor in self._pidfds.values():
            os.close(descriptor)
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _drain_wake_ups(self) -> None:
        self._wake_reader.recv(REQUEST_MAX_BYTES)

    def _watch(self, node: Node) -> None:
        assert node.child is not None
        descriptor = os.pidfd_open(node.child.pid)
        self._pidfds[node.node_id] = descriptor
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._on_end(node))

    def _unwatch(self, node: Node) -> None:
        descriptor = self._pidfds.pop(node.node_id, None)
        if descriptor is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)

    def _on_end(self, node: Node) -> None:
        """A process ended by itself: leave it dead and say so."""
        self._unwatch(node)
        if not node.is_running and node.child is not None:
            tail = node.log_tail(1)
            code = node.child.returncode
            print(f"{node.name} ended with code {code}{': ' + tail if tail else ''}", file=sys.stderr, flush=True)

    def _listen(self) -> socket.socket:
        path = control_path(self._cluster.directory)
        path.unlink(missing_ok=True)
        control = socket.socket(socket.AF_UNIX)
        with _short_path(path) as name:
            control.bind(name)
        control.listen()
        self._selector.register(control, selectors.EVENT_READ, lambda: self._on_request(control))
        return control

    def _unlisten(self, control: socket.socket) -> None:
        self._selector.unregister(control)
        control.close()
        control_path(self._cluster.directory).unlink(missing_ok=True)

    def _on_request(self, control: socket.socket) -> None:
        connection, _ = control.accept()
        with connection:
            connection.settimeout(REQUEST_TIMEOUT_S)
            try:
                request = json.loads(connection.recv(REQUEST_MAX_BYTES))
                answer = {"done": self._act(str(request["action"]), int(request["id"]))}
            except (ClusterError, OSError, ValueError, KeyError, TypeError) as error:
                answer = {"error": str(error)}
            try:
                connection.sendall(json.dumps(answer).encode())
            except OSError:
                return  # whoever asked has gone; the action is done all the same

    def _act(self, action: str, node_id: int) -> str:
        node = self._cluster.nodes.get(node_id)
        if node is None:
            known = ", ".join(str(known_id) for known_id in sorted(self._cluster.nodes))
            raise ClusterError(f"there is no node {node_id}; the ids are {known}")
        match action:
            case "kill":
                self._unwatch(node)
                self._cluster.stop_node(node, signal.SIGKILL)
                return f"{node.name} killed"
            case "stop":
                self._unwatch(node)
                self._cluster.stop_node(node)
                return f"{node.name} stopped"
            case "start":
                self._cluster.start_node(node)
                self._watch(node)
                self._cluster.await_ready()
                return f"{node.name} is back"
            case "pause":
                self._cluster.signal_node(node, signal.SIGSTOP)
                return f"{node.name} paused"
            case "resume":
                self._cluster.signal_node(node, signal.SIGCONT)
                return f"{node.name} goes on"
            case _:
                raise ClusterError(f"'{action}' is no action")


def control_path(directory: Path) -> Path:
    """Where the supervisor of this directory listens."""
    return directory / "control.sock"


class _short_path:  # noqa: N801 - reads as a function
    """A name for a socket in a deep directory: AF_UNIX allows 107 bytes, so go through /proc/self/fd/N."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._directory = -1

    def __enter__(self) -> str:
        self._directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._directory}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        os.close(self._directory)


def ask(directory: Path, action: str, node_id: int, timeout_s: float = 60) -> str:
    """Ask the supervisor of this directory to act on a node; return what it says. Raises ClusterError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        try:
            with _short_path(control_path(directory)) as name:
                connection.connect(name)
            connection.sendall(json.dumps({"action": action, "id": node_id}).encode())
            answer = json.loads(connection.recv(REQUEST_MAX_BYTES))
        except (OSError, ValueError) as error:
            raise ClusterError(f"no cluster answers in {directory}: {error}") from error
    if "error" in answer:
        raise ClusterError(answer["error"])
    return str(answer["done"])
