"""Ports for the processes of a local cluster."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection, Iterator
from pathlib import Path

HOST = "127.0.0.1"
LOWEST = 10_000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_RANGE_START = 32_768


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a listener could be opened on this port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_ports(count: int, avoid: Collection[int] = ()) -> Iterator[int]:
    """Distinct ports that were free a moment ago.

    They lie below those that the kernel gives to outgoing connections: else one of these could sit on the port of a
    process that is down for a while.
    """
    candidates = range(LOWEST, max(_outgoing_range_start(), LOWEST + 2000))
    found: dict[int, None] = {}
    while len(found) < count:
        port = random.choice(candidates)
        if port not in avoid and is_free(port):
            found[port] = None
    return iter(found)


def _outgoing_range_start() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError):
        return _USUAL_RANGE_START
