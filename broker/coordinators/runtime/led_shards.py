"""LedShards: the shards of the partitions of one internal topic that this broker leads.

Rules
1. A shard serves once its partition has been read, and everything read is committed.
2. A partition has one shard for each leader epoch: the shard of a newer epoch replaces the one before and loads again.
3. What fails in a shard takes that shard offline; the others continue.

The transaction coordinator and the share coordinator use it.

Threads: any; loading on the job thread that it owns.
Source: Kafka's CoordinatorRuntime, TransactionStateManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from barnabas.broker.coordinators.runtime.job_thread import JobThread
from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log.log import Log
    from barnabas.common.topic_partition import TopicPartition

COMMIT_WAIT_MS: Final = 30_000


class LedShard(Protocol):
    """What a shard has."""

    tp: TopicPartition
    leader_epoch: int

    @property
    def state(self) -> ShardState:
        """Whether the shard serves."""

    def activate(self) -> None:
        """Start to serve what was loaded."""

    def close(self) -> None:
        """Stop serving."""

    def isolate_failures(self) -> AbstractContextManager[None]:
        """Take the shard offline if the block raises."""


S = TypeVar("S", bound=LedShard)


class LedShards(Generic[S]):
    """See the module."""

    def __init__(
        self,
        topic: str,
        jobs: JobThread,
        log: logging.Logger,
        replica_manager: ReplicaManager,
        *,
        make: Callable[[TopicPartition, int], S],
        load: Callable[[S, Log], int],
    ) -> None:
        """`make(tp, leader epoch)` returns a new shard; `load(shard, log)` returns the end of what it read."""
        self._topic = topic  # fixed before start
        self.jobs = jobs  # fixed before start
        self._log = log  # fixed before start
        self._replica_manager = replica_manager  # fixed before start
        self._make = make  # fixed before start
        self._load_shard = load  # fixed before start
        self._lock = threading.Lock()  # serialises changes of _shards
        self._shards: dict[int, S] = {}  # guarded by: _lock (lookups need none); by partition

    def get(self, partition: int) -> S | None:
        """Return the shard of a partition that this broker leads."""
        return self._shards.get(partition)

    def all(self) -> list[S]:
        """Return every shard."""
        return list(self._shards.values())

    def each(self, do: Callable[[S], None]) -> None:
        """Run a task in every shard; a shard where it fails goes offline, the others continue."""
        for shard in self.all():
            with shard.isolate_failures():
                do(shard)

    def start(self) -> None:
        """Start the thread."""
        self.jobs.start()

    def shutdown(self) -> None:
        """Close all shards and stop the thread."""
        with self._lock:
            shards, self._shards = list(self._shards.values()), {}
        for shard in shards:
            shard.close()
        self.jobs.stop()

    # Leadership

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Load a partition that this broker leads, now or in a new epoch."""
        if tp.topic != self._topic:
            return
        with self._lock:
            before = self._shards.get(tp.partition)
            if before is not None and before.leader_epoch >= leader_epoch:
                return
            shard = self._shards[tp.partition] = self._make(tp, leader_epoch)
        if before is not None:
            before.close()
        self.jobs.put(partial(self._load, shard))

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        """Drop a partition that this broker leads no more."""
        if tp.topic != self._topic:
            return
        with self._lock:
            shard = self._shards.get(tp.partition)
            if shard is None or (leader_epoch is not None and leader_epoch < shard.leader_epoch):
                return
            del self._shards[tp.partition]
        self._log.info("Unloading %s", tp)
        shard.close()

    def _load(self, shard: S) -> None:
        with shard.isolate_failures():
            partition_log = self._replica_manager.partition(shard.tp).log
            assert partition_log is not None, f"{shard.tp} is led without a log"
            self._activate_when_committed(shard, self._load_shard(shard, partition_log), ErrorCode.NONE)

    def _activate_when_committed(self, shard: S, end_offset: int, _error: ErrorCode) -> None:
        """Activate a loaded shard once everything that it read is committed."""
        if shard.state is not ShardState.LOADING:
            return
        partition = self._replica_manager.find(shard.tp)
        if partition is None or not partition.is_leader:
            shard.close()
        elif partition.high_watermark >= end_offset:
            with shard.isolate_failures():
                shard.activate()
        else:
            again = partial(self._activate_when_committed, shard, end_offset)
            self._replica_manager.when_committed(
                shard.tp, end_offset, COMMIT_WAIT_MS, lambda error: self.jobs.put(partial(again, error))
            )
