"""Faults caused by operators and strangers: a lost disk, a copied file, swapped directories, forged pushes.

None of them may lose an acknowledged record. Each is repaired as an operator would, following the error message.

    lose the controller's disk   its data directory is emptied; `controller recover` rebuilds it. Before that, an empty
                                 controller starts: under the old cluster id it ends with advice, under a new one no
                                 broker obeys it
    copied file, other id        a broker with another id that advertises a running broker's addresses is refused
    copied file, same id         a second process with a running broker's id is refused; the first keeps running
    swapped directories          two brokers get each other's data: both refuse to start
    stray pushes                 every listener gets pushes that no controller of this cluster sent

Only clusters of Barnabas have these faults, not those of Apache Kafka.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from barnabas.client.connection import Connect
from barnabas.cluster import CONTROLLER_ID, Node
from barnabas.common.processes.ports import reserve_port
from barnabas.common.processes.process import PARENT_PID_VARIABLE
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.push_tags import Receiver
from tests.stress.cluster import BROKERS, PARTITIONS, TOPIC, WATCHER, StressCluster, node_ids
from tests.stress.faults.fault import Fault
from tests.support.cluster import addresses
from tests.support.forged_pushes import Push, add_forged_tags, forged_pushes
from tests.support.waiting import eventually

COMMAND_TIMEOUT_S = 60
ANSWER_TIMEOUT_MS = 2_000
STRANGER_ID = 77
CONTROLLERS_MAX = 3
EVERYTHING = frozenset(node_ids(CONTROLLERS_MAX))
CONTROLLER_EPOCHS = (-1, 0, 1, 1_000, 2**31 - 1)


class Mistakes:
    """Causes these faults in a cluster. Owner: the thread that runs the stress."""

    def __init__(self, cluster: StressCluster, choice: random.Random) -> None:
        self._cluster = cluster
        self._random = choice
        self._copies = itertools.count()
        self.kinds: dict[Callable[[], Fault], int] = {
            self._swap_directories: 2,
            self._stray_pushes: 3,
        }
        if not cluster.is_combined:  # Why: static voters have no directory ids, so a copy would be a voter with no vote
            self.kinds |= {self._copy_with_another_id: 1, self._copy_with_the_same_id: 2}
        if len(cluster.controllers) == 1:  # several have copies of the log: controllers.py
            self.kinds |= {self._lose_controller_log: 1, self._lose_controller_disk: 1}

    # The controller's disk

    def _lose_controller_log(self) -> Fault:
        return self._lost(keeps_id=True)

    def _lose_controller_disk(self) -> Fault:
        return self._lost(keeps_id=False)

    def _lost(self, *, keeps_id: bool) -> Fault:
        controller = self._cluster.nodes[CONTROLLER_ID]

        def begin() -> None:
            # Why: a broker that is still starting ends when it connects to the controller of another cluster.
            self._cluster.await_ready()
            self._cluster.stop_node(controller, signal.SIGKILL)
            data = controller.directory / "data"
            lost = move_away(data)
            if keeps_id:
                data.mkdir()
                shutil.copy(lost / "meta.properties", data)
            start = controller.log_file.stat().st_size
            self._cluster.start_node(controller)
            if keeps_id:
                eventually("an empty controller ends in a cluster with data", lambda: not controller.is_running)
                assert "recover" in controller.last_words(), controller.last_words()
            else:
                refusal = b"INCONSISTENT_CLUSTER_ID"
                eventually(
                    "an empty controller of a new cluster gets no broker",
                    lambda: refusal in controller.log_file.read_bytes()[start:],
                )

        def end() -> None:
            if controller.is_running:
                self._cluster.stop_node(controller, signal.SIGTERM)
            recover = [sys.executable, "-P", "-m", "barnabas.cli", "controller", "recover"]
            file = str(controller.directory / "server.properties")
            done = subprocess.run(
                [*recover, file, "--from-brokers", ",".join(map(self._node_address, self._cluster.brokers))],
                capture_output=True,
                text=True,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, f"controller recover: {done.stderr or done.stdout}"
            self._cluster.start_node(controller)

        how = "under the old cluster id" if keeps_id else "under a new cluster id"
        return Fault(f"lose the disk of controller-100, which starts {how}", EVERYTHING, begin, end, is_exclusive=True)

    def _node_address(self, node: Node) -> str:
        """The address that other nodes use for a broker."""
        name = self._cluster.properties(node).get("inter.broker.listener.name", "PLAINTEXT")
        (found,) = [each for each in addresses(self._cluster, node) if each.listener == name]
        return f"{found.host}:{found.port}"

    # Copied files

    def _copy_with_another_id(self) -> Fault:
        return self._copied(STRANGER_ID, "a copied file with another id")

    def _copy_with_the_same_id(self) -> Fault:
        return self._copied(None, "a copied file with the same id")

    def _copied(self, node_id: int | None, what: str) -> Fault:
        """Start a second process from a running broker's file, with its own ports and directory."""
        original = self._cluster.nodes[self._random.randrange(BROKERS)]
        started: list[subprocess.Popen[bytes]] = []

        def begin() -> None:
            self._cluster.await_ready()  # Why: before a broker is registered, another may take its address
            directory = self._cluster.directory / f"copy-{next(self._copies)}"
            started.append(self._start_copy(original, original.node_id if node_id is None else node_id, directory))
            log = directory / "process.log"
            eventually(f"{what} is refused", lambda: "refuses this broker" in log.read_text(errors="replace"))

        def end() -> None:
            copy = started.pop()
            copy.kill()
            copy.wait()
            assert original.is_running, f"{original.name} ended because of {what}: {original.last_words()}"

        return Fault(f"{what}, of {original.name}", EVERYTHING, begin, end, is_exclusive=True)

    def _start_copy(self, original: Node, node_id: int, directory: Path) -> subprocess.Popen[bytes]:
        directory.mkdir()
        properties = self._cluster.properties(original)
        own = [(address.listener, *reserve_port()) for address in addresses(self._cluster, original)]
        properties |= {
            "node.id": str(node_id),
            "listeners": ",".join(f"{name}://{original.host}:{port}" for name, port, _ in own),
            "advertised.listeners": properties.get("advertised.listeners", properties["listeners"]),
            "log.dirs": str(directory / "data"),
        }
        file = directory / "server.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        command = [*self._cluster.command(original)[:-1], str(file)]
        try:
            with (directory / "process.log").open("wb") as log:
                environment = {**os.environ, PARENT_PID_VARIABLE: str(os.getpid())}  # it ends with this process
                return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        finally:
            for _, _, reservation in own:
                reservation.close()

    # Directories

    def _swap_directories(self) -> Fault:
        one, other = (self._cluster.nodes[id_] for id_ in self._random.sample(range(BROKERS), 2))

        def begin() -> None:
            for node in (one, other):
                self._cluster.stop_node(node, signal.SIGKILL)
            _swap(one, other)
            for node in (one, other):
                self._cluster.start_node(node)
            for node in (one, other):
                eventually(f"{node.name} refuses another broker's data", lambda node=node: not node.is_running)  # type: ignore[misc]

        def end() -> None:
            _swap(one, other)
            for node in (one, other):
                self._cluster.start_node(node)

        return Fault(f"swap the directories of {one.name} and {other.name}", EVERYTHING, begin, end, is_exclusive=True)

    # Pushes

    def _stray_pushes(self) -> Fault:
        return Fault("stray pushes to every listener", frozenset(), self._push, lambda: None)

    def _push(self) -> None:
        cluster_id, topic_id = self._known()
        for node in self._cluster.brokers:
            for _, host, port in addresses(self._cluster, node):
                for push, version in self._pushes(cluster_id, topic_id, node.node_id):
                    with (
                        contextlib.suppress(OSError),
                        self._stranger(host, port, timeout_ms=ANSWER_TIMEOUT_MS) as connection,
                    ):
                        connection.send(push, version)

    @property
    def _stranger(self) -> Connect:
        """Connects as a client, which has a right to describe the topic and no more."""
        return self._cluster.access.connect(WATCHER)

    def _known(self) -> tuple[str, bytes]:
        """The cluster id and the topic's id, which any client can request; empty ones if no broker answers now."""
        for node in self._cluster.brokers:
            with contextlib.suppress(OSError), self._stranger(node.host, node.port, timeout_ms=500) as connection:
                answer = connection.send(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
                ids = {topic.name: topic.topic_id for topic in answer.topics}
                return answer.cluster_id or "", ids.get(TOPIC, bytes(16))
        return "", bytes(16)

    def _pushes(self, cluster_id: str, topic_id: bytes, broker_id: int) -> Iterator[tuple[Push, int]]:
        """Pushes that look as much like the controller's as a client can make them."""
        epoch = self._random.choice(CONTROLLER_EPOCHS)
        broker_epoch = self._random.choice((-1, 0, 2**63 - 1))
        for push, version in forged_pushes(TOPIC, PARTITIONS, controller_epoch=epoch, broker_epoch=broker_epoch):
            receiver = Receiver(cluster_id, broker_id, self._random.randbytes(16))
            add_forged_tags(push, receiver, self._random.choice((0, 10**6, 2**63 - 1)), [topic_id])
            yield push, version


def _swap(one: Node, other: Node) -> None:
    spare = one.directory / "data.swapped"
    (one.directory / "data").rename(spare)
    (other.directory / "data").rename(one.directory / "data")
    spare.rename(other.directory / "data")


def move_away(data: Path) -> Path:
    """Move a data directory aside, where a failed test can be analysed; return the new path."""
    number = next(n for n in itertools.count() if not data.with_name(f"lost-{n}").exists())
    return data.rename(data.with_name(f"lost-{number}"))
