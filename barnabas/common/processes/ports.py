"""Ports for the processes of a local cluster.

Clusters that start at the same moment (the workers of one test run) must not choose the same ports, nor the port of a
process that is down for a while. A chosen port is therefore reserved by a socket that is bound to it but never listens.
A server can still listen there, since both set SO_REUSEADDR; until then, clients are refused. A search for a free port
without SO_REUSEADDR, such as `free_ports`, finds it taken. This works on Linux only; elsewhere, two sockets cannot
share an address, and nothing is reserved.
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
    """Return whether a listener could open this port now; a reserved port counts as free."""
    return refusal(port, host) is None


def refusal(port: int, host: str = HOST) -> OSError | None:
    """Return why a listener could not open this port now (EADDRINUSE; EACCES: a port for root); None if it could."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error
    return None


def free_ports(count: int, avoid: Collection[int] = ()) -> Iterator[int]:
    """Return distinct ports that were free and not reserved a moment ago.

    They are below the kernel's range for outgoing connections, which could otherwise take the port of a process that is
    down for a while.
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
    """Return a port like those of `free_ports`, and the socket that reserves it for our server until it closes."""
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
    """Bind to a port; return whether no other socket is bound to it."""
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
