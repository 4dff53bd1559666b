"""RaftDriver: quorums in one thread, whose disks are in memory."""

from __future__ import annotations

import pytest

from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.controller.raft.batches import Batch
from barnabas.controller.raft.client.interface import LeaderAndEpoch
from barnabas.protocol.errors import ApiError
from barnabas.protocol.records.batch import set_offset_and_epoch
from tests.controller.raft.client.rig import Node, Quorum, batch_of, config_record, open_log


def names(quorum: Quorum) -> list[list[str]]:
    return [node.listened.names for node in quorum.nodes.values() if node.is_up]


def append(leader: Node, *records: str) -> int:
    return leader.driver.append(leader.driver.leader_and_epoch.epoch, batch_of(*records))


def write_alone(node: Node) -> None:
    """Give a node the log of a single controller."""
    node.fs = MemoryFileSystem()
    log = open_log(node.fs, node.membership)
    data = batch_of("a", "b")
    set_offset_and_epoch(data, 0, 5)
    log.append([Batch(0, 1, 5, (), data)])
    log.flush()
    log.close()


def test_a_quorum_of_one_commits_without_the_network() -> None:
    quorum = Quorum(1)
    leader = quorum.elect()
    last = append(leader, "a", "b")
    assert leader.listened.names == []
    leader.driver.step()
    assert leader.listened.names == ["a", "b"]
    assert leader.driver.high_watermark == last + 1 == leader.driver.end_offset
    assert not leader.post.sent


@pytest.mark.parametrize("kraft_version", [0, 1])
def test_three_elect_and_replicate(kraft_version: int) -> None:
    quorum = Quorum(3, kraft_version)
    leader = quorum.elect()
    append(leader, "a")
    append(leader, "b", "c")
    quorum.run()
    assert names(quorum) == [["a", "b", "c"]] * 3
    followers = [node for node in quorum.nodes.values() if node is not leader]
    assert all(node.driver.leader_and_epoch == leader.driver.leader_and_epoch for node in followers)


def test_nothing_is_committed_without_a_majority() -> None:
    quorum = Quorum()
    leader = quorum.elect()
    for node in quorum.nodes.values():
        node.is_cut = node is not leader
    append(leader, "a")
    quorum.run()
    assert leader.listened.names == []


def test_a_new_leader_has_replayed_before_it_knows_that_it_leads() -> None:
    quorum = Quorum()
    first = quorum.elect()
    append(first, "a")
    quorum.run()
    first.crash()
    second = quorum.elect()
    assert second is not first
    assert second.listened.names == ["a"]
    append(second, "b")
    first.start()
    quorum.run(3_000)
    assert names(quorum) == [["a", "b"]] * 3


def test_a_leader_without_a_quorum_resigns_and_its_records_are_lost() -> None:
    quorum = Quorum()
    old = quorum.elect()
    epoch = old.driver.leader_and_epoch.epoch
    old.is_cut = True
    append(old, "lost")
    new = quorum.elect()
    quorum.run(4_000)
    assert old.listened.leaders[-1].leader_id is None
    with pytest.raises(ApiError):
        old.driver.append(epoch, batch_of("late"))
    append(new, "kept")
    old.is_cut = False
    quorum.run(5_000)
    leader = quorum.elect()
    append(leader, "more")
    quorum.run()
    assert names(quorum) == [["kept", "more"]] * 3


def test_an_append_for_another_epoch_is_refused() -> None:
    quorum = Quorum()
    leader = quorum.elect()
    epoch = leader.driver.leader_and_epoch.epoch
    follower = next(node for node in quorum.nodes.values() if node is not leader)
    for node, wrong in ((leader, epoch - 1), (leader, epoch + 1), (follower, epoch)):
        with pytest.raises(ApiError):
            node.driver.append(wrong, batch_of("a"))


