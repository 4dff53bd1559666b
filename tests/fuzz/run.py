"""One fuzz run: a cluster with protected data, clients that send hostile frames to every listener, the proof."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from barnabas.cluster import LocalCluster
from barnabas.common.clock import SystemClock
from tests.fuzz.hostile import Frames, Protected
from tests.fuzz.treasure import Treasure
from tests.support.cluster import BarnabasCluster
from tests.support.threads import at_once

ANSWER_TIMEOUT_S = 0.25  # a request that waits longer is left alone, with its connection
CLIENTS = 4
FRAMES_A_CONNECTION = 20
JOIN_SLACK_S = 60


class Address(NamedTuple):
    """One listener of one process."""

    name: str
    host: str
    port: int


def listeners(cluster: LocalCluster) -> list[Address]:
    """Every listener of every process, clients', nodes' and the controller's."""
    found = []
    for node in cluster.nodes.values():
        for listener in cluster.properties(node)["listeners"].split(","):
            name, _, address = listener.partition("://")
            host, _, port = address.rpartition(":")
            found.append(Address(f"{node.name} {name}", host.strip("[]") or node.host, int(port)))
    return found


class Client:
    """One hostile client: goes from listener to listener, a few frames on each connection."""

    def __init__(self, seed: int, protected: Protected, addresses: list[Address], until_ms: int) -> None:
        self._frames = Frames(seed, protected)
        self._addresses = addresses
        self._until_ms = until_ms
        self._clock = SystemClock()
        self.sent: Counter[str] = Counter()  # by listener
        self.outcomes: Counter[str] = Counter()

    def run(self) -> None:
        """Send until time is up."""
        for address in itertools.cycle(self._addresses):
            if self._clock.monotonic_ms() >= self._until_ms:
                return
            with contextlib.suppress(OSError):
                self._visit(address)

    def _visit(self, address: Address) -> None:
        with socket.create_connection((address.host, address.port), timeout=5) as sock:
            sock.settimeout(ANSWER_TIMEOUT_S)
            for _ in range(FRAMES_A_CONNECTION):
                sock.sendall(self._frames.next().data)
                self.sent[address.name] += 1
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
    """Fuzz for so long, then check; returns how many frames each listener got. Raises AssertionError for a loss."""
    with BarnabasCluster(directory, brokers, 0) as cluster:
        treasure = Treasure(cluster)
        protected = treasure.plant()
        treasure.check()
        pids = _pids(cluster)
        until_ms = SystemClock().monotonic_ms() + int(seconds * 1000)
        addresses = listeners(cluster)
        clients = [
            Client(seed + number, protected, addresses[number:] + addresses[:number], until_ms)
            for number in range(CLIENTS)
        ]
        at_once(*(client.run for client in clients), join_s=seconds + JOIN_SLACK_S)
        sent: Counter[str] = sum((client.sent for client in clients), Counter())
        outcomes: Counter[str] = sum((client.outcomes for client in clients), Counter())
        say(f"{sent.total()} frames to {len(sent)} listeners: {dict(outcomes)}")
        dead = {node.name: node.last_words() for node in cluster.nodes.values() if not node.is_running}
        assert not dead, f"processes ended: {dead}"
        assert _pids(cluster) == pids
        treasure.check()
        say("every process lives; every protected topic, record and offset is there")
        return sent


def _pids(cluster: LocalCluster) -> dict[str, int]:
    return {node.name: node.child.pid for node in cluster.nodes.values() if node.child is not None}
