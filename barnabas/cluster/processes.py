"""Starts, signals and ends the process of a node."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from barnabas.cluster.errors import ClusterError
from barnabas.cluster.node import Node
from barnabas.common.clock import Clock
from barnabas.common.deadline import Deadline
from barnabas.common.processes.allocator import with_settings
from barnabas.common.processes.process import PARENT_PID_VARIABLE

STANDSTILL_TIMEOUT_MS: Final = 5_000
STANDSTILL_POLL_S: Final = 0.008


def start_process(node: Node, properties: Mapping[str, str], command: Sequence[str]) -> None:
    """Write a node's server.properties and start its process, in its own session. Raises ClusterError."""
    if node.is_running:
        raise ClusterError(f"{node.name} is running already")
    environment = {**with_settings(os.environ, node.program), PARENT_PID_VARIABLE: str(os.getpid())}
    try:
        node.directory.mkdir(parents=True, exist_ok=True)
        write_properties(node.directory / "server.properties", properties)
        with node.log_file.open("ab") as log:
            node.child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
    except OSError as error:
        raise ClusterError(f"cannot use {error.filename or node.directory}: {error.strerror}") from error
    node.paused = False


def write_properties(file: Path, properties: Mapping[str, str]) -> None:
    """Write a properties file that its user alone can read, since it may hold passwords."""
    file.touch(mode=0o600)
    file.chmod(0o600)  # of a file that was there before
    escaped = {key: text.replace("\\", "\\\\").replace("\n", "\\n") for key, text in properties.items()}
    file.write_text("".join(f"{key}={text}\n" for key, text in escaped.items()))


def signal_process(node: Node, number: signal.Signals, clock: Clock) -> None:
    """Send a signal to a running process; after SIGSTOP, wait until its threads have stopped.

    Raises ClusterError if it is not running.
    """
    if not node.is_running or node.child is None:
        raise ClusterError(f"{node.name} is not running")
    node.child.send_signal(number)
    if number in (signal.SIGSTOP, signal.SIGCONT):
        node.paused = number == signal.SIGSTOP
    if number == signal.SIGSTOP:
        _await_standstill(node.child.pid, Deadline(clock, STANDSTILL_TIMEOUT_MS))


def ask_to_end(node: Node, clock: Clock) -> None:
    """Send SIGTERM to a running process, which a paused one gets after SIGCONT."""
    if node.paused:
        signal_process(node, signal.SIGCONT, clock)
    if node.child is not None:
        node.child.terminate()


def await_end(node: Node, deadline: Deadline) -> None:
    """Wait until a process has ended; kill it when time is up."""
    assert node.child is not None
    try:
        node.child.wait(deadline.remaining_s())
    except subprocess.TimeoutExpired:
        node.child.kill()
        node.child.wait()


def _await_standstill(pid: int, deadline: Deadline) -> None:
    """Wait until every thread of a child has stopped, or until the deadline (a thread may be blocked on the disk).

    Why wait: one thread takes the signal and passes it on. Until the others get a core, they keep serving requests.
    """
    options = os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT
    while os.waitid(os.P_PID, pid, options) is None and not deadline.is_expired():
        select.select([], [], [], STANDSTILL_POLL_S)
