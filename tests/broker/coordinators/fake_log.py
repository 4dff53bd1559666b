"""A coordinator over logs in memory, whose high watermark moves when a test says so. Shared by the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from barnabas.broker.coordinators.gauges import register_groups
from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas.broker.coordinators.groups.sensors import GroupSensors
from barnabas.broker.coordinators.offsets import records as offset_records
from barnabas.broker.coordinators.share_state.values import NO_START_OFFSET, SharePartitionKey, StateSummary
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC, MetadataSnapshot, PartitionInfo, TopicInfo
from barnabas.broker.storage.log.log_types import FetchIsolation
from barnabas.common.clock import FakeClock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.meters import Gauge
from barnabas.metrics.registry import Registry
from barnabas.metrics.table.catalogue import Metric
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch, end_txn_marker, iter_headers, iter_records


class FakeLog:
    """Batches in memory."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0

    def append(self, batch: bytes) -> int:
        first = self.log_end_offset
        placed = first.to_bytes(8, "big") + bytes(batch[8:])
        self.batches.append(placed)
        ((_, header),) = iter_headers(placed)
        self.log_end_offset = first + header.record_count
        return first

    def truncate(self, end_offset: int) -> None:
        """Lose what lies past an offset."""
        self.batches = [batch for batch in self.batches if next(iter_headers(batch))[1].next_offset <= end_offset]
        self.log_end_offset = end_offset

    def read(self, fetch_offset: int, max_bytes: int, *, isolation: FetchIsolation, min_one_message: bool) -> Any:
        assert isolation is FetchIsolation.LOG_END
        assert min_one_message
        found = b""
        for batch in self.batches:
            ((_, header),) = iter_headers(batch)
            if header.next_offset > fetch_offset and (not found or len(found) + len(batch) <= max_bytes):
                found += batch
        return SimpleNamespace(slice=SimpleNamespace(read=lambda: found) if found else None)

    def records(self) -> list[Any]:
        """What the records say, by `offset_records.read`."""
        return [
            offset_records.read(bytes(record.key), record.value, record.offset)
            for batch in self.batches
            for record in iter_records(batch)
            if record.key is not None
        ]


MAX_MESSAGE_BYTES = 1_048_588  # the default of max.message.bytes


@dataclass
class FakeReplicaManager:
    """Appends commit at once, unless `holds`; then `release` says how they ended."""

    logs: dict[TopicPartition, FakeLog] = field(default_factory=dict)
    holds: bool = False
    refuses: ErrorCode = ErrorCode.NONE
    waiting: list[tuple[TopicPartition, int, Callable[[ErrorCode, int], None]]] = field(default_factory=list)
    woken: list[TopicPartition] = field(default_factory=list)

    def partition(self, tp: TopicPartition) -> Any:
        if tp not in self.logs:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return SimpleNamespace(log=self.logs[tp], high_watermark=self.logs[tp].high_watermark)

    def append_internal(
        self, tp: TopicPartition, batch: bytes, timeout_ms: int, on_done: Callable[[ErrorCode, int], None], *,
        moved: set[Any] | None = None, transaction_version: int = 0, guard: Any = None,
    ) -> int:  # fmt: skip
        assert timeout_ms == 5000
        if self.refuses or len(batch) > MAX_MESSAGE_BYTES:
            raise ApiError(self.refuses or ErrorCode.MESSAGE_TOO_LARGE)
        log: FakeLog = self.partition(tp).log
        first = log.append(batch)
        assert moved is not None, "the shard holds its lock"
        moved.add(tp)
        if self.holds:
            self.waiting.append((tp, first, on_done))
        else:
            log.high_watermark = log.log_end_offset
            on_done(ErrorCode.NONE, first)
        return first

    def complete_delayed(self, tp: TopicPartition) -> None:
        self.woken.append(tp)

    def release(self, error: ErrorCode = ErrorCode.NONE, *, advances: bool = True) -> None:
        """Settle every waiting append."""
        waiting, self.waiting = self.waiting, []
        for tp, first, on_done in waiting:
            if not error and advances:
                self.logs[tp].high_watermark = self.logs[tp].log_end_offset
            on_done(error, first)


@dataclass
class FakePersister:
    """Share coordinators in memory. They answer at once, unless `holds`; then `release` lets them go on."""

    states: dict[SharePartitionKey, tuple[int, int]] = field(default_factory=dict)  # -> (state epoch, start offset)
    holds: bool = False
    refuses: dict[int, ErrorCode] = field(default_factory=dict)  # by partition
    waiting: list[Callable[[], object]] = field(default_factory=list)
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, reply: Callable[[ErrorCode], object]
    ) -> None:
        self.asked.append(("initialize", key.topic_id[:1].decode("latin-1"), key.partition, state_epoch, start_offset))

        def act() -> ErrorCode:
            if self.states.get(key, (0, 0))[0] > state_epoch:
                return ErrorCode.FENCED_STATE_EPOCH
            self.states[key] = (state_epoch, start_offset)
            return ErrorCode.NONE

        self._do(key, act, reply)

    def delete(
        self, key: SharePartitionKey, reply: Callable[[ErrorCode], object], is_wanted: Callable[[], bool]
    ) -> None:
        self.asked.append(("delete", key.topic_id[:1].decode("latin-1"), key.partition))

        def act() -> ErrorCode:
            if not is_wanted():
                return ErrorCode.NOT_COORDINATOR
            self.states.pop(key, None)
            return ErrorCode.NONE

        self._do(key, act, reply)

    def read_summary(self, key: SharePartitionKey, leader_epoch: int, reply: Callable[[StateSummary], object]) -> None:
        error = self.refuses.get(key.partition, ErrorCode.NONE)
        epoch, start = self.states.get(key, (0, NO_START_OFFSET))
        reply(StateSummary(error, epoch, 3, start, 2 if start >= 0 else -1))

    def _do(self, key: SharePartitionKey, act: Callable[[], ErrorCode], reply: Callable[[ErrorCode], object]) -> None:
        def run() -> None:
            error = self.refuses.get(key.partition, ErrorCode.NONE)
            reply(error or act())

        self.waiting.append(run)
        if not self.holds:
            self.release()

    def release(self) -> None:
        """Carry out all requests, in order."""
        while self.waiting:
            self.waiting.pop(0)()


