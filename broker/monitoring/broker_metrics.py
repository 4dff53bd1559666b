"""Gauges of a broker's components: the rows that each scrape reads from their state.

Components record their own events. The gauges here read state that is there anyway, so the components do not depend on
metrics. All code runs on the scraper's thread and takes no lock of a partition or log.

Source: Kafka's ReplicaManager, Partition, UnifiedLog, LogManager, BrokerServerMetrics (4.3).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from barnabas import __version__
from barnabas.broker.metadata.features import LISTED_FEATURES
from barnabas.broker.quotas.sensors import sanitized
from barnabas.common import logs
from barnabas.common.clock import NS_PER_S
from barnabas.metrics.meters import Window
from barnabas.metrics.request_metrics import CLIENTS_MAX, ClientUse
from barnabas.metrics.table import catalogue as c

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.quotas.client_quotas import ClientQuotas
    from barnabas.broker.quotas.managers import RateManager
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.directories.log_directory import LogDirectory
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.common.clock import Clock
    from barnabas.metrics.registry import Labels, Registry
    from barnabas.metrics.request_metrics import RequestMetrics

PARTITION_ROWS: Final = (
    c.UNDER_REPLICATED,
    c.UNDER_MIN_ISR,
    c.AT_MIN_ISR,
    c.IN_SYNC_REPLICAS_COUNT,
    c.REPLICAS_COUNT,
    c.LAST_STABLE_OFFSET_LAG,
    c.LOG_SIZE,
    c.NUM_LOG_SEGMENTS,
    c.LOG_START_OFFSET,
    c.LOG_END_OFFSET,
    c.HIGH_WATERMARK,
    c.RETENTION_SIZE_IN_PERCENT,
)
LATE_TRANSACTION_BUFFER_MS: Final = 5 * 60_000
PUSHES: Final = ("LeaderAndIsr", "UpdateMetadata", "StopReplica")
CLIENT_IDLE_S: Final = 3600.0  # Kafka keeps the sensors of a client without requests for as long


# --- partitions and logs


def register_partitions(registry: Registry, manager: ReplicaManager) -> None:
    """Register the ISR and the log of every partition on this broker."""
    registry.table(PARTITION_ROWS, lambda: [_partition_line(partition) for partition in manager.partitions()])


def _partition_line(partition: Partition) -> tuple[Labels, tuple[int, ...]]:
    role, log = partition.role, partition.log
    labels = (partition.tp.topic, str(partition.tp.partition))
    in_sync = replicas = 0
    is_under_min = is_at_min = False
    if role.is_leader:
        in_sync, replicas = len(role.isr), len(role.replicas)
        least = partition.effective_min_isr()
        is_under_min, is_at_min = in_sync < least, in_sync == least
    isr = (in_sync < replicas, is_under_min, is_at_min, in_sync, replicas)
    if log is None:
        return labels, (*isr, 0, 0, 0, 0, 0, 0, 0)
    size, high_watermark = log.size_in_bytes, log.high_watermark
    bound = log.config.retention_bytes
    percent = size * 100 // bound if bound > 0 else 0
    return labels, (
        *isr,
        high_watermark - log.last_stable_offset,
        size,
        log.num_segments,
        log.log_start_offset,
        log.log_end_offset,
        high_watermark,
        percent,
    )


def register_logs(registry: Registry, log_manager: LogManager) -> None:
    """Register log directories, producer ids and the durations of flushes."""
    log_manager.on_flush = registry.timer(c.LOG_FLUSH_TIME_MS).update
    directories = log_manager.directories
    registry.table(
        (c.LOG_DIRECTORY_OFFLINE, c.LOG_DIRECTORY_CORDONED),
        lambda: [((found.path,), (found.is_offline, log_manager.is_cordoned(found))) for found in directories],
    )
    registry.table((c.LOG_DIRECTORY_SIZE, c.LOG_DIRECTORY_FREE), lambda: _usages(directories))
    registry.gauge(c.OFFLINE_LOG_DIRECTORY_COUNT, lambda: sum(directory.is_offline for directory in directories))
    registry.gauge(c.STRAY_LOG_COUNT, lambda: len(log_manager.strays))
    registry.gauge(c.STRAY_LOG_BYTES, lambda: sum(stray.size_bytes for stray in log_manager.strays))
    registry.gauge(c.CORDONED_LOG_DIRECTORY_COUNT, lambda: sum(map(log_manager.is_cordoned, directories)))
    registry.gauge(
        c.PRODUCER_ID_COUNT, lambda: sum(len(log.producer_state.producers) for log in log_manager.all_logs())
    )


def _usages(directories: Sequence[LogDirectory]) -> list[tuple[tuple[str], tuple[int, int]]]:
    """Return size and free space of each directory, without failed ones, which another row counts."""
    usages = []
    for directory in directories:
        with contextlib.suppress(OSError):
            usages.append(((directory.path,), directory.usage()))
    return usages


def register_late_transactions(registry: Registry, manager: ReplicaManager) -> None:
    """Register the number of partitions with a transaction that is open for longer than its coordinator allows."""

    def count() -> int:
        allowed_ms = manager.config.transaction_max_timeout_ms + LATE_TRANSACTION_BUFFER_MS
        oldest_ms = manager.log_manager.clock.wall_ms() - allowed_ms
        held = (partition.log for partition in manager.partitions())
        return sum(0 < log.producer_state.oldest_transaction_timestamp < oldest_ms for log in held if log is not None)

    registry.gauge(c.PARTITIONS_WITH_LATE_TRANSACTIONS_COUNT, count)


# --- metadata


def register_metadata(registry: Registry, cache: MetadataCache, clock: Clock, controller_id: Callable[[], int]) -> None:
    """Register the metadata that this broker has applied."""
    applied = _Applied(cache, clock)
    errors = [registry.meter(c.ERRORS_PER_SEC, request=push, error="UNKNOWN_SERVER_ERROR") for push in PUSHES]
    gauges: dict[c.Metric, Callable[[], float]] = {
        c.METADATA_LAST_APPLIED_RECORD_OFFSET: lambda: cache.offset,
        c.METADATA_LAST_APPLIED_RECORD_TIMESTAMP: applied.at_ms,
        c.METADATA_LAST_APPLIED_RECORD_LAG_MS: lambda: clock.wall_ms() - applied.at_ms(),
        c.METADATA_APPLY_ERROR_COUNT: lambda: sum(error.count for error in errors),
        c.CURRENT_CONTROLLER_ID: controller_id,
        c.CURRENT_METADATA_VERSION: lambda: cache.finalized_features.levels.get("metadata.version", 0),
    }
    for row, read in gauges.items():
        registry.gauge(row, read)
    registry.table((c.FINALIZED_LEVEL,), lambda: levels(cache.finalized_features.levels))
    register_supported(registry)


class _Applied:
    """The time when the metadata offset last changed, as seen by scrapes."""

    def __init__(self, cache: MetadataCache, clock: Clock) -> None:
        self._cache = cache  # fixed before start
        self._clock = clock  # fixed before start
        self._seen = (-1, clock.wall_ms())  # owner: the scraper; offset, wall time

    def at_ms(self) -> int:
        """Return that time: wall time in milliseconds."""
        if self._cache.offset != self._seen[0]:
            self._seen = (self._cache.offset, self._clock.wall_ms())
        return self._seen[1]


def levels(finalized: Mapping[str, int]) -> list[tuple[Labels, tuple[int, ...]]]:
    """Return the series of FinalizedLevel."""
    return [((_kafka_feature(name),), (level,)) for name, level in finalized.items()]


def _kafka_feature(name: str) -> str:
    """Return the name of a feature in Kafka's MBeans: metadataVersion for `metadata.version`."""
    first, *rest = name.split(".")
    return first + "".join(word.capitalize() for word in rest)


