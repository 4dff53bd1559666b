"""What leaders know, on objects made for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from barnabas.broker.replication.role import Role
from barnabas.common.topic_partition import TopicPartition
from tests.simulation.cluster.leaders import Leaders

TP = TopicPartition("t", 0)
TOPIC_ID = b"t" * 16


class Rig:
    """A cluster whose broker 0 leads epoch 3 of a partition from offset 10 on."""

    def __init__(self) -> None:
        self.epochs = [(2, 0), (3, 10)]
        self.followers = {1: SimpleNamespace(log_end_offset=12), 2: SimpleNamespace(log_end_offset=8)}
        log = SimpleNamespace(
            log_start_offset=0,
            _state=SimpleNamespace(is_usable=True, leader_epochs=SimpleNamespace(entries=self.epochs)),
        )
        self.partition = SimpleNamespace(
            tp=TP, topic_id=TOPIC_ID, log=log, _followers=SimpleNamespace(states=self.followers)
        )
        self.lead({0, 1})
        manager = SimpleNamespace(partitions=lambda: [self.partition])
        broker = SimpleNamespace(
            name="broker-0", is_running=True, server=SimpleNamespace(services=SimpleNamespace(replica_manager=manager))
        )
        self.registered = SimpleNamespace(has_online_dir=lambda _directory: self.is_online)
        self.is_online = True
        self.commit(0, 1)
        self.is_power_out = False
        nodes = SimpleNamespace(brokers=[broker], committed_image=lambda: self.image)
        self.leaders = Leaders(nodes, lambda: self.is_power_out)

    def lead(self, isr: set[int], joining: set[int] = frozenset()) -> None:
        """Give the leader an ISR, and one that is on its way."""
        self.partition.role = Role(
            is_leader=True, leader_epoch=3, isr=frozenset(isr), maximal_isr=frozenset(isr | joining),
            leader_epoch_start_offset=10,
        )  # fmt: skip

    def commit(self, *isr: int) -> None:
        """Commit an ISR."""
        state = SimpleNamespace(leader=0, leader_epoch=3, isr=isr, directory=lambda _broker: b"d")
        topic = SimpleNamespace(name="t", partitions={0: state})
        self.image: Any = SimpleNamespace(
            topics={TOPIC_ID: topic},
            brokers={0: self.registered},
            each_partition=lambda: [(topic, 0, state)],
        )

    def wrong(self, looks: int = 1) -> list[str]:
        """What some looks find."""
        for _ in range(looks):
            self.leaders.look()
        return self.leaders.problems


def test_a_sound_leader() -> None:
    rig = Rig()
    rig.commit(0)
    assert rig.wrong(3) == [], "the leader may count on more than is committed"


def test_an_isr_that_the_leader_does_not_count_on() -> None:
    rig = Rig()
    rig.commit(0, 1, 2)
    rig.lead({0, 1}, joining={2})
    assert rig.wrong() == []
    rig.lead({0, 1})
    assert rig.wrong() == ["t-0: the ISR [0, 1, 2] is committed, but the leader broker-0 counts on [0, 1] only"]


def test_a_follower_that_joins_too_early() -> None:
    rig = Rig()
    assert rig.wrong() == []
    rig.lead({0, 1, 2})
    rig.is_power_out = True
    assert rig.wrong() == []
    rig.lead({0, 1})
    rig.is_power_out = False
    assert rig.wrong() == []
    rig.lead({0, 1, 2})
    assert rig.wrong() == ["t-0: broker 2 joined the ISR with 8 offsets, below the start 10 of epoch 3 of broker-0"]


def test_a_log_that_forgot_its_leaders_epoch() -> None:
    rig = Rig()
    rig.epochs[:] = [(2, 12)]
    assert rig.wrong() == [], "a look may come amid a change"
    assert rig.wrong() == ["t-0: broker-0 leads epoch 3 from 10 on, its log knows (2, 12)"]


def test_a_log_that_begins_above_the_epoch_or_has_a_newer_one() -> None:
    rig = Rig()
    rig.partition.log.log_start_offset = 15
    rig.epochs[:] = [(3, 15)]
    assert rig.wrong(2) == []
    rig.epochs[:] = [(4, 20)]
    assert rig.wrong(2) == [], "it is about to lead the next epoch"


def test_a_leader_whose_directory_has_failed() -> None:
    rig = Rig()
    rig.is_online = False
    assert rig.wrong() == ["t-0: broker 0 leads, but has reported the log directory 64 as failed"]
