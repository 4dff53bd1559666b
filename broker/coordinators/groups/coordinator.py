"""GroupCoordinator: finds the shard that a group belongs to, if this broker leads its partition.

Rules
1. A group lives in partition abs(hashCode(group id)) % partitions of __consumer_offsets. The leader of that partition
   coordinates it; any other broker answers NOT_COORDINATOR.
2. A shard serves once its partition has been read, and this broker's metadata is as new as the push that made it the
   leader; until then it answers COORDINATOR_LOAD_IN_PROGRESS. Committed offsets carry topic ids, and older metadata
   would mistake a new topic for a deleted one of the same name.
3. Nothing here decides about groups; `shard.py` and the pure parts below it do.
4. A method with a `Completion` answers through it, once, on any thread (`runtime/completion.py`).

Threads: requests on handlers; timers on `group-coordinator-reaper`; loading and unloading on
`group-metadata-manager-0`; regular expressions on `group-coordinator-background-0`.
Source: Kafka's GroupCoordinatorService (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.classic.events import GroupSettings
from barnabas.broker.coordinators.consumer.context import ConsumerContext
from barnabas.broker.coordinators.consumer.environment import ConsumerGroupSettings, GroupTimes
from barnabas.broker.coordinators.consumer.metadata_watch import MetadataWatch
from barnabas.broker.coordinators.groups.context import ShardContext
from barnabas.broker.coordinators.groups.group_offsets import (
    Committer,
    DeletedOffsets,
    FetchedOffsets,
    OffsetCommit,
    OffsetQuery,
)
from barnabas.broker.coordinators.groups.loader import load
from barnabas.broker.coordinators.groups.shard import ListedGroup, Shard
from barnabas.broker.coordinators.runtime.job_thread import JobThread
from barnabas.broker.coordinators.runtime.partitioning import partition_for
from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.broker.coordinators.share_groups.context import ShareContext
from barnabas.broker.coordinators.share_groups.environment import ShareGroupSettings
from barnabas.broker.coordinators.streams_groups.context import StreamsContext
from barnabas.broker.coordinators.streams_groups.environment import StreamsGroupConfig, StreamsGroupSettings
from barnabas.broker.metadata.features import UNKNOWN_EPOCH
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC
from barnabas.broker.requests.gathering import Gathering
from barnabas.broker.timing_wheel import Timer
from barnabas.common.threads import ServiceThread
from barnabas.common.topic_partition import TopicPartition
from barnabas.config.checks import ASSIGNOR_NAMES
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.compression import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.coordinators.classic.group import Group
    from barnabas.broker.coordinators.consumer.group import ConsumerGroup
    from barnabas.broker.coordinators.consumer.values import Heartbeat, HeartbeatResult
    from barnabas.broker.coordinators.groups.sensors import GroupSensors
    from barnabas.broker.coordinators.runtime.committed_writes import CommittedWrites
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_state.values import Persister
    from barnabas.broker.coordinators.transactions.marker import Marker
    from barnabas.broker.coordinators.transactions.transaction import Producer
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.producers.verification import VerificationGuard
    from barnabas.common.clock import Clock
    from barnabas.config import Config, GroupConfig

log = logging.getLogger("barnabas.group")

T = TypeVar("T")

MS_PER_MINUTE = 60_000
REAPER_WAIT_MS_MAX = 60_000


class GroupView(NamedTuple):
    """What the live page needs to explain a wait for a classic group."""

    group: Group | None  # None: not coordinated here
    now_ms: int  # wall
    initial_delay_ms: int  # group.initial.rebalance.delay.ms


class GroupCoordinator:
    """The shards of the partitions of __consumer_offsets that this broker leads."""

    def __init__(
        self,
        *,
        config: Config,
        group_config: Callable[[str], GroupConfig],
        clock: Clock,
        sensors: GroupSensors,
        replica_manager: ReplicaManager,
        metadata_cache: MetadataCache,
        persister: Persister,
    ) -> None:
        self._config = config  # replaced whole by reconfigure
        self._metadata_cache = metadata_cache  # fixed before start
        self._replica_manager = replica_manager  # fixed before start
        self._timer = Timer(clock)
        self._jobs = JobThread("group-metadata-manager-0", "group-meta-0", log)
        # Why another thread: expressions may take seconds, and no group of another client waits for its loading then.
        self._background = JobThread("group-coordinator-background-0", "group-backgr-0", log)
        consumers = ConsumerContext(
            MetadataWatch(metadata_cache), self._background.put, lambda group_id: _times(group_config(group_id))
        )
        shares = ShareContext(persister, lambda group_id: _share_times(group_config(group_id)))
        streams = StreamsContext(lambda group_id: _streams_config(group_config(group_id)))
        self._context = ShardContext(
            replica_manager, clock, self._timer, sensors, consumers, shares, streams, GroupSettings()
        )
        self.reconfigure(config)
        self._lock = threading.Lock()  # serialises changes of _shards
        self._shards: dict[int, Shard] = {}  # guarded by: _lock (lookups need none); by partition
        self._loaded: list[Shard] = []  # owner: the loader thread; loaded shards that wait for newer metadata
        self._is_running = False  # set by start, cleared by shutdown
        self._reaper_thread = ServiceThread("group-coordinator-reaper", "group-reaper", self._reap)

    # Life

    def start(self) -> None:
        """Start the threads."""
        self._is_running = True
        self._jobs.start()
        self._background.start()
        self._reaper_thread.start()

    def shutdown(self) -> None:
        """Close all shards, which answers parked requests, and stop the threads."""
        was_running, self._is_running = self._is_running, False
        with self._lock:
            shards, self._shards = list(self._shards.values()), {}
        for shard in shards:
            shard.close()
        self._timer.close()
        self._jobs.stop()
        self._background.stop()
        if was_running:
            self._reaper_thread.join()

    def reconfigure(self, config: Config) -> None:
        """Apply the settings, at start and when they change."""
        self._config = config
        context = self._context
        context.settings = GroupSettings(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms, max_size=config.group_max_size
        )
        context.consumers.settings = _consumer_settings(config)
        context.shares.settings = ShareGroupSettings(max_size=config.group_share_max_size)
        context.streams.settings = StreamsGroupSettings(max_size=config.group_streams_max_size)
        context.commit_timeout_ms = config.offsets_commit_timeout_ms
        context.compression = CompressionType(config.offsets_topic_compression_codec)
        context.metadata_max_chars = config.offset_metadata_max_bytes
        context.retention_ms = config.offsets_retention_minutes * MS_PER_MINUTE
        context.retention_check_ms = config.offsets_retention_check_interval_ms

    # Leadership

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        """Load the groups of a partition that this broker leads now."""
        if tp.topic != GROUP_METADATA_TOPIC:
            return
        with self._lock:
            current = self._shards.get(tp.partition)
            if current is not None and current.state in (ShardState.LOADING, ShardState.ACTIVE):
                current.leader_epoch = max(current.leader_epoch, leader_epoch)
                return
            shard = self._shards[tp.partition] = Shard(tp, leader_epoch, self._context)
        self._jobs.put(partial(self._load, shard))

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        """Drop the groups of a partition that this broker leads no more."""
        if tp.topic != GROUP_METADATA_TOPIC:
            return
        with self._lock:
            shard = self._shards.get(tp.partition)
            if shard is None or (leader_epoch is not None and leader_epoch < shard.leader_epoch):
                return
            del self._shards[tp.partition]
        log.info("Unloading the groups of %s", tp)
        shard.close()

    def on_metadata_update(self, former_ids: Mapping[str, bytes]) -> None:
        """Handle new metadata: remove the offsets of deleted topics, and activate shards that waited for it.

        `former_ids` has the names that belong to another topic now, or to none, with the id of the topic that had the
        name before (ZERO_UUID if there was none).
        """
        if former_ids and self._shards:
            self._jobs.put(partial(self._remove_former, former_ids))
        if self._loaded:
            self._jobs.put(self._activate_loaded)

    def run_pending_jobs(self) -> None:
        """Run the jobs of both threads on this one, for tests without threads."""
        self._jobs.run_pending()
        self._background.run_pending()

    def _load(self, shard: Shard) -> None:
        started_ms = self._context.clock.monotonic_ms()
        with shard.isolate_failures():
            partition_log = self._replica_manager.partition(shard.tp).log
            assert partition_log is not None, f"{shard.tp} is led without a log"
            count = load(shard, partition_log, self._config.offsets_load_buffer_size)
            took_ms = self._context.clock.monotonic_ms() - started_ms
            self._context.sensors.load_time.record(took_ms)
            log.info(
                "Loaded %d groups and %d offsets of %s from %d records in %d ms", shard.group_count,
                shard.offsets.count, shard.tp, count, took_ms,
            )  # fmt: skip
            self._loaded.append(shard)
            self._activate_loaded()

    def _activate_loaded(self) -> None:
        """Activate the loaded shards if the metadata is new enough.

        Why a list: `on_metadata_update` checks it after the metadata has changed, so that call or this one sees both.
        """
        if not self._metadata_cache.is_current:
            return
        loaded, self._loaded = self._loaded, []
        for shard in loaded:
            with shard.isolate_failures():
                shard.activate()

    def _remove_former(self, former_ids: Mapping[str, bytes]) -> None:
        for shard in list(self._shards.values()):
            with shard.isolate_failures():
                shard.on_topics_replaced(former_ids)

    def _reap(self) -> None:
        while self._is_running:
            self._timer.wait_and_advance(REAPER_WAIT_MS_MAX)

    # A clock that is moved on purpose

    @property
    def timer(self) -> Timer:
        """The timer of the groups' timeouts."""
        return self._timer

    @property
    def has_jobs(self) -> bool:
        """Whether jobs wait for their threads."""
        return not (self._jobs.empty() and self._background.empty())

    def writes(self) -> Sequence[CommittedWrites]:
        """Return the writes of each shard, to be read without a lock."""
        return [shard.writes for shard in list(self._shards.values())]

    def expire(self) -> None:
        """Remove expired offsets and empty groups now, before the check that is due next."""
        for shard in list(self._shards.values()):
            with shard.isolate_failures():
                shard.expire()

    # Where a group is

    def partition_for(self, group_id: str) -> int:
        """Return the partition of __consumer_offsets that coordinates the group."""
        count = self._metadata_cache.snapshot.partition_count(GROUP_METADATA_TOPIC)
        return partition_for(group_id, count or self._config.offsets_topic_num_partitions)

    def _shard(self, group_id: str) -> Shard | None:
        return self._shards.get(self.partition_for(group_id))

    # Members

    def join(self, group_id: str, event: ev.Join) -> None:
        """Handle a JoinGroup; answered through `event.reply`."""
        error = self._join_error(group_id, event.session_timeout_ms)
        shard = self._shard(group_id) if not error else None
        if shard is None:
            event.reply(ev.JoinResult(error or ErrorCode.NOT_COORDINATOR, event.member_id))
        else:
            shard.join(group_id, event)

    def _join_error(self, group_id: str, session_timeout_ms: int) -> ErrorCode:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        config = self._config
        low, high = config.group_min_session_timeout_ms, config.group_max_session_timeout_ms
        return ErrorCode.NONE if low <= session_timeout_ms <= high else ErrorCode.INVALID_SESSION_TIMEOUT

    def sync(self, group_id: str, event: ev.Sync) -> None:
        """Handle a SyncGroup; answered through `event.reply`."""
        shard = self._shard(group_id)
        if not group_id or shard is None:
            event.reply(ev.SyncResult(_no_shard(group_id)))
        else:
            shard.sync(group_id, event)

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Handle a Heartbeat."""
        shard = self._shard(group_id)
        if not group_id or shard is None:
            return _no_shard(group_id)
        return shard.heartbeat(group_id, ev.Heartbeat(member_id, instance_id, generation_id, None))

    def leave(self, group_id: str, event: ev.Leave) -> None:
        """Handle a LeaveGroup; answered through `event.reply`."""
        shard = self._shard(group_id)
        if not group_id or shard is None:
            event.reply(ev.LeaveResult(_no_shard(group_id)))
        else:
            shard.leave(group_id, event)

    # Consumer groups (KIP-848)

    @property
    def are_consumer_groups_enabled(self) -> bool:
        """Whether the consumer protocol is served: the configuration and the cluster's features allow it."""
        features = self._metadata_cache.finalized_features
        is_off = features.epoch != UNKNOWN_EPOCH and features.levels.get("group.version", 0) < 1
        return not is_off and "consumer" in self._config.group_coordinator_rebalance_protocols

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        """The server-side assignors; the first is the default."""
        return self._context.consumers.settings.assignors

    def consumer_heartbeat(
        self, group_id: str, request: Heartbeat, reply: Completion[HeartbeatResult | ApiError]
    ) -> None:
        """Handle a ConsumerGroupHeartbeat."""
        shard = self._shard(group_id)
        if shard is None:
            reply(ApiError(ErrorCode.NOT_COORDINATOR))
        else:
            shard.consumer_heartbeat(group_id, request, reply)

    def is_modern_group(self, group_id: str) -> bool:
        """Return whether this broker coordinates a group with this id that is not a classic one."""
        shard = self._shard(group_id)
        return shard is not None and shard.has_modern_group(group_id)

    def describe_consumer_group(self, group_id: str, read: Callable[[ConsumerGroup], T]) -> T:
        """Have `read` read a consumer group, quickly, under its shard's lock. Raises ApiError."""
        return self.shard_of(group_id).describe_consumer_group(group_id, read)

    # Share groups (KIP-932) and streams groups (KIP-1071)

    def shard_of(self, group_id: str) -> Shard:
        """Return the group's shard. Raises ApiError."""
        shard = self._shard(group_id) if group_id else None
        if shard is None:
            raise ApiError(_no_shard(group_id))
        return shard

    def with_shard(self, group_id: str, use: Callable[[Shard], object], refuse: Completion[ApiError]) -> None:
        """Have `use` use the group's shard; `refuse` gets the error if it is not here."""
        try:
            shard = self.shard_of(group_id)
        except ApiError as refusal:
            refuse(refusal)
        else:
            use(shard)

    # Offsets; an empty group id is valid here, as it always was

    @property
    def offset_metadata_max_chars(self) -> int:
        """The longest metadata that a committed offset may have."""
        return self._context.metadata_max_chars

    @property
    def now_ms(self) -> int:
        """The wall time, for offsets that are committed now."""
        return self._context.clock.wall_ms()

    def commit_offsets(
        self, committer: Committer, commits: Sequence[OffsetCommit], reply: Completion[ErrorCode]
    ) -> None:
        """Commit offsets; answered with NONE when all are committed."""
        shard = self._shard(committer.group_id)
        if shard is None:
            reply(ErrorCode.NOT_COORDINATOR)
        else:
            shard.commit_offsets(committer, commits, reply)

    def commit_in_transaction(
        self,
        committer: Committer,
        producer: Producer,
        commits: Sequence[OffsetCommit],
        guard: VerificationGuard | None,
        reply: Completion[ErrorCode],
    ) -> None:
        """Write offsets that are committed with the producer's transaction (KIP-447)."""
        shard = self._shard(committer.group_id)
        if shard is None:
            reply(ErrorCode.NOT_COORDINATOR)
        else:
            shard.commit_in_transaction(committer, producer, commits, guard, reply)

    def end_transaction(self, tp: TopicPartition, marker: Marker, reply: Completion[ErrorCode]) -> None:
        """Write a transaction's marker to a partition of __consumer_offsets."""
        shard = self._shards.get(tp.partition)
        if shard is None:
            reply(ErrorCode.NOT_COORDINATOR)
        else:
            shard.end_transaction(marker, self.now_ms, reply)

    def fetch_offsets(self, query: OffsetQuery, reply: Completion[FetchedOffsets]) -> None:
        """Answer with a group's offsets."""
        shard = self._shard(query.group_id)
        if shard is None:
            reply(FetchedOffsets(ErrorCode.NOT_COORDINATOR))
        else:
            shard.fetch_offsets(query, reply)

    def delete_offsets(
        self, group_id: str, topics: Mapping[str, Container[int]], reply: Completion[DeletedOffsets]
    ) -> None:
        """Delete a group's offsets of these partitions, except those of topics that the group is subscribed to."""
        shard = self._shard(group_id)
        if not group_id or shard is None:
            reply(DeletedOffsets(_no_shard(group_id)))
        else:
            shard.delete_offsets(group_id, topics, reply)

    # Groups

    def list_groups(self, states: Iterable[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """Return the groups here in these states (case does not matter; no states means all).

        Different from Apache Kafka: NotReady is found by its name, too, which clients send (Kafka: by `not_ready`).
        """
        wanted = frozenset(state.strip().lower().replace("_", "") for state in states)
        groups: list[ListedGroup] = []
        for shard in list(self._shards.values()):
            error, listed = shard.listed(wanted)
            if error and error != ErrorCode.NOT_COORDINATOR:
                return error, []
            groups += listed
        return ErrorCode.NONE, groups

    def describe(self, group_id: str, read: Callable[[Group], T]) -> tuple[ErrorCode, T | None]:
        """Have `read` read a classic group, quickly, under its shard's lock."""
        shard = self._shard(group_id)
        return (ErrorCode.NOT_COORDINATOR, None) if shard is None else shard.describe(group_id, read)

    def delete_groups(self, group_ids: Sequence[str], reply: Completion[Mapping[str, ErrorCode]]) -> None:
        """Delete groups with their offsets; answered with the error of each group."""
        by_shard: dict[Shard, list[str]] = {}
        errors: dict[str, ErrorCode] = {}
        for group_id in group_ids:
            shard = self._shard(group_id)
            if shard is None:
                errors[group_id] = ErrorCode.NOT_COORDINATOR
            else:
                by_shard.setdefault(shard, []).append(group_id)

        def answer(results: Mapping[int, Mapping[str, ErrorCode]]) -> None:
            for of_shard in results.values():
                errors.update(of_shard)
            reply(errors)

        gathering: Gathering[int, Mapping[str, ErrorCode]] = Gathering(len(by_shard), answer)
        # Why not by partition: its shard may have been replaced between two look-ups, so both are here.
        for index, (shard, ids) in enumerate(by_shard.items()):
            shard.delete_groups(ids, partial(gathering.add, index))

    # Looking without changing anything, for metrics and the live page

    def shards(self) -> list[Shard]:
        """Return the shards of all partitions led here."""
        return list(self._shards.values())

    def look_at(self, group_id: str) -> GroupView:
        """Return a classic group, as far as it is here, and what explains its waits."""
        shard = self._shard(group_id)
        return GroupView(None if shard is None else shard.groups.get(group_id), self.now_ms, self.initial_delay_ms)

    def invariants(self) -> None:
        """Assert the invariants of every shard's groups; for tests, debugging and simulation."""
        for shard in self.shards():
            shard.invariants()

    @property
    def initial_delay_ms(self) -> int:
        """How long the first members of a group wait for others."""
        return self._context.settings.initial_rebalance_delay_ms


def _no_shard(group_id: str) -> ErrorCode:
    return ErrorCode.NOT_COORDINATOR if group_id else ErrorCode.INVALID_GROUP_ID


def _times(config: GroupConfig) -> GroupTimes:
    return GroupTimes(
        session_timeout_ms=config.consumer_session_timeout_ms,
        heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
        assignment_interval_ms=config.consumer_assignment_interval_ms,
    )


def _share_times(config: GroupConfig) -> GroupTimes:
    return GroupTimes(
        session_timeout_ms=config.share_session_timeout_ms,
        heartbeat_interval_ms=config.share_heartbeat_interval_ms,
        assignment_interval_ms=config.share_assignment_interval_ms,
    )


def _streams_config(config: GroupConfig) -> StreamsGroupConfig:
    return StreamsGroupConfig(
        session_timeout_ms=config.streams_session_timeout_ms,
        heartbeat_interval_ms=config.streams_heartbeat_interval_ms,
        assignment_interval_ms=config.streams_assignment_interval_ms,
        initial_rebalance_delay_ms=config.streams_initial_rebalance_delay_ms,
        num_standby_replicas=config.streams_num_standby_replicas,
    )


def _consumer_settings(config: Config) -> ConsumerGroupSettings:
    policy = config.group_consumer_migration_policy.lower()
    return ConsumerGroupSettings(
        assignors=tuple(ASSIGNOR_NAMES[name] for name in config.group_consumer_assignors),
        max_size=config.group_consumer_max_size,
        classic_max_size=config.group_max_size,
        may_upgrade=policy in ("upgrade", "bidirectional"),
        may_downgrade=policy in ("downgrade", "bidirectional"),
    )
