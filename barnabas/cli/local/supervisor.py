"""The event loop of `barnabas up`, and the control socket that `barnabas node` connects to.

One thread waits for three kinds of events: a stop signal (through the signal wake-up descriptor), the end of a child
(its pidfd), and a connection on DIR/control.sock. Every few hours it looks whether certificates expire soon. The
supervisor acts on nodes for other commands because only a parent can be sure that a pid is still its child's.

*Signals*: the first SIGINT, SIGTERM or SIGHUP starts an orderly stop; any further one kills all processes at once. The
exit code is 130 after SIGINT, 0 after the others.

*Protocol*: one JSON object a connection, {"action": "kill", "id": 0}. The answer is {"done": "..."} or {"error":
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

from barnabas.cli.local.ready import Ready
from barnabas.cli.local.running import announced
from barnabas.cluster import CancelledError, ClusterError, LocalCluster, Node
from barnabas.control import MESSAGE_MAX_BYTES, control_path, short_name

REQUEST_TIMEOUT_S = 5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130
RENEWAL_CHECK_S = 6 * 60 * 60


class Supervisor:
    """Owns the signals of the process and the events of a cluster; all on the main thread."""

    def __init__(self, cluster: LocalCluster, *, is_temporary: bool = False) -> None:
        self._cluster = cluster
        self._is_temporary = is_temporary  # fixed before start; the directory is removed at the end
        self._selector = selectors.DefaultSelector()
        self._signals: list[int] = []  # the handler appends
        self._end_code: int | None = None  # the code of the first call of `end`
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
        """Start the cluster, serve until a stop signal or `end`, stop the cluster; return the exit code."""
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
        """Serve the control page while the block runs, if faults or moves of the clock are enabled."""
        cluster = self._cluster
        if not cluster.can_be_changed:
            yield
            return
        from barnabas.cli.local.control_page import ControlPage  # Why here: few clusters have one

        certificate = None if cluster.security is None else cluster.security.control_certificate()
        with ControlPage(cluster.directory, cluster.page_credentials, certificate) as page:
            cluster.control_url = page.url
            yield

    @property
    def exit_code(self) -> int:
        """The exit code of the process: from `end`, else from the first signal."""
        if self._end_code is not None:
            return self._end_code
        return EXIT_INTERRUPTED if self._signals[:1] == [signal.SIGINT] else 0

    @property
    def is_over(self) -> bool:
        """Whether a stop signal came or `end` was called."""
        return bool(self._signals) or self._end_code is not None

    def end(self, code: int = 0) -> None:
        """End the loop, as a stop signal does; the first call decides the exit code."""
        if self._end_code is None:
            self._end_code = code

    def watch(self, descriptor: int, handler: Callable[[], None]) -> None:
        """Call the handler whenever the descriptor is readable, until `unwatch`; also while processes start."""
        self._selector.register(descriptor, selectors.EVENT_READ, handler)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor, which stays open."""
        self._selector.unregister(descriptor)

    def stop(self) -> None:
        """Stop the cluster in order."""
        self._cluster.stop()

    def announced(self) -> contextlib.AbstractContextManager[None]:
        """A context in which other commands find the cluster."""
        return announced(self._cluster.directory)

    def on_ready(self) -> None:
        """Print that clients can use the cluster: a summary on a terminal, else the ready line for programs."""
        ready = Ready.of(self._cluster)
        if sys.stdout.isatty():
            summary = ready.summary(self._cluster.directory, is_temporary=self._is_temporary, is_detached=False)
            print("\n".join(summary), flush=True)
        else:
            print(ready.line(), flush=True)

    def close(self) -> None:
        """Close the descriptors. Signals are still caught, without effect on the loop."""
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
        """Report that the cluster is ready, and handle events until it is over."""
        for node in self._cluster.nodes.values():
            self._watch_node(node)
        with self._listening(), self.announced():
            self.on_ready()
            while not self.is_over:
                self._turn(RENEWAL_CHECK_S)
                self._renew_certificates()

    def _turn(self, timeout_s: float | None = None) -> None:
        for key, _ in self._selector.select(timeout_s):
            handler: Callable[[], None] = key.data
            handler()

    def _renew_certificates(self) -> None:
        try:
            is_done = self._cluster.renew_certificates()
        except OSError as error:
            print(f"barnabas: the certificates cannot be renewed: {error}", file=sys.stderr, flush=True)
            return
        if is_done:
            print("barnabas: the certificates expire soon, and were issued again", file=sys.stderr, flush=True)

    def _is_cancelled(self) -> bool:
        self._turn(0)
        return self.is_over

    def _drain_wake_ups(self) -> None:
        self._wake_reader.recv(MESSAGE_MAX_BYTES)

    def _watch_node(self, node: Node) -> None:
        assert node.child is not None
        descriptor = os.pidfd_open(node.child.pid)  # cannot fail: the child has not been waited for
        self._pidfds[node.node_id] = descriptor
        self._selector.register(descriptor, selectors.EVENT_READ, lambda: self._on_end(node, descriptor))

    def _unwatch_node(self, node: Node) -> None:
        descriptor = self._pidfds.pop(node.node_id, None)
        if descriptor is not None:
            self._selector.unregister(descriptor)
            os.close(descriptor)

    def _on_end(self, node: Node, descriptor: int) -> None:
        """A process ended without a request: leave it dead and report it."""
        if self._pidfds.get(node.node_id) != descriptor:
            return  # a request ended it in this very turn
        if node.is_running:
            return  # a request also started it again, on the same descriptor
        self._unwatch_node(node)
        assert node.child is not None
        line = f"{node.name} died: {_ending(node.child.wait())}; its log is {node.log_file}"
        print(f"barnabas: {line}; `barnabas node start {node.node_id}` brings it back", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Accept requests on the control socket while the block runs."""
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
            with contextlib.suppress(OSError):  # the client has disconnected; the action is done
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
                return f"{node.name} resumed"
            case _:
                raise ClusterError(f"unknown action '{action}'")

    def _end(self, node: Node, number: signal.Signals, done: str) -> str:
        if not node.is_running:
            raise ClusterError(f"{node.name} is not running")
        self._unwatch_node(node)
        self._cluster.stop_node(node, number)
        return f"{node.name} {done}"


def _ending(code: int) -> str:
    """A Popen return code in words."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
