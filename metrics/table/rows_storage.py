"""THE table of metrics: partitions and logs, kafka.cluster and kafka.log (see `catalogue.py`)."""

from __future__ import annotations

from barnabas.metrics.table.row import GAUGE, TIMER, Metric, row

_LOG = "kafka.log"
_PARTITION_LABELS = ("topic", "partition")


def _partition_gauge(name: str, doc: str) -> Metric:
    return row("kafka.cluster", "Partition", name, GAUGE, doc, labels=_PARTITION_LABELS)


UNDER_REPLICATED = _partition_gauge("UnderReplicated", "1 if this leader's ISR lacks a replica.")
UNDER_MIN_ISR = _partition_gauge("UnderMinIsr", "1 if this leader's ISR is smaller than min.insync.replicas.")
AT_MIN_ISR = _partition_gauge("AtMinIsr", "1 if this leader's ISR has exactly min.insync.replicas members.")
IN_SYNC_REPLICAS_COUNT = _partition_gauge("InSyncReplicasCount", "Size of the ISR; 0 on followers.")
REPLICAS_COUNT = _partition_gauge("ReplicasCount", "Number of replicas; 0 on followers.")
LAST_STABLE_OFFSET_LAG = _partition_gauge(
    "LastStableOffsetLag", "Records between the last stable offset and the high watermark."
)


def _log_gauge(name: str, doc: str, unit: str = "") -> Metric:
    return row(_LOG, "Log", name, GAUGE, doc, labels=_PARTITION_LABELS, unit=unit)


LOG_SIZE = _log_gauge("Size", "Size of a log's segments in bytes.", "bytes")
LOG_START_OFFSET = _log_gauge("LogStartOffset", "First offset of a log.")
LOG_END_OFFSET = _log_gauge("LogEndOffset", "Offset of the next record of a log.")
NUM_LOG_SEGMENTS = _log_gauge("NumLogSegments", "Segments of a log.")
RETENTION_SIZE_IN_PERCENT = _log_gauge(
    "RetentionSizeInPercent", "Size of a log in percent of retention.bytes; 0 without a limit."
)
HIGH_WATERMARK = _log_gauge("HighWatermark", "Offset below which every in-sync replica has all records (not in Kafka).")

LOG_FLUSH_TIME_MS = row(
    _LOG, "LogFlushStats", "LogFlushRateAndTimeMs", TIMER, "Flushes of logs, and their durations.", unit="ms"
)
LOG_DIRECTORY_OFFLINE = row(
    _LOG, "LogManager", "LogDirectoryOffline", GAUGE, "1 if a log directory failed.", labels=("logDirectory",)
)
OFFLINE_LOG_DIRECTORY_COUNT = row(_LOG, "LogManager", "OfflineLogDirectoryCount", GAUGE, "Log directories that failed.")
STRAY_LOG_COUNT = row(
    _LOG,
    "LogManager",
    "StrayLogCount",
    GAUGE,
    "Stray logs: set aside because the metadata does not list them (not in Kafka).",
)
STRAY_LOG_BYTES = row(_LOG, "LogManager", "StrayLogBytes", GAUGE, "Size of the stray logs in bytes (not in Kafka).")
LOG_DIRECTORY_CORDONED = row(
    _LOG,
    "LogManager",
    "LogDirectoryCordoned",
    GAUGE,
    "1 if a log directory accepts no new partitions.",
    labels=("logDirectory",),
)
CORDONED_LOG_DIRECTORY_COUNT = row(
    _LOG, "LogManager", "CordonedLogDirectoryCount", GAUGE, "Log directories that accept no new partitions."
)


def _cleaner(name: str, doc: str) -> Metric:
    return row(_LOG, "LogCleaner", name, GAUGE, doc)


CLEANER_DEAD_THREAD_COUNT = _cleaner("DeadThreadCount", "Cleaner threads that died.")
CLEANER_RECOPY_PERCENT = _cleaner(
    "cleaner-recopy-percent", "Bytes kept by the last cleanings, in percent of the bytes read."
)
CLEANER_MAX_BUFFER_UTILIZATION_PERCENT = _cleaner(
    "max-buffer-utilization-percent", "Use of the fullest offset map of the last cleanings, in percent."
)
CLEANER_MAX_CLEAN_TIME_SECS = _cleaner("max-clean-time-secs", "Duration of the longest of the last cleanings.")
CLEANER_MAX_COMPACTION_DELAY_SECS = _cleaner(
    "max-compaction-delay-secs", "Seconds by which the last cleanings exceeded max.compaction.lag.ms."
)


def _cleaner_manager(name: str, doc: str, labels: tuple[str, ...] = ()) -> Metric:
    return row(_LOG, "LogCleanerManager", name, GAUGE, doc, labels=labels)


CLEANER_MAX_DIRTY_PERCENT = _cleaner_manager(
    "max-dirty-percent", "Largest share of uncleaned bytes of any log, in percent."
)
CLEANER_TIME_SINCE_LAST_RUN_MS = _cleaner_manager("time-since-last-run-ms", "Ms since the last cleaning.")
CLEANER_UNCLEANABLE_BYTES = _cleaner_manager(
    "uncleanable-bytes", "Bytes of logs that cannot be cleaned.", ("logDirectory",)
)
CLEANER_UNCLEANABLE_PARTITIONS_COUNT = _cleaner_manager(
    "uncleanable-partitions-count", "Logs that cannot be cleaned.", ("logDirectory",)
)
