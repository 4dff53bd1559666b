"""The client side of DIR/control.sock: asks the supervisor of a local cluster to act on a node.

One JSON object a connection, {"action": "kill", "id": 0}; the answer is {"done": "..."} or {"error": "..."}. The
server side is `barnabas.cli.local.supervisor`.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from barnabas.cluster.errors import ClusterError

MESSAGE_MAX_BYTES = 65536
TIMEOUT_S = 90.0  # more than a cluster waits for a node that starts (READY_TIMEOUT_MS)


def control_path(directory: Path) -> Path:
    """The socket on which the supervisor of this directory listens."""
    return directory / "control.sock"


@contextlib.contextmanager
def short_name(path: Path) -> Iterator[str]:
    """A short path to a socket in a deep directory (/proc/self/fd/N/...): AF_UNIX allows 107 bytes."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)


def ask(directory: Path, action: str, node_id: int, timeout_s: float = TIMEOUT_S) -> str:
    """Ask the supervisor of this directory to act on a node; return its answer. Raises ClusterError."""
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
