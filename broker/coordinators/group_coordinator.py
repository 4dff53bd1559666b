"""GroupCoordinator: which shard a group belongs to, and whether this broker has it.

Rules
1. A group lives in partition abs(hashCode(group id)) % partitions of __consumer_offsets; the leader of that partition
   coordinates it. Nobody else answers for it (NOT_COORDINATOR).
2. A shard serves once its partition has been read, and the picture of the cluster is as new as the push that made
   this broker its leader (COORDINATOR_LOAD_IN_PROGRESS until then): committed offsets carry ids of topics, and an older
   picture would take a new topic for a former one.
3. Nothing here decides about groups: `shard.py` and the pure parts below it do.

Threads: requests on handlers; timers on `group-coordinator-reaper`; loading and unloading on
`group-metadata-manager-0`.
Source: Kafka's GroupCoordinatorService (4.3).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.coordinators import group_events as ev
from barnabas.broker.coordinators.consumer_context import ConsumerContext
from barnabas.broker.coordinators.consumer_group import ConsumerGroup
from barnabas.broker.coordinators.consumer_group_situation import ConsumerGroupSettings, GroupTimes
from barnabas.broker.coordinators.consumer_group_types import Heartbeat
from barnabas.broker.coordinators.coordinator_metrics import GroupSensors, register_groups
from barnabas.broker.coordinators.group import Group
from barnabas.broker.coordinators.group_events import GroupSettings
from barnabas.broker.coordinators.loader import load
from barnabas.broker.coordinators.log_replay import describe
from barnabas.broker.coordinators.metadata_watch import MetadataWatch
from barnabas.broker.coordinators.offsets import FetchedTopic, TopicWanted
from barnabas.broker.coordinators.shard import ListedGroup, OffsetCommit, Shard
from barnabas.broker.coordinators.shard_consumer import Committer, HeartbeatReply
from barnabas.broker.coordinators.shard_core import ShardContext, ShardState
from barnabas.broker.features import UNKNOWN_EPOCH
from barnabas.broker.metadata_cache import GROUP_METADATA_TOPIC
from barnabas.broker.timing_wheel import Timer
from barnabas.common.threads import ServiceThread
from barnabas.common.topic_partition import TopicPartition
from barnabas.config.checks import ASSIGNOR_NAMES
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.compression import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.coordinators.transaction import Producer
    from barnabas.broker.coordinators.transaction_marker import Marker
    from barnabas.broker.metadata_cache import MetadataCache
    from barnabas.broker.storage.verification import VerificationGuard
    from barnabas.common.clock import Clock
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.group")

T = TypeVar("T")

MS_PER_MINUTE = 60_000
REAPER_WAIT_MS_MAX = 60_000
HASHES_CACHED = 4096


@lru_cache(maxsize=HASHES_CACHED)
def java_hash(text: str) -> int:
    """String.hashCode() of Java: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (value * 31 + units[index] * 256 + units[index + 1]) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def partition_for(group_id: str, partition_count: int) -> int:
    """The partition of __consumer_offsets that a group belongs to (abs of the smallest int is 0, as in Kafka)."""
    value = java_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value) % partition_count


