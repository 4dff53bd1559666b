"""RaftStatus and History: what a replica shows of the quorum."""

from __future__ import annotations

from collections import deque

from barnabas.controller.raft.client.status import HISTORY_MAX, History
from barnabas.controller.raft.quorum import Transition
from tests.controller.raft.client.rig import Node, Quorum, batch_of


def others(quorum: Quorum, leader: Node) -> list[Node]:
    return [node for node in quorum.nodes.values() if node is not leader]


def reasons(node: Node) -> list[str]:
    return [entry.what.reason for entry in node.driver.elections()]


def test_the_leader_knows_how_far_each_voter_is() -> None:
    quorum = Quorum()
    leader = quorum.elect()
    quorum.run(1_000)
    slow, fast = others(quorum, leader)
    behind = leader.driver.end_offset
    slow.is_cut = True
    leader.driver.append(leader.driver.leader_and_epoch.epoch, batch_of("a", "b"))
    quorum.run(500)
    status = leader.driver.status()
    ends = {member.key.id: member.end_offset for member in status.voters}
    assert ends == {leader.id: behind + 2, fast.id: behind + 2, slow.id: behind}
    ages = {member.key.id: member.fetched_ms for member in status.voters}
    assert ages[leader.id] == 0
    assert ages[fast.id] < ages[slow.id]
    assert (status.role, status.leader_id, status.high_watermark) == ("leader", leader.id, behind + 2)
    assert status.voted == leader.key
    assert [member.address for member in status.voters] == ["n1:9001", "n2:9002", "n3:9003"]


def test_a_follower_knows_the_end_of_its_own_log_only() -> None:
    quorum = Quorum()
    leader = quorum.elect()
    quorum.run(1_000)
    follower = others(quorum, leader)[0]
    status = follower.driver.status()
    assert (status.role, status.leader_id, status.is_voter) == ("follower", leader.id, True)
    assert {member.key.id: member.end_offset for member in status.voters if member.end_offset >= 0} == {
        follower.id: follower.driver.end_offset
    }


def test_the_first_voter_set_is_a_change_until_it_is_committed() -> None:
    quorum = Quorum()
    for node in quorum.nodes.values():
        assert not node.driver.status().is_changing
    leader = quorum.elect()
    leader.driver.history.note(deque(), 0, 0)
    assert not leader.driver.status().is_changing  # committed by the election


def test_each_role_has_a_reason() -> None:
    quorum = Quorum()
    first = quorum.elect()
    quorum.run(1_000)
    assert reasons(first)[0] == "the process started"
    assert reasons(first)[-1].startswith("controllers ")
    assert reasons(first)[-1].endswith(" voted for it")
    first.is_cut = True
    second = quorum.elect()
    quorum.run(5_000)
    assert f"controller {first.id}, the leader, did not answer for 2000 ms" in reasons(second)
    assert "no majority fetched for 3000 ms" in reasons(first)
    assert any(entry.what.role == "resigned" for entry in first.driver.elections())


def test_a_leader_that_gives_up_is_named_by_the_others() -> None:
    quorum = Quorum()
    first = quorum.elect()
    quorum.run(1_000)
    first.driver.resign(first.driver.leader_and_epoch.epoch)
    second = quorum.elect()
    assert second is not first
    assert f"controller {first.id}, the leader, resigned" in reasons(second)
    assert "it was asked to give up the lead" in reasons(first)


def test_a_candidate_measures_its_election() -> None:
    quorum = Quorum()
    took: dict[int, list[float]] = {node.id: [] for node in quorum.nodes.values()}
    for node in quorum.nodes.values():
        node.driver.history.on_elected = took[node.id].append
    leader = quorum.elect()
    assert len(took[leader.id]) == 1
    assert took[leader.id][0] >= 0


def test_the_history_is_bounded() -> None:
    history = History()
    for number in range(3 * HISTORY_MAX):
        history.note(deque([Transition("unattached", number, None, "x")]), number, number)
    entries = history.entries()
    assert len(entries) == HISTORY_MAX
    assert (entries[0].at_ms, entries[-1].at_ms) == (2 * HISTORY_MAX, 3 * HISTORY_MAX - 1)


def test_an_election_ends_with_a_leader_whoever_it_is() -> None:
    history, took = History(), list[float]()
    history.on_elected = took.append

    def note(role: str, now_ms: int) -> None:
        history.note(deque([Transition(role, 1, None, "x")]), now_ms, 0)

    note("follower", 5)
    note("candidate", 10)
    note("prospective", 20)
    note("follower", 50)
    note("follower", 60)
    note("candidate", 100)
    note("candidate", 130)
    note("leader", 140)
    assert took == [40, 10]
