"""One fuzz run: a cluster with protected data, clients that send hostile frames to every listener, then the checks."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from barnabas.cluster import LocalCluster, Node
from barnabas.common.clock import SystemClock
from tests.fuzz.hostile import Frames, Protected
from tests.fuzz.treasure import Treasure
from tests.support.cluster import BarnabasCluster, ListenerAddress, addresses
from tests.support.threads import at_once

ANSWER_TIMEOUT_S = 0.25  # after that, the client gives up the request and its connection
CLIENTS = 4
FRAMES_A_CONNECTION = 20
JOIN_SLACK_S = 60


Target = tuple[Node, ListenerAddress]


class Client:
    """One hostile client: sends a few frames on each connection, to one listener after another."""

    def __init__(self, seed: int, protected: Protected, targets: list[Target], until_ms: int) -> None:
        self._frames = Frames(seed, protected)
        self._targets = targets
        self._until_ms = until_ms
        self._clock = SystemClock()
        self.sent: Counter[str] = Counter()  # by listener
        self.outcomes: Counter[str] = Counter()

    def run(self) -> None:
        """Send until time is up."""
        for node, address in itertools.cycle(self._targets):
            if self._clock.monotonic_ms() >= self._until_ms:
                return
            with contextlib.suppress(OSError):
                self._send(f"{node.name} {address.listener}", address)

    def _send(self, name: str, address: ListenerAddress) -> None:
        with socket.create_connection((address.host, address.port), timeout=5) as sock:
            sock.settimeout(ANSWER_TIMEOUT_S)
            for _ in range(FRAMES_A_CONNECTION):
                sock.sendall(self._frames.next().data)
                self.sent[name] += 1
                outcome = self._outcome(sock)
                self.outcomes[outcome] += 1
                if outcome != "answered" or self._clock.monotonic_ms() >= self._until_ms:
                    return

    def _outcome(self, sock: socket.socket) -> str:
        try:
            size = sock.recv(4, socket.MSG_WAITALL)
            if len(size) < 4:
                return "closed"
            left = struct.unpack(">i", size)[0]
            while left:
                data = sock.recv(min(left, 65536))
                if not data:
                    return "closed"
                left -= len(data)
        except TimeoutError:
            return "silent"
        except OSError:
            return "closed"
        return "answered"


def run(directory: Path, seconds: float, seed: int, say: Callable[[str], None], *, brokers: int = 3) -> Counter[str]:
    """Fuzz for this time, then check; return how many frames each listener got. Raises AssertionError for a loss."""
    with BarnabasCluster(directory, brokers, 0) as cluster:
        treasure = Treasure(cluster)
        protected = treasure.plant()
        treasure.check()
        pids = _pids(cluster)
        until_ms = SystemClock().monotonic_ms() + int(seconds * 1000)
        targets = [(node, address) for node in cluster.nodes.values() for address in addresses(cluster, node)]
        clients = [
            Client(seed + number, protected, targets[number:] + targets[:number], until_ms) for number in range(CLIENTS)
        ]
        at_once(*(client.run for client in clients), join_s=seconds + JOIN_SLACK_S)
        sent: Counter[str] = sum((client.sent for client in clients), Counter())
        outcomes: Counter[str] = sum((client.outcomes for client in clients), Counter())
        say(f"{sent.total()} frames to {len(sent)} listeners: {dict(outcomes)}")
        dead = {node.name: node.last_words() for node in cluster.nodes.values() if not node.is_running}
        assert not dead, f"processes ended: {dead}"
        assert _pids(cluster) == pids
        treasure.check()
        say("every process is alive; every protected topic, record and offset is there")
        return sent


def _pids(cluster: LocalCluster) -> dict[str, int]:
    return {node.name: node.child.pid for node in cluster.nodes.values() if node.child is not None}
