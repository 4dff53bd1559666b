"""HostedPartitions: the partitions this broker holds, online or with a failed disk, found by name.

Only the controller's push changes them (`leadership.py`); everything that reads, waits or reports finds them here.

Threads: any; a lookup takes no lock.
Source: Kafka's HostedPartition and ReplicaManager.getPartitionOrException (4.3).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.replication.partition import Partition


class HostedPartitions:
    """The partitions of one broker."""

    def __init__(self, metadata_cache: MetadataCache) -> None:
        self.metadata_cache = metadata_cache  # fixed before start
        self._lock = threading.Lock()  # serialises changes of _online and _offline
        self._online: dict[TopicPartition, Partition] = {}  # guarded by: _lock (lookups need none)
        self._offline: set[TopicPartition] = set()  # guarded by: _lock; replicas whose log directory failed

    def get(self, tp: TopicPartition) -> Partition:
        """The partition; raises KAFKA_STORAGE_ERROR, NOT_LEADER_OR_FOLLOWER or UNKNOWN_TOPIC_OR_PARTITION."""
        partition = self._online.get(tp)
        if partition is not None:
            return partition
        if tp in self._offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR)
        if self.metadata_cache.snapshot.partition(tp) is not None:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def find(self, tp: TopicPartition) -> Partition | None:
        """The partition, or None if this broker does not hold it, or its disk failed."""
        return self._online.get(tp)

    def name_of(self, topic: str, index: int) -> TopicPartition:
        """The name of a partition, hosted or not; of a hosted one it is at hand, and making one takes longer."""
        key: Any = (topic, index)
        partition = self._online.get(key)
        return TopicPartition(topic, index) if partition is None else partition.tp

    def online(self) -> list[Partition]:
        """Every partition whose disk works."""
        return list(self._online.values())

    def count(self) -> int:
        """Return how many partitions are hosted and online; takes no lock."""
        return len(self._online)

    def led(self) -> list[Partition]:
        """Every partition that this broker leads."""
        return [partition for partition in self.online() if partition.is_leader]

    def offline_count(self) -> int:
        """How many replicas have a failed disk."""
        return len(self._offline)

    def violations(self) -> list[str]:
        """Check the invariants of every online partition; returns one line for each partition that breaks one."""
        found = []
        for partition in self.online():
            try:
                partition.invariants()
            except AssertionError as error:
                found.append(f"{partition.tp}: {error}")
        return found

    def add(self, partition: Partition) -> None:
        """Hold a partition, or hold it again after its disk came back."""
        with self._lock:
            self._online[partition.tp] = partition
            self._offline.discard(partition.tp)

    def remove(self, tp: TopicPartition) -> Partition | None:
        """Hold a partition no more; returns it, if it was online."""
        with self._lock:
            self._offline.discard(tp)
            return self._online.pop(tp, None)

    def mark_offline(self, tp: TopicPartition) -> None:
        """Answer KAFKA_STORAGE_ERROR for this partition from now on: its log directory failed."""
        with self._lock:
            self._online.pop(tp, None)
            self._offline.add(tp)
