"""Which ends of a simulated process are a problem."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cluster.node import Node
from barnabas.common import threads
from barnabas.controller.raft.client.interface import LeaderAndEpoch
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.testing.simulation.machine.disk_faults import WRITE, Failing
from barnabas.testing.simulation.nodes import Nodes, SimulatedBroker, SimulatedController, SimulatedNode
from tests.barnabas.testing.simulation.machine.conftest import Machine, machine, make_machine  # noqa: F401

FAILED = OSError(errno.EIO, "Input/output error")
OFFLINE = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the log is offline")
BUG = AssertionError("the image matches the end of the log")


def ended(machine: Machine, kind: type[SimulatedNode], error: Exception, *, on_a_bad_disk: bool) -> SimulatedNode:  # noqa: F811
    """A node, one of whose threads died."""
    planned = Node("node", 1, 0, 0, Path("/data"))
    node = kind(machine.scheduler, planned, {})
    node.process = machine.process()
    if on_a_bad_disk:
        node.disk.faults.fail(Failing("/data", frozenset({WRITE}), 1.0))
        with pytest.raises(OSError):
            node.disk.write_bytes("/data/file", b"", sync=False)
    node.thread_died("event-handler", error)
    assert not node.is_running
    return node


@pytest.mark.parametrize("error", [FAILED, OFFLINE])
def test_a_controller_may_end_by_an_error_of_its_disk(machine: Machine, error: Exception) -> None:  # noqa: F811
    assert ended(machine, SimulatedController, error, on_a_bad_disk=True).problems == []


@pytest.mark.parametrize(
    ("kind", "error", "on_a_bad_disk"),
    [
        (SimulatedController, BUG, True),
        (SimulatedController, OFFLINE, False),
        (SimulatedBroker, OFFLINE, True),
    ],
)
def test_any_other_death_of_a_thread_is_a_problem(
    machine: Machine,  # noqa: F811
    kind: type[SimulatedNode],
    error: Exception,
    on_a_bad_disk: bool,
) -> None:
    (problem,) = ended(machine, kind, error, on_a_bad_disk=on_a_bad_disk).problems
    assert problem.startswith("node-1: thread event-handler died: ")


@pytest.fixture
def nodes(machine: Machine) -> Iterator[Nodes]:  # noqa: F811
    """Three controllers and a broker, which do not run."""
    handler = threads._fatal_handler
    yield Nodes(machine.scheduler, machine.network, 1, {}, controller_count=3)
    threads.set_fatal_handler(handler)


def run(machine: Machine, node: SimulatedController, offset: int, *, leads: int = -1) -> None:  # noqa: F811
    """Let a controller run that knows what is committed up to an offset, and that leads an epoch or follows 101."""
    leader = LeaderAndEpoch(node.node.node_id, leads) if leads >= 0 else LeaderAndEpoch(101, 2)
    quorum: Any = SimpleNamespace(outline=SimpleNamespace(end_offset=offset + 1))
    image = SimpleNamespace(offset=offset)
    found = SimpleNamespace(
        committed_image=image, committed_offset=offset, image=SimpleNamespace(offset=offset), is_active=leads >= 0,
        epoch=leader.epoch, leader=leader,
    )  # fmt: skip
    node.process = machine.process()
    node.server = SimpleNamespace(controller=found, raft=SimpleNamespace(_replica=SimpleNamespace(quorum=quorum)))


def test_several_controllers_know_the_same_voters_and_cluster(nodes: Nodes) -> None:
    voters = {each.properties["controller.quorum.voters"] for each in nodes.by_id.values()}
    assert voters == {",".join(f"{each.node.node_id}@{each.node.host}:{each.node.port}" for each in nodes.controllers)}
    assert len({each.cluster_id for each in nodes.controllers}) == 1
    assert nodes.controllers[0].cluster_id


def test_the_active_controller_is_that_of_the_newest_epoch(machine: Machine, nodes: Nodes) -> None:  # noqa: F811
    first, second, third = nodes.controllers
    assert nodes.controller is first
    run(machine, third, 5, leads=1)
    assert nodes.controller is third
    run(machine, second, 5, leads=2)
    assert nodes.controller is second


def test_what_is_committed_is_known_while_a_controller_runs_that_has_all_of_it(
    machine: Machine,  # noqa: F811
    nodes: Nodes,
) -> None:
    first, second, _ = nodes.controllers
    assert nodes.committed_image() is None
    run(machine, first, 5)
    run(machine, second, 7, leads=2)
    assert nodes.committed_image() is second.server.controller.committed_image
    second.kill()
    assert nodes.committed_offset == 7
    assert nodes.committed_image() is None
    run(machine, first, 7)
    assert nodes.committed_image() is first.server.controller.committed_image


def test_controllers_agree_once_each_has_everything(machine: Machine, nodes: Nodes) -> None:  # noqa: F811
    first, second, third = nodes.controllers
    run(machine, first, 7)
    run(machine, second, 7, leads=2)
    assert not nodes.controllers_agree()
    run(machine, third, 6)
    assert not nodes.controllers_agree()
    run(machine, third, 7)
    assert nodes.controllers_agree()
    run(machine, first, 7, leads=1)  # it has not heard of the next epoch
    assert not nodes.controllers_agree()


def test_a_change_on_its_way_is_seen_before_it_is_committed(machine: Machine, nodes: Nodes) -> None:  # noqa: F811
    run(machine, nodes.controllers[1], 7, leads=2)
    assert not nodes.is_deciding()
    active: Any = nodes.controllers[1].server.controller
    active.image = SimpleNamespace(offset=8)
    assert nodes.is_deciding()
    active.image = SimpleNamespace(offset=7)
    (broker,) = nodes.brokers
    broker.process = machine.process()
    role = SimpleNamespace(is_isr_change_in_flight=False)
    partitions = [SimpleNamespace(role=role)]
    manager = SimpleNamespace(partitions=lambda: partitions)
    broker.server = SimpleNamespace(services=SimpleNamespace(replica_manager=manager))
    assert not nodes.is_deciding()
    role.is_isr_change_in_flight = True
    assert nodes.is_deciding()
