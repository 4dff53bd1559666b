"""Server processes collect cyclic garbage rarely, and make none (barnabas/common/processes/collector.py)."""

from __future__ import annotations

import gc
import subprocess
import sys

from barnabas.common.processes.collector import THRESHOLDS
from tests.support.broker.network import Network
from tests.support.waiting import eventually

CONNECTIONS = 50
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
    with Network(handlers=2) as network:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            _connect(network)  # what the first one imports and keeps
            gc.collect()
            for _ in range(CONNECTIONS):
                _connect(network)
            eventually("all are closed", lambda: network.server.quotas.total() == 0)
            assert gc.collect() < CONNECTIONS
        finally:
            if was_enabled:
                gc.enable()


def _connect(network: Network) -> None:
    """Send what is answered, what is answered with an error, and what closes the connection."""
    with network.client() as client:
        for kind in ("ok", "error", "bug"):
            client.heartbeat(kind)
        client.send(b"\0\0\0\1\0")
        assert client.is_closed_by_server()
