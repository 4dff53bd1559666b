"""THE table of metrics: the coordinators of groups, share state and transactions (see `catalogue.py`)."""

from __future__ import annotations

from barnabas.metrics.table.row import AVG_MAX, GAUGE, HISTOGRAM, METER, SENSOR, Metric, row

_SERVER = "kafka.server"
_GROUPS = "group-coordinator-metrics"
_SHARE_STATE = "share-coordinator-metrics"
_TRANSACTIONS = "transaction-coordinator-metrics"


def _group_gauge(name: str, doc: str) -> Metric:
    return row("kafka.coordinator.group", "GroupMetadataManager", name, GAUGE, doc)


NUM_OFFSETS = _group_gauge("NumOffsets", "Committed offsets held by this coordinator.")
NUM_GROUPS = _group_gauge("NumGroups", "Groups of this coordinator.")
NUM_GROUPS_EMPTY = _group_gauge("NumGroupsEmpty", "Groups without members.")
NUM_GROUPS_PREPARING_REBALANCE = _group_gauge("NumGroupsPreparingRebalance", "Groups waiting for members to join.")
NUM_GROUPS_COMPLETING_REBALANCE = _group_gauge("NumGroupsCompletingRebalance", "Groups waiting for an assignment.")
NUM_GROUPS_STABLE = _group_gauge("NumGroupsStable", "Groups with an assignment.")
NUM_GROUPS_DEAD = _group_gauge("NumGroupsDead", "Groups that are being removed.")

GROUP_NUM_PARTITIONS = row(
    _SERVER,
    _GROUPS,
    "num-partitions",
    GAUGE,
    "Partitions of __consumer_offsets coordinated here, by state: loading, active, failed.",
    labels=("state",),
)
GROUP_COUNT = row(
    _SERVER, _GROUPS, "group-count", GAUGE, "Groups of this coordinator, by protocol.", labels=("protocol",)
)
CONSUMER_GROUP_COUNT = row(
    _SERVER,
    _GROUPS,
    "consumer-group-count",
    GAUGE,
    "Groups of the consumer protocol (KIP-848), by state.",
    labels=("state",),
)
SHARE_GROUP_COUNT = row(
    _SERVER, _GROUPS, "share-group-count", GAUGE, "Groups of the share protocol (KIP-932), by state.", labels=("state",)
)
STREAMS_GROUP_COUNT = row(
    _SERVER,
    _GROUPS,
    "streams-group-count",
    GAUGE,
    "Groups of the streams protocol (KIP-1071), by state.",
    labels=("state",),
)
GROUP_PARTITION_LOAD_TIME = row(
    _SERVER, _GROUPS, "partition-load-time", AVG_MAX, "Time to load a partition of __consumer_offsets, in ms."
)


def _group_sensor(name: str, doc: str) -> Metric:
    return row(_SERVER, _GROUPS, name, SENSOR, doc, total="count")


OFFSET_COMMIT = _group_sensor("offset-commit", "Offsets committed.")
OFFSET_EXPIRATION = _group_sensor("offset-expiration", "Offsets that expired.")
OFFSET_DELETION = _group_sensor("offset-deletion", "Offsets deleted by administrators.")
GROUP_COMPLETED_REBALANCE = _group_sensor("group-completed-rebalance", "Completed rebalances of classic groups.")
CONSUMER_GROUP_REBALANCE = _group_sensor(
    "consumer-group-rebalance", "New epochs of consumer groups, without those caused by leaving members."
)
SHARE_GROUP_REBALANCE = _group_sensor(
    "share-group-rebalance", "New epochs of share groups, without those caused by leaving members."
)
STREAMS_GROUP_REBALANCE = _group_sensor(
    "streams-group-rebalance", "New epochs of streams groups, without those caused by leaving members."
)

# --- share state

SHARE_STATE_NUM_PARTITIONS = row(
    _SERVER,
    _SHARE_STATE,
    "num-partitions",
    GAUGE,
    "Partitions of __share_group_state coordinated here, by state: loading, active, failed.",
    labels=("state",),
)
SHARE_STATE_LOAD_TIME = row(
    _SERVER, _SHARE_STATE, "partition-load-time", AVG_MAX, "Time to load a partition of __share_group_state, in ms."
)
SHARE_STATE_WRITE = row(
    _SERVER, _SHARE_STATE, "write", SENSOR, "Writes of the state of a share partition.", total="total"
)
SHARE_STATE_WRITE_LATENCY = row(
    _SERVER, _SHARE_STATE, "write-latency", AVG_MAX, "Time until writes of share state are committed, in ms."
)
SHARE_STATE_LAST_PRUNED_OFFSET = row(
    _SERVER,
    _SHARE_STATE,
    "last-pruned-offset",
    GAUGE,
    "Offset up to which a partition of __share_group_state was pruned last.",
    labels=("topic", "partition"),
)

# --- transactions

TXN_PARTITION_LOAD_TIME = row(
    _SERVER,
    _TRANSACTIONS,
    "partition-load-time",
    AVG_MAX,
    "Time to load a partition of __transaction_state, in ms.",
)


def _txn_gauge(name: str, doc: str, labels: tuple[str, ...] = ()) -> Metric:
    return row(_SERVER, _TRANSACTIONS, name, GAUGE, doc, labels=labels)


TXN_PARTITIONS_TOTAL_SIZE = _txn_gauge(
    "partitions-total-size", "Bytes of the partitions of __transaction_state held here (not in Kafka)."
)
TXN_TRANSACTIONAL_ID_COUNT = _txn_gauge(
    "transactional-id-count", "Transactional ids of this coordinator, by state (not in Kafka).", ("state",)
)
TXN_UNKNOWN_DESTINATION_QUEUE_SIZE = row(
    "kafka.coordinator.transaction",
    "TransactionMarkerChannelManager",
    "UnknownDestinationQueueSize",
    GAUGE,
    "Transaction markers for partitions whose leader is unknown.",
)
TXN_LOG_APPEND_RETRY_QUEUE_SIZE = row(
    "kafka.coordinator.transaction",
    "TransactionMarkerChannelManager",
    "LogAppendRetryQueueSize",
    GAUGE,
    "Completed transactions whose final state is not in the log yet.",
)
TXN_VERIFICATION_TIME_MS = row(
    _SERVER,
    "AddPartitionsToTxnManager",
    "VerificationTimeMs",
    HISTOGRAM,
    "Time to verify with the coordinator that a partition belongs to a transaction.",
    unit="ms",
)
TXN_VERIFICATION_FAILURE_RATE = row(
    _SERVER, "AddPartitionsToTxnManager", "VerificationFailureRate", METER, "Partitions whose verification failed."
)
