"""Random lives of quorums with their disks in memory: driver.py, raft_log.py and snapshot_files.py together.

Processes end by kill -9 and by power cuts, also in the middle of what they write. Nodes are cut off. Snapshots replace
logs. What one listener has had, every listener has in the end, in the same order.
"""

from __future__ import annotations

from random import Random

import pytest

from barnabas.common.disk.faulty_files import DiskFaultError, FaultyFileSystem
from barnabas.protocol.errors import ApiError
from tests.controller.raft.client.rig import Node, Quorum, batch_of, config_record

ROUNDS = 150


class Life:
    """One quorum and its history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.quorum = Quorum(3, self.random.choice((0, 1)))
        self.committed: list[str] = []
        self.count = 0

    def live(self) -> None:
        for _ in range(ROUNDS):
            node = self.random.choice(list(self.quorum.nodes.values()))
            self.random.choice((*[self.append] * 5, self.crash, self.crash, self.cut, self.snapshot))(node)
            self.run(self.random.choice((50, 300, 2_000)))
        for node in self.quorum.nodes.values():
            node.is_cut = False
            node.disk.fail_at = 0
            if not node.is_up:
                node.start()
        self.run(10_000)
        leader = self.quorum.elect()
        leader.driver.append(leader.driver.leader_and_epoch.epoch, batch_of("last"))
        self.run(1_000)
        assert self.committed[-1] == "last"
        for node in self.quorum.nodes.values():
            assert node.listened.names == self.committed

    def run(self, duration_ms: int) -> None:
        """Let time pass; every listener has the beginning of one history."""
        for _ in range(duration_ms // 50):
            self.quorum.run(50)
            for node in self.quorum.nodes.values():
                names = node.listened.names
                if len(names) > len(self.committed):
                    assert names[: len(self.committed)] == self.committed
                    self.committed = list(names)
                assert names == self.committed[: len(names)]

    def append(self, _: Node) -> None:
        """Append to every node that leads, or believes so."""
        for node in self.quorum.nodes.values():
            if node.leads:
                self.count += 1
                try:
                    node.driver.append(node.driver.leader_and_epoch.epoch, batch_of(f"r{self.count}"))
                except ApiError:
                    continue

    def crash(self, node: Node) -> None:
        """End a process, or start it again."""
        if not node.is_up:
            node.start()
        elif self.random.random() < 0.3:
            node.fail_after(self.random.randrange(1, 20))
        elif self.random.random() < 0.5:
            node.crash(self.random)
        else:
            node.kill()

    def cut(self, node: Node) -> None:
        node.is_cut = self.random.random() < 0.3

    def snapshot(self, node: Node) -> None:
        """Replace what a node's listener has had."""
        end_offset, epoch = node.listened.next_offset, node.listened.epoch
        if node.is_up and end_offset and node.disk.fail_at == 0:
            records = [config_record(name) for name in node.listened.names]
            node.driver.create_snapshot(end_offset, records, epoch)


@pytest.mark.parametrize("seed", range(8))
def test_all_listeners_have_one_history(seed: int) -> None:
    Life(seed).live()


def test_a_disk_that_fails_ends_the_process() -> None:
    quorum = Quorum(1)
    leader = quorum.elect()
    leader.disk.fail_at = leader.disk.operations + 1
    leader.driver.append(leader.driver.leader_and_epoch.epoch, batch_of("a"))
    with pytest.raises((DiskFaultError, ApiError)):
        leader.driver.step()
    assert leader.listened.names == []
    assert isinstance(leader.disk, FaultyFileSystem)
