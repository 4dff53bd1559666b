"""ShareCoordinator: finds the shard that a share partition belongs to, if this broker leads its partition.

Rules
1. A share partition's state lives in partition abs(hashCode("group:topicId:partition")) % partitions of
   __share_group_state. The leader of that partition coordinates it; any other broker answers NOT_COORDINATOR.
2. A shard serves once its partition has been read, and everything read is committed; until then it answers
   COORDINATOR_LOAD_IN_PROGRESS.
3. Nothing here decides about share state; `shard.py` and the pure `state.py` do.
4. The log is pruned up to the lowest offset that a share partition still needs (`needed_offsets.py`). Share partitions
   that are not written to get a new snapshot now and then, so that they do not hold it back.
5. State is removed by a request, or when its topic is named as deleted; never because a topic is not known.

Threads: requests on handlers, and the persister's senders; loading on `share-state-manager-0`; periodic tasks on the
scheduler.
Source: Kafka's ShareCoordinatorService (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.runtime.job_thread import JobThread
from barnabas.broker.coordinators.runtime.led_shards import LedShards
from barnabas.broker.coordinators.runtime.partitioning import partition_for
from barnabas.broker.coordinators.share_state.loader import load
from barnabas.broker.coordinators.share_state.operations import Operation, Write
from barnabas.broker.coordinators.share_state.shard import ShareStateContext, ShareStateShard
from barnabas.broker.metadata.metadata_cache import SHARE_GROUP_STATE_TOPIC
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.compression import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.coordinators.runtime.committed_writes import CommittedWrites
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_state.sensors import ShareStateSensors
    from barnabas.broker.coordinators.share_state.state import ShareState
    from barnabas.broker.coordinators.share_state.values import SharePartitionKey
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log.log import Log
    from barnabas.broker.storage.scheduler import TaskScheduler
    from barnabas.common.clock import Clock
    from barnabas.config import Config

log = logging.getLogger("barnabas.share-state")

PRUNE_MS: Final = 5 * 60_000  # Kafka's share.coordinator.state.topic.prune.interval.ms, an internal setting
NS_PER_MS: Final = 1_000_000
COLD_SNAPSHOT_MS: Final = 5 * 60_000  # Kafka's share.coordinator.cold.partition.snapshot.interval.ms, internal too


class ShareCoordinator:
    """The shards of the partitions of __share_group_state that this broker leads."""

    def __init__(
        self,
        *,
        config: Config,
        clock: Clock,
        scheduler: TaskScheduler,
        sensors: ShareStateSensors,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
    ) -> None:
        self._config = config  # fixed before start
        self._clock = clock  # fixed before start
        self._scheduler = scheduler  # fixed before start
        self._sensors = sensors  # fixed before start
        self._replica_manager = replica_manager  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start
        context = ShareStateContext(
            replica_manager,
            clock,
            self.is_known,
            updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
            write_timeout_ms=config.share_coordinator_write_timeout_ms,
            compression=CompressionType(config.share_coordinator_state_topic_compression_codec),
        )
        self._shards = LedShards(
            SHARE_GROUP_STATE_TOPIC,
            JobThread("share-state-manager-0", "share-state-0", log),
            log,
            replica_manager,
            make=lambda tp, leader_epoch: ShareStateShard(tp, leader_epoch, context),
            load=self._load,
        )

    # Life

    def start(self) -> None:
        """Start the thread and the periodic tasks."""
        self._shards.start()
        self._scheduler.schedule("share-state-prune", self.prune, PRUNE_MS, PRUNE_MS)
        self._scheduler.schedule("share-state-snapshot", self.snapshot_cold, COLD_SNAPSHOT_MS, COLD_SNAPSHOT_MS)

    def shutdown(self) -> None:
        """Close all shards and stop the thread."""
        self._shards.shutdown()

    def prune(self) -> None:
        """Delete the records that no share partition needs; a periodic task."""
        self._shards.each(self._prune)

    def snapshot_cold(self) -> None:
        """Write a snapshot of share partitions that have had none for long; a periodic task."""
        self._shards.each(lambda shard: shard.snapshot_cold(COLD_SNAPSHOT_MS))

    def _prune(self, shard: ShareStateShard) -> None:
        offset = shard.needed_offset()
        if offset is None:
            return
        try:
            self._replica_manager.partition(shard.tp).delete_records_on_leader(offset)
        except ApiError as error:
            log.info("%s was not pruned up to offset %d: %s", shard.tp, offset, error)
            return
        shard.pruned(offset)
        self._replica_manager.complete_delayed(shard.tp)

    # Leadership and metadata

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Load the share states of a partition that this broker leads, now or in a new epoch."""
        self._shards.on_leadership(tp, leader_epoch)

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        """Drop the share states of a partition that this broker leads no more."""
        self._shards.on_resignation(tp, leader_epoch)

    def on_metadata_update(self, former_ids: Mapping[str, bytes]) -> None:
        """Remove the state of deleted topics.

        `former_ids` has the names that belong to another topic now, or to none, with the id of the topic that had the
        name before (ZERO_UUID if there was none).
        """
        deleted = frozenset(former_ids.values()) - {ZERO_UUID}
        if deleted and self._shards.all():
            self._shards.jobs.put(partial(self._shards.each, lambda shard: shard.remove_topics(deleted)))

    def run_pending_jobs(self) -> None:
        """Run the loader thread's jobs on this thread, for tests without threads."""
        self._shards.jobs.run_pending()

    def _load(self, shard: ShareStateShard, partition_log: Log) -> int:
        started_ms = self._clock.monotonic_ms()
        end_offset = load(shard, partition_log, self._config.share_coordinator_load_buffer_size)
        took_ms = self._clock.monotonic_ms() - started_ms
        self._sensors.load_time.record(took_ms)
        log.info(
            "Loaded %d share states of %s up to offset %d in %d ms", len(shard.states), shard.tp, end_offset, took_ms
        )
        return end_offset

    # Where a share partition is

    def partition_for(self, coordinator_key: str) -> int:
        """Return the partition of __share_group_state that coordinates this key (`SharePartitionKey`)."""
        count = self._metadata_cache.snapshot.partition_count(SHARE_GROUP_STATE_TOPIC)
        return partition_for(coordinator_key, count or self._config.share_coordinator_state_topic_num_partitions)

    def is_known(self, key: SharePartitionKey) -> bool:
        """Return whether the topic partition exists."""
        snapshot = self._metadata_cache.snapshot
        name = snapshot.topic_name(key.topic_id)
        count = None if name is None else snapshot.partition_count(name)
        return count is not None and key.partition < count

    # Operations

    def handle(self, operations: Iterable[Operation]) -> None:
        """Carry operations out, those of one shard together and in order; each is answered once, on any thread."""
        operations = list(operations)
        writes = [operation for operation in operations if isinstance(operation, Write)]
        if writes:
            self._sensors.writes.record(len(writes))
            writes[-1].reply = partial(self._note_latency, self._clock.monotonic_ns(), writes[-1].reply)
        by_partition: dict[int, list[Operation]] = {}
        for operation in operations:
            key = operation.key
            if key.partition < 0:
                operation.refuse(ErrorCode.INVALID_REQUEST)
            else:
                by_partition.setdefault(self.partition_for(key.coordinator_key), []).append(operation)
        for partition, together in by_partition.items():
            shard = self._shards.get(partition)
            if shard is None:
                _refuse(together, ErrorCode.NOT_COORDINATOR)
            else:
                shard.handle(together)

    def _note_latency(self, began_ns: int, reply: Completion[ErrorCode], error: ErrorCode) -> None:
        """Record how long a call's writes took, by the last one, and pass its answer on."""
        self._sensors.write_latency.record((self._clock.monotonic_ns() - began_ns) / NS_PER_MS)
        reply(error)

    # For metrics and pages

    @property
    def has_jobs(self) -> bool:
        """Whether jobs wait for the loader's thread."""
        return not self._shards.jobs.empty()

    def shards(self) -> list[ShareStateShard]:
        """Return every shard."""
        return self._shards.all()

    def writes(self) -> Sequence[CommittedWrites]:
        """Return the writes of each shard, to be read without a lock."""
        return [shard.writes for shard in self._shards.all()]

    def look(self) -> Sequence[tuple[SharePartitionKey, ShareState]]:
        """Return the states here, without a lock; a loading shard has what it has read so far."""
        return [each for shard in self._shards.all() for each in shard.look()]


def _refuse(operations: Collection[Operation], error: ErrorCode) -> None:
    for operation in operations:
        operation.refuse(error)
