"""Kafka's raft-metrics of a replica."""

from __future__ import annotations

import pytest

from barnabas.common.clock import FakeClock
from barnabas.common.ids import uuid_to_string
from barnabas.controller.raft.client.raft_metrics import show_quorum, show_thread, show_without_thread, state_of
from barnabas.controller.raft.client.status import Member, RaftStatus
from barnabas.controller.raft.voter_set import ReplicaKey
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue as rows
from tests.controller.raft.client.rig import Node, Quorum, batch_of

ONE, TWO = ReplicaKey(1, bytes(15) + b"\1"), ReplicaKey(2, bytes(15) + b"\2")


def status(role: str = "follower", **changes: object) -> RaftStatus:
    found = RaftStatus(ONE, role, 5, 2, None, 10, 11, 4, 1, (Member(ONE, "a:1"), Member(TWO, "b:1")))
    return found._replace(**changes)


def numbers(registry: Registry) -> dict[str, float]:
    found = {}
    for row, instruments in registry.collect():
        for _, instrument in instruments:
            read = getattr(instrument, "read", None)
            if callable(read):
                found[row.name] = read()
    return found


def words(registry: Registry) -> dict[str, tuple[str, ...]]:
    return {table.rows[0].name: next(iter(table.read()))[0] for table in registry.tables()}


@pytest.mark.parametrize(
    ("shown", "word"),
    [
        (status(), "follower"),
        (status(voters=(Member(TWO),)), "observer"),
        (status("leader", voted=ONE), "leader"),
        (status("candidate", voted=ONE), "candidate"),
        (status("prospective"), "prospective"),
        (status("prospective", voted=TWO), "prospective-voted"),
        (status("unattached"), "unattached"),
        (status("unattached", voted=TWO), "unattached-voted"),
        (status("resigned"), "unattached"),
    ],
)
def test_the_state_has_kafkas_words(shown: RaftStatus, word: str) -> None:
    assert state_of(shown) == word


def test_the_gauges_follow_the_replica() -> None:
    registry = Registry(FakeClock())
    seen = [status()]
    show_quorum(registry, lambda: seen[0], lambda: 3)
    assert numbers(registry) == {
        "current-leader": 2,
        "current-vote": -1,
        "current-epoch": 5,
        "high-watermark": 10,
        "log-end-offset": 11,
        "log-end-epoch": 4,
        "number-of-voters": 2,
        "number-of-observers": 3,
        "number-unknown-voter-connections": 0,
        "uncommitted-voter-change": 0,
    }
    assert words(registry) == {
        "current-state": ("follower",),
        "current-vote-directory-id": (uuid_to_string(bytes(16)),),
    }
    seen[0] = status(
        "unattached", leader_id=None, voted=TWO, unreachable_voters=1, is_changing=True, observers=(Member(TWO),)
    )
    found = numbers(registry)
    assert (found["current-leader"], found["current-vote"]) == (-1, 2)
    assert (found["number-unknown-voter-connections"], found["uncommitted-voter-change"]) == (1, 1)
    assert found["number-of-observers"] == 4
    assert words(registry)["current-vote-directory-id"] == (uuid_to_string(TWO.directory_id),)


def registry_of(quorum: Quorum, node: Node) -> Registry:
    registry = Registry(quorum.clock)
    show_thread(registry, node.driver)
    return registry


def test_followers_count_the_records_that_they_fetch() -> None:
    quorum = Quorum()
    registries = {node.id: registry_of(quorum, node) for node in quorum.nodes.values()}
    leader = quorum.elect()
    quorum.run()
    leader.driver.append(leader.driver.leader_and_epoch.epoch, batch_of("a", "b"))
    quorum.run()
    fetched = {id_: registry.sensor(rows.RAFT_FETCH_RECORDS).count for id_, registry in registries.items()}
    end = leader.driver.end_offset
    assert fetched == {node.id: 0 if node is leader else end for node in quorum.nodes.values()}
    assert registries[leader.id].avg_max(rows.RAFT_ELECTION_LATENCY).snapshot()[1] >= 0


def test_the_raft_thread_is_idle_while_it_waits() -> None:
    clock = FakeClock()
    quorum = Quorum(1)
    node = quorum.elect()
    registry = Registry(clock)
    show_thread(registry, node.driver)
    clock.advance_ms(3_000)
    node.driver.idle_ns += 3_000_000_000
    assert numbers(registry)["poll-idle-ratio-avg"] == 1
    clock.advance_ms(57_000)
    node.driver.idle_ns += 42_000_000_000
    assert numbers(registry)["poll-idle-ratio-avg"] == 0.75


def test_a_single_controller_has_the_same_rows() -> None:
    registry = Registry(FakeClock())
    show_without_thread(registry, lambda: 0.5)
    shown = {row for row, _ in registry.collect()}
    assert shown == {rows.RAFT_ELECTION_LATENCY, rows.RAFT_FETCH_RECORDS, rows.RAFT_POLL_IDLE_RATIO}
