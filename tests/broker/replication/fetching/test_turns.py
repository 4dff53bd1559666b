"""turns.py: what the leader was told, change by change, is always what the fetcher asks for."""

from __future__ import annotations

import random

import pytest

from barnabas.broker.replication.fetching.fetch_state import FetchState, Wanted
from barnabas.broker.replication.fetching.turns import COMPARE_MS, Turns
from barnabas.broker.replication.partition import Partition
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition

CLOCK = FakeClock()
TPS = [TopicPartition(topic, partition) for topic in "ab" for partition in range(3)]


def state(tp: TopicPartition, offset: int = 0, *, topic_id: bytes = b"1", delayed_until_ms: int = 0) -> FetchState:
    return FetchState(Partition(tp, tp.topic.encode() + topic_id, 1, CLOCK), 0, offset, 0, delayed_until_ms)


class Rig:
    """A fetcher's states, and the session as its leader has it."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.states: dict[TopicPartition, FetchState] = {}
        self.log_starts: dict[TopicPartition, int] = {}
        self.touched: dict[TopicPartition, None] = {}
        self.now_ms = 100_000
        self.leader: dict[tuple[bytes, int], Wanted] = {}
        self.throttled: set[TopicPartition] = set()

    def wanted(self, of: FetchState) -> Wanted:
        partition = of.partition
        start = self.log_starts.get(partition.tp, 0)
        return Wanted(partition.topic_id, of.fetch_offset, start, of.leader_epoch, of.last_fetched_epoch)

    def put(self, tp: TopicPartition, new: FetchState | None) -> None:
        if new is None:
            self.states.pop(tp, None)
        else:
            self.states[tp] = new
        self.touched[tp] = None

    def hold_back(self, asked: dict[TopicPartition, FetchState]) -> bool:
        held_back = [tp for tp in asked if tp in self.throttled]
        for tp in held_back:
            del asked[tp]
        return bool(held_back)

    def turn(self) -> int:
        """Prepare a request and send it, if it asks for anything; returns how many partitions it named."""
        self.turns.prepare(self.states, self.touched, self.now_ms, self.hold_back if self.throttled else None)
        assert not self.touched
        if not self.turns.asked:
            return 0
        is_new = self.turns.session.is_new
        build = self.turns.build(self.wanted)
        if is_new:
            self.leader = {}
        for tp, topic_id in build.forgotten.items():
            del self.leader[topic_id, tp.partition]
        for tp, item in build.changed.items():
            self.leader[item.topic_id, tp.partition] = item
            assert self.turns.tps[item.topic_id][tp.partition] == tp
        self.turns.session.accepted(7)
        return len(build.changed) + len(build.forgotten)

    def check(self) -> None:
        ready = {tp: s for tp, s in self.states.items() if s.is_ready(self.now_ms) and tp not in self.throttled}
        assert self.turns.asked == ready
        if ready:
            assert self.leader == {(s.partition.topic_id, tp.partition): self.wanted(s) for tp, s in ready.items()}


@pytest.mark.parametrize("seed", range(50))
def test_the_leader_knows_what_is_asked_for(seed: int) -> None:
    choose, rig = random.Random(seed), Rig()
    for _ in range(200):
        tp = choose.choice(TPS)
        deed = choose.randrange(8)
        if deed <= 2:
            rig.put(tp, state(tp, choose.randrange(5), topic_id=choose.choice((b"1", b"1", b"2"))))
        elif deed == 3:
            rig.put(tp, None)
        elif deed == 4:
            rig.put(tp, state(tp, delayed_until_ms=rig.now_ms + choose.randrange(50)))
        elif deed == 5:
            rig.now_ms += choose.choice((1, 30, COMPARE_MS))
        elif deed == 6:
            rig.turns.session.reset()
        else:
            rig.throttled = set(choose.sample(TPS, choose.choice((0, 0, 2))))
        if choose.random() < 0.6:
            rig.turn()
            rig.check()


def test_what_does_nothing_is_not_looked_at() -> None:
    rig = Rig()
    for tp in TPS:
        rig.put(tp, state(tp))
    assert rig.turn() == len(TPS)
    rig.log_starts[TPS[0]] = 5  # by retention, which tells nobody
    assert rig.turn() == 0
    rig.put(TPS[1], state(TPS[1], 3))
    assert rig.turn() == 1
    rig.now_ms += COMPARE_MS
    assert rig.turn() == 1, "the start that moved is told late"


def test_a_partition_that_goes_while_nothing_is_asked_for_is_told_later() -> None:
    rig = Rig()
    first, second = TPS[:2]
    rig.put(first, state(first))
    rig.turn()
    rig.put(first, None)
    assert rig.turn() == 0
    rig.put(second, state(second))
    assert rig.turn() == 2
    rig.check()
