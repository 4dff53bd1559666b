"""Server processes collect cyclic garbage rarely, and make none (barnabas/common/processes/collector.py).

`broker/network/sasl`, `broker/storage` and `controller` have tests of this kind for what they do.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Callable

import pytest

from barnabas.common.processes.collector import THRESHOLDS
from tests.support.broker.network import TIMEOUT_S, Network, heartbeat
from tests.support.cycles import cyclic_garbage
from tests.support.waiting import eventually

CONNECTIONS = 50
RESET = struct.pack("ii", 1, 0)  # of SO_LINGER: the server notices at once
SETTINGS = """
import gc
from barnabas.common.processes.collector import collect_rarely
collect_rarely()
print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count() > 0)
"""


def test_what_is_imported_is_no_longer_looked_at() -> None:
    child = subprocess.run([sys.executable, "-c", SETTINGS], capture_output=True, text=True, check=True)
    assert child.stdout == f"True {THRESHOLDS} True\n"


def test_connections_requests_and_their_errors_leave_no_cycles() -> None:
    def closed_by_the_server() -> None:
        with network.client() as client:
            for kind in ("ok", "error", "bug"):
                client.heartbeat(kind)
            client.send(b"\0\0\0\1\0")
            assert client.is_closed_by_server()

    with Network(handlers=2) as network:
        closed_by_the_server()  # the first one imports
        assert cyclic_garbage(lambda: _often(network, closed_by_the_server)) < CONNECTIONS


def test_a_client_that_goes_away_during_its_request_leaves_no_cycle() -> None:
    def gone() -> None:
        network.services.gate.clear()
        with network.client() as client:
            client.send(heartbeat("wait"))
            assert network.services.arrived.acquire(timeout=TIMEOUT_S)
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        eventually("the connection is closed", lambda: network.server.quotas.total() == 0)
        network.services.gate.set()
        with network.client() as client:
            client.heartbeat("ok")  # after the answer to nobody: there is one handler, and one processor

    with Network(handlers=1, num_network_threads=1) as network:
        gone()
        assert cyclic_garbage(lambda: _often(network, gone)) < CONNECTIONS


@pytest.mark.parametrize("first", [b"\0\0\0\1\0", heartbeat("close"), heartbeat("last")], ids=("bad", "close", "last"))
def test_requests_that_nobody_carries_out_leave_no_cycle(first: bytes) -> None:
    """They came in one read with another one, after which the connection was closed."""

    def left_behind() -> None:
        with network.client() as client:
            client.send(first + heartbeat("ok") * 2)
            while client.sock.recv(4096):
                pass

    with Network(handlers=1, num_network_threads=1) as network:
        left_behind()
        assert cyclic_garbage(lambda: _often(network, left_behind)) < CONNECTIONS


def _often(network: Network, connect: Callable[[], None]) -> None:
    for _ in range(CONNECTIONS):
        connect()
    eventually("all are closed", lambda: network.server.quotas.total() == 0)
