"""The sensors that group shards record into.

Threads: any thread that holds a shard.
Source: Kafka's GroupCoordinatorMetrics (4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics.table import catalogue as c

if TYPE_CHECKING:
    from barnabas.metrics.registry import Registry


class GroupSensors:
    """Counts of events; `record` them as they happen."""

    __slots__ = (
        "commits", "completed_rebalances", "consumer_rebalances", "deletions", "expirations", "load_time",
        "share_rebalances", "streams_rebalances",
    )  # fmt: skip

    def __init__(self, registry: Registry) -> None:
        self.commits = registry.sensor(c.OFFSET_COMMIT)  # offsets
        self.expirations = registry.sensor(c.OFFSET_EXPIRATION)  # offsets
        self.deletions = registry.sensor(c.OFFSET_DELETION)  # offsets
        self.completed_rebalances = registry.sensor(c.GROUP_COMPLETED_REBALANCE)  # of classic groups
        self.consumer_rebalances = registry.sensor(c.CONSUMER_GROUP_REBALANCE)
        self.share_rebalances = registry.sensor(c.SHARE_GROUP_REBALANCE)
        self.streams_rebalances = registry.sensor(c.STREAMS_GROUP_REBALANCE)
        self.load_time = registry.avg_max(c.GROUP_PARTITION_LOAD_TIME)  # ms
