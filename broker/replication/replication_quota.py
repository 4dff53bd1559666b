"""Replication throttles: the bytes a second that leaders send, and followers fetch, of the named replicas (KIP-73).

An operator who moves partitions limits the bandwidth of the move: `leader.replication.throttled.rate` and
`follower.replication.throttled.rate` of brokers, for the replicas in `leader.replication.throttled.replicas` and
`follower.replication.throttled.replicas` of topics (partition:broker, or * for all). A replica that is in sync is never
held back: that would hold back producers.

Rules
1. The rate is measured over a sliding window of `replication.quota.window.num` samples, each
   `replication.quota.window.size.seconds` long. A throttled transfer is recorded even above the limit; the next one
   waits.
2. A topic's throttled partitions, and the limit, are replaced whole; a reader needs no lock.

Threads: any records and queries; the handler of a push sets limits.
Source: Kafka's ReplicationQuotaManager, SimpleRate, TopicConfigHandler.updateThrottledList (4.3).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.common.threads import SHARED_INT_MAX

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.config import Config

UNLIMITED: Final = 2**63 - 1
_ALL: Final[frozenset[int]] = frozenset({-1})  # stands for every partition of a topic
_MS_PER_S: Final = 1000


class Rate:
    """Bytes a second over the last samples. Guarded by its own lock, a leaf."""

    def __init__(self, clock: Clock, samples: int, sample_ms: int) -> None:
        self._clock = clock  # fixed before start
        self._samples_max = samples  # fixed before start
        self._sample_ms = sample_ms  # fixed before start
        self._lock = threading.Lock()
        self._samples: list[tuple[int, int]] = []  # guarded by: _lock; (start in ms, bytes), the oldest first

    def record(self, size: int) -> None:
        """Add bytes now."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if self._samples and now_ms - self._samples[-1][0] < self._sample_ms:
                started_ms, so_far = self._samples[-1]
                self._samples[-1] = (started_ms, so_far + size)
            else:
                self._samples.append((now_ms, size))
            self._drop_old_locked(now_ms)

    def per_second(self) -> float:
        """The rate, over at least the length of one sample: a first burst does not count as a huge rate."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._drop_old_locked(now_ms)
            if not self._samples:
                return 0.0
            elapsed_ms = max(now_ms - self._samples[0][0], self._sample_ms)
            return sum(size for _, size in self._samples) * _MS_PER_S / elapsed_ms

    def _drop_old_locked(self, now_ms: int) -> None:
        horizon_ms = now_ms - self._samples_max * self._sample_ms
        while self._samples and self._samples[0][0] <= horizon_ms:
            del self._samples[0]


class ReplicationQuota:
    """The throttle of one direction."""

    def __init__(self, clock: Clock, samples: int, sample_ms: int) -> None:
        self._rate = Rate(clock, samples, sample_ms)
        self._limit = SHARED_INT_MAX  # replaced whole; bytes a second; SHARED_INT_MAX stands for UNLIMITED
        self._throttled: Mapping[str, frozenset[int]] = {}  # replaced whole under _lock; partitions by topic
        self._lock = threading.Lock()  # serialises changes of _throttled

    @property
    def limit(self) -> int:
        """Bytes a second; UNLIMITED if none is set."""
        limit = self._limit
        return limit if limit < SHARED_INT_MAX else UNLIMITED

    def set_limit(self, bytes_per_s: int) -> None:
        """Allow this many bytes a second from now on."""
        self._limit = min(bytes_per_s, SHARED_INT_MAX)

    def throttle(self, topic: str, replicas: Iterable[str], broker_id: int) -> None:
        """Throttle these replicas of a topic and no others; each is `partition:broker`, or `*`."""
        partitions = _partitions_on(replicas, broker_id)
        with self._lock:
            rest = {name: known for name, known in self._throttled.items() if name != topic}
            self._throttled = {**rest, topic: partitions} if partitions else rest

    @property
    def has_throttled(self) -> bool:
        """Whether any replica is throttled."""
        return bool(self._throttled)

    def is_throttled(self, tp: TopicPartition) -> bool:
        """Whether this broker's replica of the partition is throttled."""
        partitions = self._throttled.get(tp.topic)
        return partitions is not None and (partitions is _ALL or tp.partition in partitions)

    def is_exceeded(self) -> bool:
        """Whether the current rate is above the limit."""
        return self._limit != SHARED_INT_MAX and self._rate.per_second() > self._limit

    def holds_back(self, tp: TopicPartition) -> bool:
        """Whether this replica may not be copied now."""
        return bool(self._throttled) and self.is_throttled(tp) and self.is_exceeded()

    def record(self, tp: TopicPartition, size: int) -> None:
        """Note that `size` bytes were copied; only those of throttled replicas count."""
        if self._throttled and self.is_throttled(tp):
            self._rate.record(size)

    def byte_rate(self) -> float:
        """Bytes a second of throttled replicas, for a metric."""
        return self._rate.per_second()


class ReplicationQuotas:
    """The throttles of a broker: as leader, and as follower."""

    def __init__(self, config: Config, clock: Clock) -> None:
        window = (config.replication_quota_window_num, config.replication_quota_window_size_seconds * _MS_PER_S)
        self.leader = ReplicationQuota(clock, *window)  # fixed before start
        self.follower = ReplicationQuota(clock, *window)  # fixed before start


def _partitions_on(replicas: Iterable[str], broker_id: int) -> frozenset[int]:
    chosen = set()
    for replica in filter(None, replicas):
        if replica == "*":
            return _ALL
        partition, _, broker = replica.partition(":")
        if int(broker) == broker_id:
            chosen.add(int(partition))
    return frozenset(chosen)
