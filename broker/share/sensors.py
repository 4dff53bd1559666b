"""The sensors of share partitions and share fetches.

Threads: any.
Source: Kafka's ShareGroupMetrics, SharePartitionMetrics, DelayedShareFetch (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from barnabas.metrics.histograms import Histogram
from barnabas.metrics.meters import Meter
from barnabas.metrics.table import catalogue

if TYPE_CHECKING:
    from barnabas.broker.share.partition.values import Acknowledgement
    from barnabas.metrics.registry import Instrument, Labels, Registry

PERCENT: Final = 100
#: Names by acknowledge type; a gap (0) is not counted.
TYPE_NAMES: Final = {1: "Accept", 2: "Release", 3: "Reject", 4: "Renew"}


class GroupSensors:
    """The instruments of a group, which the manager shows while the group has share partitions in memory."""

    __slots__ = ("acquire_time", "batch_messages", "fetch_ratio", "lock_ratio", "lock_time")

    def __init__(self, now_s: float) -> None:
        self.acquire_time = Histogram(now_s)
        self.batch_messages = Histogram(now_s)
        self.fetch_ratio = Histogram(now_s)
        self.lock_ratio = Histogram(now_s)
        self.lock_time = Histogram(now_s)

    def instruments(self, group_id: str) -> Iterable[tuple[catalogue.Metric, Labels, Instrument]]:
        """Return the instruments with their rows."""
        labels = (group_id,)
        return (
            (catalogue.SHARE_ACQUIRE_TIME_MS, labels, self.acquire_time),
            (catalogue.SHARE_BATCH_MESSAGES, labels, self.batch_messages),
            (catalogue.SHARE_FETCH_RATIO, labels, self.fetch_ratio),
            (catalogue.SHARE_FETCH_LOCK_RATIO, labels, self.lock_ratio),
            (catalogue.SHARE_FETCH_LOCK_TIME_MS, labels, self.lock_time),
        )


class PartitionSensors:
    """The sensors of one share partition, its own and those of its group."""

    __slots__ = ("_released_ms", "_taken_ms", "group", "lock_timeouts")

    def __init__(self, group: GroupSensors, now_s: float) -> None:
        self.group = group
        self.lock_timeouts = Meter(now_s)  # records whose acquisition locks ran out
        self._taken_ms = 0  # owner: the fetch that has the fetch lock
        self._released_ms = 0  # likewise; 0: never

    def fetch_lock_taken(self, now_ms: int) -> None:
        """Note that a fetch has the fetch lock."""
        self._taken_ms = now_ms

    def fetch_lock_released(self, now_ms: int) -> None:
        """Count how long a fetch had the fetch lock, and the ratio of that time since the release before."""
        held_ms = now_ms - self._taken_ms
        total_ms = now_ms - (self._released_ms or self._taken_ms)
        self._released_ms = now_ms
        self.group.lock_time.update(held_ms)
        if total_ms <= 0:
            self.group.lock_ratio.update(PERCENT)
        else:
            self.group.lock_ratio.update(PERCENT * max(held_ms, 1) // total_ms)


class ShareSensors:
    """The instruments of a broker."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry  # fixed before start
        self._load_time = registry.histogram(catalogue.SHARE_PARTITION_LOAD_TIME_MS)
        self._acknowledged = {
            type_: registry.meter(catalogue.SHARE_ACKNOWLEDGEMENTS_PER_SEC, ackType=name)
            for type_, name in TYPE_NAMES.items()
        }
        self._expired_fetches = registry.meter(catalogue.DELAYED_SHARE_FETCH_EXPIRES_PER_SEC)

    def of_partition(self, group: GroupSensors) -> PartitionSensors:
        """Return the instruments of another share partition."""
        return PartitionSensors(group, self._registry.now_s())

    def of_group(self) -> GroupSensors:
        """Return the instruments of another group."""
        return GroupSensors(self._registry.now_s())

    def loaded(self, ms: int) -> None:
        """Count the load of a share partition."""
        self._load_time.update(ms)

    def acknowledged(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        """Count acknowledgements that took effect."""
        for each in acknowledgements:
            if len(each.types) == 1:
                self._count(each.types[0], each.last - each.first + 1)
                continue
            for type_ in TYPE_NAMES:
                self._count(type_, each.types.count(type_))

    def _count(self, type_: int, count: int) -> None:
        meter = self._acknowledged.get(type_)
        if meter is not None and count:
            meter.mark(count)

    def fetch_expired(self) -> None:
        """Count a share fetch that waited for its full time."""
        self._expired_fetches.mark()