CONFIG = {
    "group_initial_rebalance_delay_ms": 0,
    "group_max_size": 1000,
    "group_min_session_timeout_ms": 6000,
    "group_max_session_timeout_ms": 1_800_000,
    "group_coordinator_rebalance_protocols": ("classic", "consumer", "streams"),
    "group_consumer_assignors": ("uniform", "range"),
    "group_consumer_max_size": 1000,
    "group_consumer_migration_policy": "bidirectional",
    "consumer_session_timeout_ms": 45_000,
    "consumer_heartbeat_interval_ms": 5000,
    "consumer_assignment_interval_ms": 0,
    "group_share_max_size": 200,
    "share_session_timeout_ms": 45_000,
    "share_heartbeat_interval_ms": 5000,
    "share_assignment_interval_ms": 0,
    "group_streams_max_size": 1000,
    "streams_session_timeout_ms": 45_000,
    "streams_heartbeat_interval_ms": 5000,
    "streams_assignment_interval_ms": 0,
    "streams_initial_rebalance_delay_ms": 0,
    "streams_num_standby_replicas": 0,
    "offsets_commit_timeout_ms": 5000,
    "offset_metadata_max_bytes": 4096,
    "offsets_retention_minutes": 60,
    "offsets_retention_check_interval_ms": 600_000,
    "offsets_topic_compression_codec": 0,
    "offsets_topic_num_partitions": 2,
    "offsets_load_buffer_size": 5_242_880,
}

TOPIC_ID = b"t" * 16


def snapshot(topics: dict[str, int] | None = None) -> MetadataSnapshot:
    """A cluster that has these topics, led by broker 0."""
    infos = {
        name: TopicInfo(
            name, (name[:1] or "_").encode() * 16,
            {i: PartitionInfo(i, 0, 1, 1, (0,), (0,), ()) for i in range(count)},
        )
        for name, count in (topics or {"t": 2, "u": 1, GROUP_METADATA_TOPIC: 2}).items()
    }  # fmt: skip
    return MetadataSnapshot(topics=infos, topic_names={info.id: name for name, info in infos.items()})


class World:
    """A coordinator without threads: `run` does what they would do."""

    def __init__(self, *, leads: bool = True, checks_invariants: bool = True, **config: Any) -> None:
        self.checks_invariants = checks_invariants  # False: the log is another writer's
        self.clock = FakeClock()
        self.registry = Registry(self.clock)
        self.replicas = FakeReplicaManager()
        self.persister = FakePersister()
        self.cache = SimpleNamespace(
            snapshot=snapshot(), offset=0, finalized_features=FinalizedFeatures(), is_current=True
        )
        self.config = SimpleNamespace(**{**CONFIG, **config})
        self.coordinator = self.make_coordinator()
        if leads:
            self.lead(0)
            self.lead(1)

    def make_coordinator(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(
            config=self.config, group_config=lambda _group_id: self.config, clock=self.clock,
            sensors=GroupSensors(self.registry), replica_manager=self.replicas,
            metadata_cache=self.cache,  # type: ignore[arg-type]
            persister=self.persister,  # type: ignore[arg-type]
        )  # fmt: skip
        coordinator._context.checks_invariants = self.checks_invariants
        register_groups(self.registry, coordinator)
        return coordinator

    def tp(self, partition: int) -> TopicPartition:
        return TopicPartition(GROUP_METADATA_TOPIC, partition)

    def lead(self, partition: int, epoch: int = 1, *, loads: bool = True) -> None:
        self.replicas.logs.setdefault(self.tp(partition), FakeLog())
        self.coordinator.on_leadership(self.tp(partition), epoch)
        if loads:
            self.coordinator.run_pending_jobs()

    def fail_over(self) -> None:
        """Give the partitions to a fresh coordinator that knows nothing but the logs."""
        self.coordinator.shutdown()
        self.coordinator = self.make_coordinator()
        self.lead(0, 2)
        self.lead(1, 2)

    def log_of(self, group_id: str) -> FakeLog:
        return self.replicas.logs[self.tp(self.coordinator.partition_for(group_id))]

    def registry_value(self, row: Metric) -> float:
        """What a scrape would read of a gauge without labels."""
        for found, instruments in self.registry.collect():
            if found is row:
                ((_, gauge),) = instruments
                assert isinstance(gauge, Gauge)
                return gauge.read()
        raise KeyError(row.name)

    def advance_ms(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self.coordinator._timer.advance()


def transactional_batch(records: list[SimpleRecord], producer_id: int) -> bytes:
    return build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)


__all__ = ["FakeLog", "FakeReplicaManager", "World", "end_txn_marker", "snapshot", "transactional_batch"]