def register_supported(registry: Registry) -> None:
    """Register the supported levels of features; for brokers and controllers."""
    registry.table(
        (c.SUPPORTED_LEVEL_MIN, c.SUPPORTED_LEVEL_MAX),
        lambda: [((name.replace(".", "-"),), levels) for name, levels in LISTED_FEATURES.items()],
    )


# --- the process


def register_process(registry: Registry, clock: Clock, node_id: int, cluster_id: str, cluster_row: c.Metric) -> None:
    """Register identity, start time and logged lines of this process; for brokers and controllers."""
    started_ms = clock.wall_ms()
    registry.text(cluster_row, lambda: (cluster_id,))
    registry.text(c.APP_INFO, lambda: (__version__, str(node_id)))
    registry.gauge(c.START_TIME_MS, lambda: started_ms, id=node_id)
    registry.table((c.LOG_LINES,), lambda: [((level,), (count,)) for level, count in list(logs.lines.items())])


# --- clients


class ClientMetrics:
    """The use of the broker by each client id: totals, and the rates of Kafka's quotas.

    A client without requests for an hour is no longer shown. Of more than CLIENTS_MAX, those that were active last are
    shown: clients choose their ids, and a page must not take longer than a visitor waits. Where a kind of quota has
    limits, its rates are those that the quota measures, by user and client id. Owner: the scraper.
    """

    def __init__(self, registry: Registry, requests: RequestMetrics, quotas: ClientQuotas | None = None) -> None:
        self._registry = registry  # fixed before start
        self._quotas = quotas  # fixed before start
        self._requests = requests  # fixed before start
        self._seen: dict[str, tuple[ClientUse, float]] = {}  # by client id: use, and the time when it last changed
        self._shown: frozenset[str] = frozenset()
        self._windows: dict[tuple[str, c.Metric], tuple[Window, Window]] = {}
        registry.table(
            (c.CLIENT_REQUESTS, c.CLIENT_REQUEST_BYTES, c.CLIENT_RESPONSE_BYTES, c.CLIENT_REQUEST_SECONDS),
            self._totals,
        )
        for rows, request in (
            ((c.PRODUCE_BYTE_RATE, c.PRODUCE_THROTTLE_TIME), "Produce"),
            ((c.FETCH_BYTE_RATE, c.FETCH_THROTTLE_TIME), "Fetch"),
            ((c.REQUEST_TIME, c.REQUEST_THROTTLE_TIME), None),
        ):
            registry.table(rows, lambda rows=rows, request=request: self._rates(rows[0], request))  # type: ignore[misc]

    def _totals(self) -> list[tuple[Labels, tuple[float, ...]]]:
        now_s = self._registry.now_s()
        uses = self._requests.client_uses()
        seen = {}
        for client, use in uses.items():
            before, at_s = self._seen.get(client, (None, now_s))
            seen[client] = (use, now_s if use != before else at_s)
        self._seen = seen
        active = [(at_s, client) for client, (_, at_s) in seen.items() if now_s - at_s < CLIENT_IDLE_S]
        active.sort(key=lambda one: -one[0])
        self._shown = frozenset(client for _, client in active[:CLIENTS_MAX])
        return [
            ((client,), (use.requests, use.request_bytes, use.response_bytes, use.thread_ns / NS_PER_S))
            for client, (use, _) in seen.items()
            if client in self._shown
        ]

    def _rates(self, row: c.Metric, request: str | None) -> Iterator[tuple[Labels, tuple[float, ...]]]:
        """Yield a rate and the mean throttle time (ms, of that kind of quota) of each client that `_totals` shows.

        `_totals` runs before.
        """
        manager = self._manager(request)
        if manager is not None:
            for share, numbers, throttle_ms in manager.numbers():
                yield (sanitized(share.user), share.client_id), (numbers[0], throttle_ms)
            return
        now_s = self._registry.now_s()
        uses = self._requests.client_uses(request)
        for gone in [key for key in self._windows if key[1] is row and key[0] not in self._shown]:
            del self._windows[gone]
        for client, use in uses.items():
            if client not in self._shown:
                continue
            key = (client, row)
            if key not in self._windows:
                self._windows[key] = (Window(now_s), Window(now_s))
            windows = self._windows[key]
            if row is c.REQUEST_TIME:
                rate = windows[0].rate(use.thread_ns, now_s) / NS_PER_S * 100
            else:
                bytes_used = use.request_bytes if row is c.PRODUCE_BYTE_RATE else use.response_bytes
                rate = windows[0].rate(bytes_used, now_s)
            yield ("", client), (rate, 0.0)  # no quota of this kind throttles

    def _manager(self, request: str | None) -> RateManager | None:
        """Return the manager of the quota that a rate is for; None without limits of its kind."""
        if self._quotas is None:
            return None
        return {"Produce": self._quotas.produce, "Fetch": self._quotas.fetch}.get(request or "", self._quotas.request)


# --- all together


def register(services: Services, forwarding_queue_size: Callable[[], int], requests: RequestMetrics) -> None:
    """Register all gauges of a broker that has been built."""
    registry, cache = services.registry, services.metadata_cache
    register_partitions(registry, services.replica_manager)
    register_logs(registry, services.log_manager)
    register_late_transactions(registry, services.replica_manager)
    register_metadata(registry, cache, services.clock, lambda: int(cache.snapshot.controller_id))
    register_process(registry, services.clock, services.broker_id, services.cluster_id, c.CLUSTER_ID)
    registry.gauge(c.FORWARDING_QUEUE_LENGTH, forwarding_queue_size)
    registry.gauge(c.MAX_INCREMENTAL_FETCH_SESSIONS, lambda: services.config.max_incremental_fetch_session_cache_slots)
    ClientMetrics(registry, requests, services.quotas)
