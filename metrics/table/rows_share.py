"""THE table of metrics: share partitions and sessions, as a leader serves them (see `catalogue.py`)."""

from __future__ import annotations

from barnabas.metrics.table.row import GAUGE, HISTOGRAM, METER, Kind, Metric, row

_SERVER = "kafka.server"
_GROUP = "ShareGroupMetrics"
_SESSIONS = "ShareSessionCache"
_PARTITION = "SharePartitionMetrics"

SHARE_PARTITION_LOAD_TIME_MS = row(
    _SERVER, _GROUP, "PartitionLoadTimeMs", HISTOGRAM, "Time to read the state of a share partition.", unit="ms"
)
SHARE_ACKNOWLEDGEMENTS_PER_SEC = row(
    _SERVER,
    _GROUP,
    "RecordAcknowledgementsPerSec",
    METER,
    "Records acknowledged by members of share groups, by type: Accept, Release, Reject, Renew.",
    labels=("ackType",),
)
SHARE_SESSIONS = row(_SERVER, _SESSIONS, "ShareSessionsCount", GAUGE, "Share sessions of members.")
SHARE_SESSION_PARTITIONS = row(_SERVER, _SESSIONS, "SharePartitionsCount", GAUGE, "Partitions of all share sessions.")
SHARE_SESSION_EVICTIONS_PER_SEC = row(
    _SERVER, _SESSIONS, "ShareSessionEvictionsPerSec", METER, "Share sessions that ended with their connections."
)
DELAYED_SHARE_FETCH_EXPIRES_PER_SEC = row(
    _SERVER, "DelayedShareFetchMetrics", "ExpiresPerSec", METER, "ShareFetch requests whose wait for bytes timed out."
)


def _of_group(type_: str, name: str, doc: str, unit: str = "") -> Metric:
    return row(_SERVER, type_, name, HISTOGRAM, doc, labels=("group",), unit=unit)


SHARE_ACQUIRE_TIME_MS = _of_group(
    _GROUP, "TopicPartitionsAcquireTimeMs", "Time until share fetches of a group could read a share partition.", "ms"
)
SHARE_FETCH_RATIO = _of_group(
    _GROUP, "TopicPartitionsFetchRatio", "Percentage of the share partitions of a share fetch that it could read."
)
# Why by group, and not by partition as in Kafka: three histograms of each share partition are 200 series and 30 KB.
SHARE_BATCH_MESSAGES = _of_group(
    _PARTITION, "InFlightBatchMessageCount", "Offsets of a group's batches, as they come into flight."
)
SHARE_FETCH_LOCK_TIME_MS = _of_group(
    _PARTITION, "FetchLockTimeMs", "Time for which fetches hold the fetch lock of a share partition.", "ms"
)
SHARE_FETCH_LOCK_RATIO = _of_group(
    _PARTITION, "FetchLockRatio", "Percentage of time for which the fetch lock of a share partition is held."
)


def _of_partition(name: str, kind: Kind, doc: str) -> Metric:
    return row(_SERVER, _PARTITION, name, kind, doc, labels=("group", "topic", "partition"))


SHARE_IN_FLIGHT_MESSAGES = _of_partition(
    "InFlightMessageCount", GAUGE, "Offsets of a share partition from its start offset to its end offset."
)
SHARE_IN_FLIGHT_BATCHES = _of_partition("InFlightBatchCount", GAUGE, "Batches in flight of a share partition.")
SHARE_LOCK_TIMEOUTS_PER_SEC = _of_partition(
    "AcquisitionLockTimeoutPerSec", METER, "Records of a share partition whose acquisition locks ran out."
)
