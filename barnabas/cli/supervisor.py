"""The loop of `barnabas up`, and the socket through which `barnabas node` reaches it.

One thread waits for three kinds of events: a stop signal (through the signal wake-up descriptor), the end of a child
(its pidfd), and a connection on DIR/control.sock. Acting on nodes goes through the supervisor because only a parent can
be sure that a pid is still its child.

*Signals*: the first SIGINT, SIGTERM or SIGHUP asks for an orderly end, whatever goes on; any further one kills all
processes at once. SIGINT ends in exit code 130, the others in 0.

*Protocol*: one JSON object a connection, {"action": "kill", "id": 0}; the answer is {"done": "..."} or {"error":
"..."}.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Iterator

from barnabas.cli.ready import Ready
from barnabas.cli.running import announced
from barnabas.cluster import CancelledError, ClusterError, LocalCluster, Node
from barnabas.control import MESSAGE_MAX_BYTES, control_path, short_name
from barnabas.control import ask as ask

REQUEST_TIMEOUT_S = 5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130
FAULTS_KEY = "barnabas.faults.enable"


class Supervisor:
    """Owns the signals of the process and the events of a cluster; all on the main thread."""

    def __init__(self, cluster: LocalCluster, *, is_temporary: bool = False) -> None:
        self._cluster = cluster
        self._is_temporary = is_temporary  # fixed before start; the directory goes at the end
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []  # the handler appends
        self._end_code: int | None = None  # what `end` said first
        self._pidfds: dict[int, int] = {}  # node id -> pidfd of its process
        self._wake_reader, self._wake_writer = socket.socketpair()
        for end in (self._wake_reader, self._wake_writer):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake_writer.fileno(), warn_on_full_buffer=False)
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        self._selector.register(self._wake_reader, selectors.EVENT_READ, self._drain_wake_ups)
        cluster.is_cancelled = self._is_cancelled

    def run(self) -> int:
        """Start the cluster, say that it is ready, serve until a stop signal or `end`, stop everything; return the exit
        code.
        """
        with contextlib.closing(self), self._control_page():
            with contextlib.suppress(CancelledError):
                self._cluster.start()
                try:
                    self.serve()
                finally:
                    self.stop()
            return self.exit_code

    @contextlib.contextmanager
    def _control_page(self) -> Iterator[None]:
        """Answer HTTP for as long as the block runs, if faults are enabled."""
        if self._cluster.config.get(FAULTS_KEY, "").lower() != "true":
            yield
            return
        from barnabas.cli.control_page import ControlPage  # Why here: most clusters are not there to be broken

        with ControlPage(self._cluster.directory) as page:
            self._cluster.control_url = page.url
            yield

    @property
    def exit_code(self) -> int:
        """What the process ends with: by `end`, else by the first signal."""
        if self._end_code is not None:
            return self._end_code
        return EXIT_INTERRUPTED if self._signals[:1] == [signal.SIGINT] else 0

    @property
    def is_over(self) -> bool:
        """Whether a stop signal came or `end` was called."""
        return bool(self._signals) or self._end_code is not None

    def end(self, code: int = 0) -> None:
        """Have the loop end, as after a stop signal."""
        if self._end_code is None:
            self._end_code = code

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        """Call the handler whenever there is something to read, until `unwatch`; also while processes start."""
        self._selector.register(descriptor, selectors.EVENT_READ, handler)

    def unwatch(self, descriptor: int) -> None:
        """Watch it no longer; the descriptor stays open."""
        self._selector.unregister(descriptor)

    def stop(self) -> None:
        """Stop the cluster, in order."""
        self._cluster.stop()

    def announced(self) -> contextlib.AbstractContextManager[None]:
        """Lets other commands find the cluster for as long as the block runs."""
        return announced(self._cluster.directory)

    def on_ready(self) -> None:
        """Say that clients can use the cluster: to a person on a terminal, else to a program."""
        ready = Ready.of(self._cluster)
        if sys.stdout.isatty():
            words = ready.words(self._cluster.directory, is_temporary=self._is_temporary, is_detached=False)
            print("\n".join(words), flush=True)
        else:
            print(ready.line(), flush=True)

    def close(self) -> None:
        """Give the descriptors back; signals go on being taken, and ignored."""
        signal.set_wakeup_fd(-1)
        for descriptor in self._pidfds.values():
            os.close(descriptor)
        self._selector.close()
        self._wake_reader.close()
        self._wake_writer.close()

    def _on_signal(self, number: int, _: object) -> None:
        if self._signals:
            self._cluster.kill()
        self._signals.append(number)

    def serve(self) -> None:
        """Say that the cluster is ready, and take events until it is over."""
        for node in self._cluster.nodes.values():
            self._watch_node(node)
        with self._listening(), self.announced():
            self.on_ready()
            while not self.is_over:
                self._turn()

    def _turn(self, timeout_s: float | None = None) -> None:
        for key, _ in self._selector.select(timeout_s):
            handler: Callable[[], None] = key.data
            handler()

    def _is_cancelled(self) -> bool:
        self._turn(0)
        return self.is_over

    def _drain_wake_ups(self) -> None:
        self._wake_reader.recv(MESSAGE_MAX_BYTES)

    def _watch_node(self, node: Node) -> None:
        assert node.child is not None
        descriptor = os.pidfd_open(node.child.pid)  # never fails: nobody has waited for the child yet
        self._pidfds[node.node_id] = descriptor
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._on_end(node, descriptor))

    def _unwatch_node(self, node: Node) -> None:
        descriptor = self._pidfds.pop(node.node_id, None)
        if descriptor is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)

    def _on_end(self, node: Node, descriptor: int) -> None:
        """A process ended by itself: leave it dead and say so."""
        if self._pidfds.get(node.node_id) != descriptor:
            return  # it was ended on request in this very turn
        if node.is_running:
            return  # and started again, on the same descriptor
        self._unwatch_node(node)
        assert node.child is not None
        line = f"{node.name} died: {_ending(node.child.wait())}; its log is {node.log_file}"
        print(f"barnabas: {line}; `barnabas node start {node.node_id}` brings it back", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Take requests on the control socket for as long as the block runs."""
        path = control_path(self._cluster.directory)
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as control:
            with short_name(path) as name:
                control.bind(name)
            control.listen()
            self._selector.register(control, selectors.EVENT_READ, lambda: self._on_request(control))
            try:
                yield
            finally:
                self._selector.unregister(control)
                path.unlink(missing_ok=True)

    def _on_request(self, control: socket.socket) -> None:
        connection, _ = control.accept()
        with connection:
            connection.settimeout(REQUEST_TIMEOUT_S)
            try:
                request = json.loads(connection.recv(MESSAGE_MAX_BYTES))
                answer = {"done": self._act(str(request["action"]), int(request["id"]))}
            except (ClusterError, OSError, ValueError, KeyError, TypeError) as error:
                answer = {"error": str(error)}
            with contextlib.suppress(OSError):  # whoever asked has gone; the action is done all the same
                connection.sendall(json.dumps(answer).encode())

    def _act(self, action: str, node_id: int) -> str:
        node = self._cluster.nodes.get(node_id)
        if node is None:
            known = ", ".join(str(known_id) for known_id in sorted(self._cluster.nodes))
            raise ClusterError(f"there is no node {node_id}; the ids are {known}")
        match action:
            case "kill":
                return self._end(node, signal.SIGKILL, "killed")
            case "stop":
                return self._end(node, signal.SIGTERM, "stopped")
            case "start":
                self._cluster.start_node(node)
                self._watch_node(node)
                self._cluster.await_ready(nodes=[node])
                return f"{node.name} is back"
            case "pause":
                self._cluster.signal_node(node, signal.SIGSTOP)
                return f"{node.name} paused"
            case "resume":
                self._cluster.signal_node(node, signal.SIGCONT)
                return f"{node.name} goes on"
            case _:
                raise ClusterError(f"'{action}' is no action")

    def _end(self, node: Node, number: signal.Signals, done: str) -> str:
        if not node.is_running:
            raise ClusterError(f"{node.name} is not running")
        self._unwatch_node(node)
        self._cluster.stop_node(node, number)
        return f"{node.name} {done}"


def _ending(code: int) -> str:
    """What an exit code as Popen gives it means."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
