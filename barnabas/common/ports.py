"""Ports for the processes of a local cluster.

Clusters that start at the same moment (the workers of one test run) must not draw the same ports, nor take one whose
process is down for a while. A port that was drawn is therefore reserved: a socket is bound to it that never listens.
Servers can listen there all the same, since both sides set SO_REUSEADDR, and clients are refused until one does; but
who looks for a free port, as `free_ports` does, without SO_REUSEADDR, finds it taken. That is so on Linux; elsewhere
two sockets cannot share an address like this, and nothing is reserved.
"""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

HOST = "127.0.0.1"
LOWEST = 10_000
_RANGE_FILE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_USUAL_RANGE_START = 32_768


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a listener could be opened on this port now; a reserved port counts as free."""
    return refusal(port, host) is None


def refusal(port: int, host: str = HOST) -> OSError | None:
    """Why no listener could be opened on this port now (EADDRINUSE; EACCES: a port for root); None if one could."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def free_ports(count: int, avoid: Collection[int] = ()) -> Iterator[int]:
    """Distinct ports that were free, and nobody's, a moment ago.

    They lie below those that the kernel gives to outgoing connections: else one of these could sit on the port of a
    process that is down for a while.
    """
    found: dict[int, None] = {}
    while len(found) < count:
        port = _candidate()
        if port not in avoid and port not in found:
            with socket.socket() as probe:
                if _bind(probe, port):
                    found[port] = None
    return iter(found)


def reserve_port(avoid: Collection[int] = ()) -> tuple[int, socket.socket]:
    """A port like those of `free_ports`, and the socket that keeps it for a server of ours until it is closed."""
    while True:
        port = _candidate()
        reservation = socket.socket()
        if port not in avoid and _bind(reservation, port):
            if sys.platform != "linux":
                reservation.close()
            else:
                reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            return port, reservation
        reservation.close()


def _candidate() -> int:
    return random.choice(range(LOWEST, max(_outgoing_range_start(), LOWEST + 2000)))


def _bind(probe: socket.socket, port: int) -> bool:
    """Bind to a port that nobody else is bound to."""
    try:
        probe.bind((HOST, port))
    except OSError:
        return False
    return True


def _outgoing_range_start() -> int:
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError):
        return _USUAL_RANGE_START
