"""Which controller is active, and whether the others follow it."""

from __future__ import annotations

from typing import cast

import pytest

from barnabas.cluster import Node
from barnabas.protocol.messages.k55_describe_quorum import ReplicaState, ResponsePartitionData
from benchmarks.quorum import clusters


class Controllers:
    """Three controllers; some may have ended."""

    def __init__(self, ended: tuple[int, ...]) -> None:
        self.controllers = [RunningNode(number, is_running=number not in ended) for number in (100, 101, 102)]


class RunningNode:
    def __init__(self, node_id: int, *, is_running: bool) -> None:
        self.node_id = node_id
        self.is_running = is_running


def quorum(epoch: int, *ends: int) -> ResponsePartitionData:
    voters = [ReplicaState(replica_id=number, log_end_offset=end) for number, end in enumerate(ends, 100)]
    return ResponsePartitionData(leader_epoch=epoch, current_voters=voters)


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> dict[int, ResponsePartitionData]:
    """What the controllers answer, by id."""
    answers: dict[int, ResponsePartitionData] = {}
    monkeypatch.setattr(clusters, "_described", lambda node: answers.get(node.node_id))
    return answers


def cluster(ended: tuple[int, ...] = ()) -> clusters.Cluster:
    return cast(clusters.Cluster, Controllers(ended))


def test_the_active_controller_leads_in_the_latest_epoch(described: dict[int, ResponsePartitionData]) -> None:
    assert clusters.active_controller(cluster()) is None
    described[100], described[102] = quorum(4, 9, 9, 9), quorum(5, 9, 9, 9)
    active = clusters.active_controller(cluster())
    assert cast(Node, active).node_id == 102


def test_all_controllers_must_run_and_be_near_the_end(described: dict[int, ResponsePartitionData]) -> None:
    assert not clusters.have_caught_up(cluster())
    described[101] = quorum(4, 1000, 1002, 995)
    assert clusters.have_caught_up(cluster())
    assert not clusters.have_caught_up(cluster(ended=(100,)))
    described[101] = quorum(4, 1000, 1002, 10)
    assert not clusters.have_caught_up(cluster())
