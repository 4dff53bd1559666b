"""Faults of the disks of nodes, in words and in effect."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.testing.simulation import disk_actions
from barnabas.testing.simulation.machine.disk import SimulatedDisk
from tests.barnabas.testing.simulation.machine.conftest import Machine, machine, make_machine  # noqa: F401


class Node(SimpleNamespace):
    """What an action needs of a node."""

    def directories(self) -> list[str]:
        return ["/d"]

    def kill(self) -> None:
        self.disk = self.disk.kill()


@pytest.fixture
def node(machine: Machine) -> Any:  # noqa: F811
    disk = SimulatedDisk()
    disk.mkdir("/d")
    for name in ("meta.properties", ".lock", "1.log", "2.log", "index"):
        disk.write_bytes(f"/d/{name}", b"0123456789", sync=True)
    return Node(name="broker-0", disk=disk, disks=1)


def test_a_full_disk(node: Any) -> None:
    told = disk_actions.fill(node, random.Random(1))
    assert told.startswith("the disk of broker-0 is full but for ")
    assert node.disk.faults.is_full


def test_a_failing_disk(node: Any) -> None:
    told = disk_actions.fail(node, random.Random(1))
    assert " in /d of broker-0 fails" in told
    assert not node.disk.faults.is_sound


def test_a_slow_disk(node: Any) -> None:
    assert disk_actions.slow_down(node, random.Random(1)).startswith("a flush of broker-0 takes up to ")
    assert node.disk.faults.flush_ns() > 0


def test_a_replaced_disk_is_empty(node: Any) -> None:
    assert disk_actions.replace(node) == "broker-0 is killed, and gets an empty disk"
    assert node.disk.files() == []
    assert node.disks == 2


def test_emptied_files_are_named_and_the_identity_is_kept(node: Any) -> None:
    for seed in range(30):
        told = disk_actions.empty_files(node, random.Random(seed))
    assert "/d/2.log" in told or "/d/index" in told
    sizes = {entry.name: entry.size for entry in node.disk.listdir("/d")}
    assert sizes == {".lock": 10, "meta.properties": 10, "1.log": 10, "2.log": 0, "index": 0}