class GroupCoordinator:
    """See the module."""

    def __init__(
        self,
        *,
        config: Any,
        group_config: Callable[[str], Any],
        clock: Clock,
        registry: Registry,
        replica_manager: Any,
        metadata_cache: MetadataCache,
    ) -> None:
        self._config = config  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start
        self._replica_manager = replica_manager  # fixed before start
        self._timer = Timer(clock)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        consumers = ConsumerContext(
            MetadataWatch(metadata_cache), self._jobs.put, lambda group_id: _times(group_config(group_id))
        )
        self._context = ShardContext(replica_manager, clock, self._timer, GroupSettings(), consumers)
        self.reconfigure(config)
        self._lock = threading.Lock()  # serialises changes of _shards
        self._shards: dict[int, Shard] = {}  # guarded by: _lock (lookups need none); by partition
        self._loaded: list[Shard] = []  # owner: the loader thread; loaded, and waiting for the picture
        self._is_running = False  # set by start, cleared by shutdown
        self._loader_thread = ServiceThread("group-metadata-manager-0", "group-meta-0", self._work)
        self._reaper_thread = ServiceThread("group-coordinator-reaper", "group-reaper", self._reap)
        self._context.sensors = GroupSensors(registry)
        register_groups(registry, self)

    # Life

    def start(self) -> None:
        """Start the threads."""
        self._is_running = True
        self._loader_thread.start()
        self._reaper_thread.start()

    def shutdown(self) -> None:
        """Close all shards (parked members are sent away) and stop the threads."""
        was_running, self._is_running = self._is_running, False
        with self._lock:
            shards, self._shards = list(self._shards.values()), {}
        for shard in shards:
            shard.close()
        self._jobs.put(None)
        self._timer.close()
        if was_running:
            self._loader_thread.join()
            self._reaper_thread.join()

    def reconfigure(self, config: Any) -> None:
        """Take over the settings, at start and when they change."""
        self._config = config
        context = self._context
        context.settings = GroupSettings(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms, max_size=config.group_max_size
        )
        context.consumers.settings = _consumer_settings(config)
        context.commit_timeout_ms = config.offsets_commit_timeout_ms
        context.compression = CompressionType(config.offsets_topic_compression_codec)
        context.metadata_max_chars = config.offset_metadata_max_bytes
        context.retention_ms = config.offsets_retention_minutes * MS_PER_MINUTE
        context.retention_check_ms = config.offsets_retention_check_interval_ms

    # Leadership

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        """This broker leads the partition now: load its groups."""
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
        """This broker does not lead the partition any more: forget its groups."""
        if tp.topic != GROUP_METADATA_TOPIC:
            return
        with self._lock:
            shard = self._shards.get(tp.partition)
            if shard is None or (leader_epoch is not None and leader_epoch < shard.leader_epoch):
                return
            del self._shards[tp.partition]
        log.info("Unloading the groups of %s", tp)
        shard.close()

    def on_picture(self, former_ids: Mapping[str, bytes]) -> None:
        """The picture of the cluster has changed: remove the offsets of topics that are gone, serve what waited for it.

        `former_ids`: the names that belong to another topic now, or to none, with the id of the topic that had them
        before (ZERO_UUID if there was none).
        """
        if former_ids and self._shards:
            self._jobs.put(partial(self._remove_former, former_ids))
        if self._loaded:
            self._jobs.put(self._activate_loaded)

    def run_pending_jobs(self) -> None:
        """Do on this thread what waits for the loader thread, for tests without threads."""
        while not self._jobs.empty():
            job = self._jobs.get()
            if job is not None:
                job()

    def _load(self, shard: Shard) -> None:
        started_ms = self._context.clock.monotonic_ms()
        try:
            partition_log = self._replica_manager.partition(shard.tp).log
            count = load(shard, partition_log, self._config.offsets_load_buffer_size)
        except Exception as error:  # Why every kind: nothing in the log may end the process, or keep other shards away.
            shard.fail(describe(error))
            return
        if self._context.sensors is not None:
            self._context.sensors.load_time.record(self._context.clock.monotonic_ms() - started_ms)
        log.info(
            "Loaded %d groups and %d offsets of %s from %d records in %d ms", shard.group_count, shard.offsets.count,
            shard.tp, count, self._context.clock.monotonic_ms() - started_ms,
        )  # fmt: skip

        self._loaded.append(shard)
        self._activate_loaded()

    def _activate_loaded(self) -> None:
        """Let shards serve that were loaded, if the picture is new enough.

        Why the list comes first: `on_picture` looks at it after the picture has changed, so one of the two sees both.
        """
        if not self._metadata_cache.is_current:
            return
        loaded, self._loaded = self._loaded, []
        for shard in loaded:
            try:
                shard.activate()
            except Exception as error:
                shard.fail(describe(error))

    def _remove_former(self, former_ids: Mapping[str, bytes]) -> None:
        for shard in list(self._shards.values()):
            try:
                shard.on_topics_replaced(former_ids)
            except Exception as error:
                shard.fail(describe(error))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:
                log.exception("a job of the group coordinator failed")

    def _reap(self) -> None:
        while self._is_running:
            self._timer.wait_and_advance(REAPER_WAIT_MS_MAX)

    # Where a group is

    def partition_for(self, group_id: str) -> int:
        """The partition of __consumer_offsets that coordinates the group."""
        count = self._metadata_cache.snapshot.partition_count(GROUP_METADATA_TOPIC)
        return partition_for(group_id, count or self._config.offsets_topic_num_partitions)

    def _shard(self, group_id: str) -> Shard | None:
        return self._shards.get(self.partition_for(group_id))

    # Members

    def join(self, group_id: str, event: ev.Join) -> None:
        """Handle a JoinGroup; `event.reply(JoinResult)` is called once, on any thread."""
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
        """Handle a SyncGroup; `event.reply(SyncResult)` is called once, on any thread."""
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
        return shard.heartbeat(group_id, member_id, instance_id, generation_id)

    def leave(self, group_id: str, event: ev.Leave) -> None:
        """Handle a LeaveGroup; `event.reply(LeaveResult)` is called once, on any thread."""
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

    def consumer_heartbeat(self, group_id: str, request: Heartbeat, reply: HeartbeatReply) -> None:
        """Handle a ConsumerGroupHeartbeat; `reply(HeartbeatResult or ApiError)` is called once, on any thread."""
        shard = self._shard(group_id)
        if shard is None:
            reply(ApiError(ErrorCode.NOT_COORDINATOR))
        else:
            shard.consumer_heartbeat(group_id, request, reply)

    def is_consumer_group(self, group_id: str) -> bool:
        """Whether there is a consumer group of this id here."""
        shard = self._shard(group_id)
        return shard is not None and group_id in shard.consumer_groups

    def describe_consumer_group(self, group_id: str, look: Callable[[ConsumerGroup], T]) -> T:
        """Let `look` read a group, quickly, under its shard's lock. Raises ApiError."""
        shard = self._shard(group_id)
        if shard is None:
            raise ApiError(_no_shard(group_id))
        return shard.describe_consumer_group(group_id, look)

    # Offsets; here an empty group id is one like any other, as it always was

    @property
    def offset_metadata_max_chars(self) -> int:
        """How long the metadata of a committed offset may be."""
        return self._context.metadata_max_chars

    @property
    def now_ms(self) -> int:
        """Wall time, for what is committed now."""
        return self._context.clock.wall_ms()

    def commit_offsets(
        self, who: Committer, commits: Sequence[OffsetCommit], reply: Callable[[ErrorCode], object]
    ) -> None:
        """Commit positions; `reply(error)` is called once, on any thread."""
        shard = self._shard(who.group_id)
        if shard is None:
            reply(ErrorCode.NOT_COORDINATOR)
        else:
            shard.commit_offsets(who, commits, reply)

    def commit_in_transaction(
        self,
        who: Committer,
        producer: Producer,
        commits: Sequence[OffsetCommit],
        guard: VerificationGuard | None,
        reply: Callable[[ErrorCode], object],
    ) -> None:
        """Commit positions in a transaction; `reply(error)` is called once, on any thread."""
        shard = self._shard(who.group_id)
        if shard is None:
            reply(ErrorCode.NOT_COORDINATOR)
        else:
            shard.commit_in_transaction(who, producer, commits, guard, reply)

    def end_transaction(self, tp: TopicPartition, marker: Marker, reply: Callable[[ErrorCode], object]) -> None:
        """Write a transaction's marker to a partition of ours; `reply(error)` is called once, on any thread."""
        shard = self._shards.get(tp.partition)
        if shard is None:
            reply(ErrorCode.NOT_COORDINATOR)
        else:
            shard.end_transaction(marker, self.now_ms, reply)

    def fetch_offsets(
        self,
        group_id: str,
        wanted: Sequence[TopicWanted] | None,
        require_stable: bool,
        reply: Callable[[ErrorCode, list[FetchedTopic]], object],
        *,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> None:
        """Tell positions (all for None); `reply(error, topics)` is called once, on any thread.

        A member of a consumer group says that it is one, and in which epoch.
        """
        shard = self._shard(group_id)
        if shard is None:
            reply(ErrorCode.NOT_COORDINATOR, [])
        else:
            shard.fetch_offsets(group_id, wanted, require_stable, reply, member_id=member_id, member_epoch=member_epoch)

    def delete_offsets(
        self,
        group_id: str,
        topics: Mapping[str, Container[int]],
        reply: Callable[[ErrorCode, dict[str, ErrorCode]], object],
    ) -> None:
        """Remove positions; `reply(group's error, errors by topic)` is called once, on any thread."""
        shard = self._shard(group_id)
        if not group_id or shard is None:
            reply(_no_shard(group_id), {})
        else:
            shard.delete_offsets(group_id, topics, reply)

    # Groups

    def list_groups(self, states: Iterable[str]) -> tuple[ErrorCode, list[ListedGroup]]:
        """All groups here, in these states (case does not matter; none: any)."""
        wanted = frozenset(state.strip().lower() for state in states)
        groups: list[ListedGroup] = []
        for shard in list(self._shards.values()):
            error, listed = shard.listed(wanted)
            if error and error != ErrorCode.NOT_COORDINATOR:
                return error, []
            groups += listed
        return ErrorCode.NONE, groups

    def describe(self, group_id: str, look: Callable[[Group], T]) -> tuple[ErrorCode, T | None]:
        """Let `look` read a group, quickly, under its shard's lock."""
        shard = self._shard(group_id)
        return (ErrorCode.NOT_COORDINATOR, None) if shard is None else shard.describe(group_id, look)

    def delete_groups(self, group_ids: Sequence[str], reply: Callable[[dict[str, ErrorCode]], object]) -> None:
        """Delete groups with their offsets; `reply(errors by group)` is called once, on any thread."""
        by_shard: dict[Shard, list[str]] = {}
        errors: dict[str, ErrorCode] = {}
        for group_id in group_ids:
            shard = self._shard(group_id)
            if shard is None:
                errors[group_id] = ErrorCode.NOT_COORDINATOR
            else:
                by_shard.setdefault(shard, []).append(group_id)
        gathering = Gathering(len(by_shard), errors, reply)
        for shard, ids in by_shard.items():
            shard.delete_groups(ids, gathering.add)

    def shards(self) -> list[Shard]:
        """Every shard there is now, for metrics; look at them without changing anything."""
        return list(self._shards.values())

    def look_at(self, group_id: str) -> tuple[Group | None, int, int]:
        """A classic group, if it is here, the wall time, and the initial rebalance delay; for the live page."""
        shard = self._shard(group_id)
        return None if shard is None else shard.groups.get(group_id), self.now_ms, self.initial_delay_ms

    @property
    def initial_delay_ms(self) -> int:
        """How long the first members of a group wait for others."""
        return self._context.settings.initial_rebalance_delay_ms


class Gathering:
    """Puts the answers of several shards together; the last one (or nobody to wait for) calls `reply`."""

    def __init__(
        self, expected: int, errors: dict[str, ErrorCode], reply: Callable[[dict[str, ErrorCode]], object]
    ) -> None:
        self._lock = threading.Lock()  # a leaf
        self._expected = expected  # guarded by: _lock
        self._errors = errors  # guarded by: _lock
        self._reply = reply  # fixed before start
        if expected == 0:
            reply(errors)

    def add(self, errors: Mapping[str, ErrorCode]) -> None:
        """Take one shard's answer."""
        with self._lock:
            self._errors.update(errors)
            self._expected -= 1
            is_last = self._expected == 0
        if is_last:
            self._reply(self._errors)


def _no_shard(group_id: str) -> ErrorCode:
    return ErrorCode.NOT_COORDINATOR if group_id else ErrorCode.INVALID_GROUP_ID


def _times(config: Any) -> GroupTimes:
    return GroupTimes(
        session_timeout_ms=config.consumer_session_timeout_ms,
        heartbeat_interval_ms=config.consumer_heartbeat_interval_ms,
        assignment_interval_ms=config.consumer_assignment_interval_ms,
    )


def _consumer_settings(config: Any) -> ConsumerGroupSettings:
    policy = config.group_consumer_migration_policy.lower()
    return ConsumerGroupSettings(
        assignors=tuple(ASSIGNOR_NAMES[name] for name in config.group_consumer_assignors),
        max_size=config.group_consumer_max_size,
        classic_max_size=config.group_max_size,
        may_upgrade=policy in ("upgrade", "bidirectional"),
        may_downgrade=policy in ("downgrade", "bidirectional"),
    )
