"""Expirations: counts the delayed operations whose time ran out, as Kafka's metrics of them do.

Threads: any.
Source: Kafka's DelayedProduceMetrics, DelayedFetchMetrics (4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics.table import catalogue

if TYPE_CHECKING:
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.metrics.registry import Registry


class Expirations:
    """The meters of expired produces and fetches."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry  # fixed before start
        self._produces = registry.meter(catalogue.DELAYED_PRODUCE_EXPIRES_PER_SEC)
        self._follower_fetches = registry.meter(catalogue.DELAYED_FETCH_EXPIRES_PER_SEC, fetcherType="follower")
        self._consumer_fetches = registry.meter(catalogue.DELAYED_FETCH_EXPIRES_PER_SEC, fetcherType="consumer")

    def count_produce(self, tp: TopicPartition) -> None:
        """An acks=all wait for this partition ran out of time."""
        self._produces.mark()
        self._registry.meter(catalogue.DELAYED_PRODUCE_EXPIRES_PER_SEC, topic=tp.topic, partition=tp.partition).mark()

    def count_fetch(self, *, is_follower: bool) -> None:
        """A fetch waited for its full time."""
        (self._follower_fetches if is_follower else self._consumer_fetches).mark()
