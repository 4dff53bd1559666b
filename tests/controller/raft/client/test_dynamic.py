"""A quorum whose voters change (kraft.version 1), as processes: formatted, grown, without its leader, with a new disk.

Covers controller/metadata/format.py, controller/metadata/opened_log.py and broker/channels/active_controller.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.cli.admin.quorum import quorum as command
from barnabas.cluster import free_ports
from barnabas.controller.metadata.format import main as format_main
from tests.controller.raft.client.servers import HOST, WAIT_MS
from tests.controller.rig import CLUSTER_ID
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.processes import end_process, tied_to_parent
from tests.support.waiting import eventually

CONTROLLERS, BROKER = (1, 2, 3), 0


class DynamicQuorum:
    """Three controllers and a broker, which know the address of controller 1 alone."""

    def __init__(self, root: Path, *, is_static: bool = False) -> None:
        self._root = root
        *controllers, broker = free_ports(len(CONTROLLERS) + 1)
        self.ports = dict(zip(CONTROLLERS, controllers, strict=True))
        self.bootstrap = f"{HOST}:{broker}"
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        voters = ",".join(f"{node_id}@{HOST}:{port}" for node_id, port in self.ports.items())
        self.found_by = {"controller.quorum.bootstrap.servers": f"{HOST}:{self.ports[1]}"}
        if is_static:
            self.found_by = {"controller.quorum.voters": voters}
        for node_id in CONTROLLERS:
            self.write(node_id)
        self._write(BROKER, "broker", "PLAINTEXT", broker, self.found_by)

    def file(self, node_id: int) -> Path:
        """The configuration of a node."""
        return self._root / f"{node_id}.properties"

    def write(self, node_id: int, **settings: str) -> None:
        """Write the configuration of a controller; underscores stand for dots."""
        others = {name.replace("_", "."): value for name, value in settings.items()} or self.found_by
        self._write(node_id, "controller", "CONTROLLER", self.ports[node_id], others)

    def _write(self, node_id: int, role: str, listener: str, port: int, others: dict[str, str]) -> None:
        settings = {
            "process.roles": role,
            "node.id": str(node_id),
            **others,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://{HOST}:{port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(self._root / str(node_id)),
            "offsets.topic.replication.factor": "1",
        }
        self.file(node_id).write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def format(self, node_id: int, *how: str) -> None:
        """Format the directory of a controller."""
        assert format_main([str(self.file(node_id)), "--cluster-id", CLUSTER_ID, *how], {}) == 0

    def start(self, node_id: int) -> None:
        """Start a process."""
        role = "broker" if node_id == BROKER else "controller"
        line = [sys.executable, "-P", "-m", f"barnabas.{role}.main", str(self.file(node_id))]
        with (self._root / f"{node_id}.out").open("ab") as output:
            self._children[node_id] = subprocess.Popen(tied_to_parent(line), stdout=output, stderr=output)

    def kill(self, node_id: int) -> None:
        """End a process with SIGKILL."""
        child = self._children.pop(node_id)
        child.kill()
        child.wait()

    def lose_disk(self, node_id: int) -> None:
        """Take the directory of a controller away."""
        self.kill(node_id)
        shutil.rmtree(self._root / str(node_id))

    def stop(self) -> None:
        """End all processes."""
        for child in self._children.values():
            end_process(child)

    def ask(self, *arguments: str, at: int | None = None) -> Any:
        """Run `barnabas quorum`, through the broker or at a controller."""
        where = (
            ("--bootstrap", self.bootstrap) if at is None else ("--bootstrap-controller", f"{HOST}:{self.ports[at]}")
        )
        return CliRunner().invoke(command, [*arguments, *where])

    def status(self, at: int | None = None) -> dict[str, Any]:
        """Return what `barnabas quorum status` shows; empty while nobody leads."""
        answer = self.ask("status", "--json", at=at)
        return json.loads(answer.output) if answer.exit_code == 0 else {}

    def voters(self) -> set[int]:
        """Return the ids of the voters."""
        return {member["id"] for member in self.status().get("voters", ())}

    def create(self, topic: str) -> None:
        """Create a topic through the broker."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(topic, 1, 1)], request_timeout=30)[topic].result(60)

    def add(self, node_id: int) -> None:
        """Make a controller a voter, as soon as it has the log."""
        eventually("a voter more", lambda: self.ask("add", str(self.file(node_id))).exit_code == 0, WAIT_MS)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[DynamicQuorum]:
    """A first voter, two observers and a broker."""
    quorum = DynamicQuorum(tmp_path)
    quorum.format(1, "--standalone")
    for node_id in (2, 3):
        quorum.format(node_id, "--no-initial-controllers")
    try:
        for node_id in (*CONTROLLERS, BROKER):
            quorum.start(node_id)
        yield quorum
    finally:
        quorum.stop()


