"""One process of a local cluster: its addresses, its files and its child process."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from barnabas.common.processes.ports import HOST


@dataclass(slots=True)
class Node:
    """One process of the cluster."""

    role: str  # "controller" or "broker"
    node_id: int
    port: int
    metrics_port: int
    directory: Path
    host: str = HOST
    internal_port: int = 0  # where other nodes reach a broker; 0: where clients do
    controller_port: int = 0  # where nodes reach the controller of a broker that is one, too; 0: it is none
    child: subprocess.Popen[bytes] | None = None
    paused: bool = False

    @property
    def name(self) -> str:
        """`broker-0`, `controller-100`: the name in messages, and of the node's directory."""
        return f"{self.role}-{self.node_id}"

    @property
    def is_controller(self) -> bool:
        """Whether the process is a controller, perhaps beside a broker."""
        return self.role == "controller" or self.controller_port > 0

    @property
    def controller_address(self) -> str:
        """The host:port of a controller."""
        return f"{self.host}:{self.controller_port or self.port}"

    @property
    def program(self) -> str:
        """The package with the main module: "broker", "controller", or "server" for both roles."""
        return "server" if self.controller_port else self.role

    @property
    def is_running(self) -> bool:
        """Whether the process exists and has not ended."""
        return self.child is not None and self.child.poll() is None

    @property
    def log_file(self) -> Path:
        """The output of the process."""
        return self.directory / "process.log"

    def last_words(self) -> str:
        """Return why the process ended: its own error line, or else its last line and where its log is."""
        last = self.log_tail(1)
        complaint = last.removeprefix(f"{self.program}: ")
        if last != complaint:
            return complaint
        return f"{last or 'it printed nothing'}; its log is {self.log_file}"

    def log_tail(self, lines: int = 5) -> str:
        """Return the last lines of the process's output; "" before its first start."""
        if not self.log_file.exists():
            return ""
        return "\n".join(self.log_file.read_text(errors="replace").splitlines()[-lines:])
