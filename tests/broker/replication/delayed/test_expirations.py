"""Delayed operations that ran out of time are counted: produces for all partitions and each one, fetches by kind."""

from __future__ import annotations

from barnabas.broker.replication.delayed.expirations import Expirations
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue as c


def test_produces_are_counted_in_all_and_by_partition() -> None:
    registry = Registry()
    expirations = Expirations(registry)
    for partition in (0, 1, 1):
        expirations.count_produce(TopicPartition("t", partition))
    assert registry.meter(c.DELAYED_PRODUCE_EXPIRES_PER_SEC).count == 3
    assert registry.meter(c.DELAYED_PRODUCE_EXPIRES_PER_SEC, topic="t", partition=0).count == 1
    assert registry.meter(c.DELAYED_PRODUCE_EXPIRES_PER_SEC, topic="t", partition=1).count == 2


def test_fetches_are_counted_by_the_kind_of_their_fetcher() -> None:
    registry = Registry()
    expirations = Expirations(registry)
    for is_follower in (True, False, False):
        expirations.count_fetch(is_follower=is_follower)
    assert registry.meter(c.DELAYED_FETCH_EXPIRES_PER_SEC, fetcherType="follower").count == 1
    assert registry.meter(c.DELAYED_FETCH_EXPIRES_PER_SEC, fetcherType="consumer").count == 2
