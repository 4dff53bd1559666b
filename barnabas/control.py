"""How the supervisor of a local cluster is asked to act on a node: the client's side of DIR/control.sock.

One JSON object a connection, {"action": "kill", "id": 0}; the answer is {"done": "..."} or {"error": "..."}. The
supervisor's side is `barnabas.cli.supervisor`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from barnabas.cluster import ClusterError

MESSAGE_MAX_BYTES = 65536
TIMEOUT_S = 60.0


def control_path(directory: Path) -> Path:
    """Where the supervisor of this directory listens."""
    return directory / "control.sock"


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A name for a socket in a deep directory: AF_UNIX allows 107 bytes, so go through /proc/self/fd/N."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def ask(directory: Path, action: str, node_id: int, timeout_s: float = TIMEOUT_S) -> str:
    """Ask the supervisor of this directory to act on a node; return what it says. Raises ClusterError."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout_s)
        try:
            with short_name(control_path(directory)) as name:
                connection.connect(name)
            connection.sendall(json.dumps({"action": action, "id": node_id}).encode())
            answer = json.loads(connection.recv(MESSAGE_MAX_BYTES))
        except TimeoutError as error:
            raise ClusterError(f"the cluster in {directory} did not answer within {timeout_s:.0f} s") from error
        except (OSError, ValueError) as error:
            raise ClusterError(f"no cluster runs in {directory}") from error
    if "error" in answer:
        raise ClusterError(answer["error"])
    return str(answer["done"])