def test_voters_come_and_go(processes: DynamicQuorum, tools: KafkaTools) -> None:
    eventually("the broker serves", lambda: processes.status().get("leader") == 1, WAIT_MS)
    processes.create("a")
    assert processes.voters() == {1}
    # Two of them, by the tools of both.
    eventually("2 fetches", lambda: 2 in {each["id"] for each in processes.status()["observers"]}, WAIT_MS)
    tools.run(
        *("kafka-metadata-quorum", "--bootstrap-server", processes.bootstrap),
        *("--command-config", str(processes.file(2)), "add-controller"),
    ).check()
    processes.add(3)
    assert processes.voters() == {1, 2, 3}
    # Without the leader, and without the one address that all know.
    assert processes.ask("remove", "1").exit_code == 0
    eventually("another one leads", lambda: processes.status().get("leader") in (2, 3), WAIT_MS)
    processes.create("b")
    assert processes.voters() == {2, 3}
    # A lost disk.
    lost = next(id_ for id_ in (2, 3) if id_ != processes.status()["leader"])
    processes.add(1)
    before = {member["id"]: member["directory_id"] for member in processes.status()["voters"]}
    processes.lose_disk(lost)
    processes.format(lost, "--no-initial-controllers")
    processes.start(lost)
    eventually("it fetches", lambda: lost in {each["id"] for each in processes.status()["observers"]}, WAIT_MS)
    assert processes.ask("add", str(processes.file(lost))).exit_code == 1, "its old directory is a voter"
    assert processes.ask("remove", str(lost)).exit_code == 0
    processes.add(lost)
    after = {member["id"]: member["directory_id"] for member in processes.status()["voters"]}
    assert after.keys() == before.keys()
    assert {id_ for id_ in after if after[id_] != before[id_]} == {lost}
    # All of them end and start again.
    for node_id in CONTROLLERS:
        processes.kill(node_id)
    for node_id in CONTROLLERS:
        processes.start(node_id)
    processes.create("c")
    assert processes.voters() == {1, 2, 3}


def test_static_voters_become_voters_that_change(tmp_path: Path, tools: KafkaTools) -> None:
    """`kafka-features` upgrades kraft.version; a controller with a new disk then takes its own place by itself."""
    processes = DynamicQuorum(tmp_path, is_static=True)
    for node_id in CONTROLLERS:
        processes.format(node_id)
    try:
        for node_id in (*CONTROLLERS, BROKER):
            processes.start(node_id)
        eventually("the broker serves", lambda: processes.voters() == {1, 2, 3}, WAIT_MS)
        processes.create("a")
        assert processes.ask("remove", "3").exit_code == 1
        arguments = ("kafka-features", "--bootstrap-server", processes.bootstrap, "upgrade", "--feature")
        # Why more than once: each voter names its directory some seconds after the election.
        eventually("the upgrade", lambda: tools.run(*arguments, "kraft.version=1").exit_code == 0, WAIT_MS)
        described = tools.run("kafka-features", "--bootstrap-server", processes.bootstrap, "describe").stdout
        (line,) = [each for each in described.splitlines() if "Feature: kraft.version" in each]
        assert "SupportedMaxVersion: 1 FinalizedVersionLevel: 1 " in " ".join(line.split()), "as Apache's brokers do"
        before = {member["id"]: member["directory_id"] for member in processes.status()["voters"]}
        assert set(before) == {1, 2, 3}
        assert len(set(before.values())) == 3, "they have directories now"
        lost = next(id_ for id_ in (2, 3) if id_ != processes.status()["leader"])
        processes.lose_disk(lost)
        servers = f"{HOST}:{processes.ports[1]},{HOST}:{processes.ports[5 - lost]}"
        processes.write(lost, controller_quorum_bootstrap_servers=servers, controller_quorum_auto_join_enable="true")
        processes.format(lost, "--no-initial-controllers")
        processes.start(lost)

        def has_joined() -> bool:
            after = {member["id"]: member["directory_id"] for member in processes.status().get("voters", ())}
            return after.keys() == before.keys() and after[lost] != before[lost]

        eventually("it has joined", has_joined, WAIT_MS)
        processes.create("b")
    finally:
        processes.stop()