def test_everything_committed_outlives_a_power_cut() -> None:
    quorum = Quorum()
    leader = quorum.elect()
    append(leader, "a")
    quorum.run()
    for node in quorum.nodes.values():
        node.crash()
    for node in quorum.nodes.values():
        node.start()
    append(quorum.elect(), "b")
    quorum.run()
    assert names(quorum) == [["a", "b"]] * 3


def test_a_restarted_leader_does_not_lead_its_old_epoch() -> None:
    quorum = Quorum(1)
    leader = quorum.elect()
    epoch = leader.driver.leader_and_epoch.epoch
    append(leader, "a")
    quorum.settle()
    leader.crash()
    leader.start()
    quorum.elect()
    assert [found.epoch > epoch for found in leader.listened.leaders if found.leader_id == 1] == [True]
    assert leader.listened.names == ["a"]


def test_a_resignation_is_reported_at_once() -> None:
    quorum = Quorum()
    leader = quorum.elect()
    epoch = leader.driver.leader_and_epoch.epoch
    leader.driver.resign(epoch - 1)
    leader.driver.step()
    assert leader.leads
    leader.driver.resign(epoch)
    leader.driver.step()
    assert leader.listened.leaders[-1] == LeaderAndEpoch(None, epoch)


def test_a_follower_that_is_behind_a_snapshot_loads_it() -> None:
    quorum = Quorum()
    leader = quorum.elect()
    late = next(node for node in quorum.nodes.values() if node is not leader)
    append(leader, "a")
    quorum.run()
    late.crash()
    append(leader, "b")
    append(leader, "c")
    quorum.run()
    end, epoch = leader.driver.high_watermark, leader.driver.leader_and_epoch.epoch
    assert leader.driver.create_snapshot(end, map(config_record, leader.listened.names), epoch) is not None
    assert leader.driver.create_snapshot(end, [], epoch) is None
    append(leader, "d")
    quorum.run()
    late.start()
    quorum.run(3_000)
    assert late.listened.snapshots != []
    assert names(quorum) == [["a", "b", "c", "d"]] * 3
    for node in quorum.nodes.values():
        node.crash()
        node.start()
    quorum.elect()
    quorum.run()
    assert names(quorum) == [["a", "b", "c", "d"]] * 3


def test_the_log_holds_what_was_written_in_its_epoch() -> None:
    quorum = Quorum(1)
    leader = quorum.elect()
    epoch = leader.driver.leader_and_epoch.epoch
    last = append(leader, "a")
    driver = leader.driver
    assert driver.holds(last, epoch)
    assert driver.holds(last, -1)
    assert not driver.holds(last + 1, epoch)
    assert not driver.holds(last, epoch + 1)
    assert not driver.holds(last, epoch - 1)


def test_inputs_that_come_together_share_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum(1)
    leader = quorum.elect()
    flushes: list[None] = []
    monkeypatch.setattr(leader.log, "flush", lambda: flushes.append(None))
    for name in "abc":
        append(leader, name)
    leader.driver.step()
    assert leader.listened.names == ["a", "b", "c"]
    assert len(flushes) == 1


def test_the_end_tells_the_voters_and_the_listener() -> None:
    quorum = Quorum()
    leader = quorum.elect()
    leader.driver.shutdown(0)
    leader.driver.run()
    assert leader.listened.has_ended
    leader.is_up = False
    assert quorum.elect() is not leader


def test_new_controllers_with_empty_logs_do_not_take_the_log_of_a_single_one_away() -> None:
    quorum = Quorum(3, kraft_version=0)
    alone = quorum.nodes[1]
    alone.crash()
    write_alone(alone)
    quorum.elect()
    for _ in range(2):  # the second start finds quorum-state
        alone.start()
        quorum.run(5_000)
        assert alone.driver.holds(1, 5)
        alone.crash()


def test_copies_of_the_log_of_a_single_controller_go_on() -> None:
    quorum = Quorum(3, kraft_version=0)
    for node in quorum.nodes.values():
        node.crash()
        write_alone(node)
        node.start()
    append(quorum.elect(), "c")
    quorum.run()
    assert names(quorum) == [["a", "b", "c"]] * 3
