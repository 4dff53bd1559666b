"""idle_partitions.py: when there is nothing to tell, and who is woken."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.replication.idle_partitions import IdlePartitions, Key, Watcher, is_idle
from barnabas.broker.replication.reading import FetchItem
from barnabas.broker.replication.role import IsrOutcome
from barnabas.broker.storage.log.log_types import FetchIsolation
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from tests.support.broker.broker_rig import BrokerRig, batch, produce, state, topic_id

TP = TopicPartition("t", 0)
FOLLOWER = Watcher(2, 33, FetchIsolation.LOG_END, True, None)
CONSUMER = Watcher(-1, -1, FetchIsolation.HIGH_WATERMARK, False, None)


@pytest.fixture
def rig() -> Iterator[BrokerRig]:
    """Broker 1 leads a partition with two records, which its follower, in the ISR, does not have yet."""
    made = BrokerRig()
    made.push({"t": [state(1, (1, 2), leader_epoch=3)]})
    made.answer(produce(batch(b"a", b"b")), 9)
    yield made
    made.close()


def item(offset: int, leader_epoch: int = 3) -> FetchItem:
    return FetchItem(TP, topic_id("t"), offset, 100, leader_epoch)


@pytest.mark.parametrize(
    ("watcher", "wanted", "marks", "expected"),
    [
        (FOLLOWER, item(2), (0, 0), True),
        (FOLLOWER, item(2, -1), (0, 0), True),
        (FOLLOWER, item(1), (0, 0), False),  # there are records
        (FOLLOWER, item(3), (0, 0), False),  # its log is longer
        (FOLLOWER, item(2, 2), (0, 0), False),  # it does not know of the leader
        (FOLLOWER, item(2), (1, 0), False),  # it does not know the high watermark
        (FOLLOWER, item(2), (0, 1), False),  # it does not know the log's start
        (FOLLOWER._replace(replica_id=3), item(2), (0, 0), False),  # it is not in the ISR
        (CONSUMER, item(0), (0, 0), True),
        (CONSUMER, item(2), (0, 0), False),
    ],
)
def test_there_is_something_to_tell(
    rig: BrokerRig, watcher: Watcher, wanted: FetchItem, marks: tuple[int, int], expected: bool
) -> None:
    assert is_idle(rig.manager.partition(TP), watcher, wanted, *marks) is expected


def test_a_follower_is_looked_at_while_a_change_of_the_isr_is_in_flight(rig: BrokerRig) -> None:
    partition = rig.manager.partition(TP)
    rig.clock.advance_ms(31_000)
    rig.manager.maybe_shrink_isrs()
    assert not is_idle(partition, FOLLOWER, item(2), 0, 0)
    ((_, _, on_done),) = rig.isr_changes.submitted
    on_done(IsrOutcome(ErrorCode.INELIGIBLE_REPLICA))
    assert is_idle(partition, FOLLOWER, item(2), 0, 0)


def test_who_needs_a_leader_is_told_that_there_is_none(rig: BrokerRig) -> None:
    partition = rig.manager.partition(TP)
    rig.push({"t": [state(2, (1, 2), leader_epoch=4, partition_epoch=1)]})
    assert not is_idle(partition, FOLLOWER, item(2, 4), 0, 0)
    assert not is_idle(partition, CONSUMER._replace(leader_only=True), item(0, 4), 0, 0)
    assert is_idle(partition, CONSUMER, item(0, 4), 0, 0), "it may read from a follower"


class Sleeper:
    """A session that has something to tell, or not."""

    def __init__(self, has_news: bool) -> None:
        self._has_news = has_news
        self.woken: list[Key] = []

    def last_fetch(self) -> tuple[int, int]:
        return 2, 50

    def wake(self, key: Key) -> bool:
        self.woken.append(key)
        return self._has_news

    def note_fetches(self, key: Key) -> None:
        """Nobody asks."""


def test_the_sessions_with_news_are_returned(rig: BrokerRig) -> None:
    idle = IdlePartitions(rig.manager.hosted, rig.manager.stats)
    news, none, other = Sleeper(True), Sleeper(False), Sleeper(True)
    for owner, tp in ((news, TP), (none, TP), (other, TopicPartition("t", 1))):
        idle.add(owner, [(tp, ("t", tp.partition))])
    assert idle.has(TP)
    assert idle.wake(TP) == [news]
    assert (news.woken, none.woken, other.woken) == ([("t", 0)], [("t", 0)], [])
    for owner in (news, none):
        idle.remove(owner, [(TP, ("t", 0))])
    assert not idle.has(TP)
    assert idle.wake(TP) == []


def test_a_follower_that_fetched_while_nothing_happened_does_not_lag(rig: BrokerRig) -> None:
    """Rule 4: the append comes long after the last fetch that read the partition."""
    partition = rig.manager.partition(TP)
    fetched: Any = {"fetch_offset": 2, "log_start_offset": 0, "broker_epoch": 33, "now_ms": rig.clock.monotonic_ms()}
    partition.update_follower(2, **fetched)
    rig.clock.advance_ms(29_000)
    partition.note_still_fetched(2, rig.clock.monotonic_ms(), 3)
    rig.answer(produce(batch(b"c")), 9)
    rig.clock.advance_ms(30_000)
    rig.manager.maybe_shrink_isrs()
    assert rig.isr_changes.submitted == []
    rig.clock.advance_ms(1)
    partition.note_still_fetched(2, 0, 3)  # an older one changes nothing, nor does one of a broker that is no replica
    partition.note_still_fetched(9, rig.clock.monotonic_ms(), 3)
    rig.manager.maybe_shrink_isrs()
    assert [tp for tp, _, _ in rig.isr_changes.submitted] == [TP]
