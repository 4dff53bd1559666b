"""The factory of locks: plain ones, or ones that count; the hot locks of a broker come from it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from barnabas.broker.fetch_sessions.session import Session
from barnabas.broker.purgatory import DelayedOperation, Purgatory
from barnabas.broker.replication.partition import Partition
from barnabas.broker.request_channel import RequestQueue, ResponseQueue
from barnabas.common.clock import FakeClock
from barnabas.common.locks import factory
from barnabas.common.locks.counting import CountedLock, CountedRLock
from barnabas.common.topic_partition import TopicPartition


@pytest.fixture
def _counting() -> Iterator[None]:
    before = factory._tally
    factory.count_locks()
    yield
    factory._tally = before


def test_locks_are_plain_until_they_are_counted() -> None:
    assert factory.lock_tally() is None
    assert type(factory.new_lock("x")) is type(threading.Lock())
    assert type(factory.new_rlock("x")) is type(threading.RLock())
    used: queue.Queue[int] = queue.Queue()
    mutex = used.mutex
    factory.count_mutex(used, "x")
    assert used.mutex is mutex


@pytest.mark.usefixtures("_counting")
def test_locks_count_when_they_are_told_to() -> None:
    assert type(factory.new_lock("x")) is CountedLock
    assert type(factory.new_rlock("x")) is CountedRLock


@pytest.mark.usefixtures("_counting")
def test_a_queue_whose_mutex_counts_is_a_queue() -> None:
    used: queue.Queue[int] = queue.Queue(1)
    factory.count_mutex(used, "x")
    used.put(1)
    with pytest.raises(queue.Full):
        used.put(2, timeout=0.001)
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.extend([used.get(), used.get()]))
    thread.start()
    used.put(3)
    thread.join(60)
    assert taken == [1, 3]
    used.task_done()
    used.task_done()
    used.join()
    tally = factory.lock_tally()
    assert tally is not None
    assert tally.totals()["x"].taken >= 8


@pytest.mark.usefixtures("_counting")
def test_the_hot_locks_are_counted() -> None:
    clock = FakeClock()
    partition = Partition(TopicPartition("t", 0), bytes(16), 1, clock)
    session = Session(1, is_privileged=False, uses_topic_ids=False, now_ms=0)
    alive = (partition, session, RequestQueue(1), ResponseQueue(lambda: None), DelayedOperation(1))
    purgatory = Purgatory("Produce", clock)
    purgatory.watched()
    alive[2].add_handlers(1)
    tally = factory.lock_tally()
    assert tally is not None
    totals = tally.totals()
    assert totals.keys() >= {
        *("partition", "fetch-session", "request-queue", "response-queue", "operation", "purgatory", "timer")
    }
    assert totals["purgatory"].taken == 1
    assert totals["request-queue"].taken == 1
