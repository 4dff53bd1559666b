"""The sensors that the share coordinator records into.

Threads: any.
Source: Kafka's ShareCoordinatorMetrics (4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metrics.table import catalogue as c

if TYPE_CHECKING:
    from barnabas.metrics.registry import Registry


class ShareStateSensors:
    """Counts of events; `record` them as they happen."""

    __slots__ = ("load_time", "write_latency", "writes")

    def __init__(self, registry: Registry) -> None:
        self.writes = registry.sensor(c.SHARE_STATE_WRITE)
        self.write_latency = registry.avg_max(c.SHARE_STATE_WRITE_LATENCY)  # ms
        self.load_time = registry.avg_max(c.SHARE_STATE_LOAD_TIME)  # ms
