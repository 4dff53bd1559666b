"""THE table of metrics: what this project measures, under Kafka's names.

A row says the MBean (`group`, `type`, `name` as Kafka spells them), what kind of instrument it is, its labels and its
unit; `exposition.py` derives every Prometheus name from it. A component takes its handles from the registry when it is
built: `registry.meter(catalogue.BYTES_IN_PER_SEC)` for the broker-wide line, and once more with `topic=...` for the
topic's. A label that is not given is left out of the series.

Units are those of the values given to `update`, `mark` or returned by a gauge. Kafka rounds times to whole
milliseconds; here they may have fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What an instrument is, and so how it is shown."""

    GAUGE = "gauge"
    COUNTER = "counter"
    METER = "meter"
    #: A meter of nanoseconds (idle or blocked), shown as the share of time: its one-minute rate divided by 10^9.
    RATIO = "ratio"
    HISTOGRAM = "histogram"


GAUGE, COUNTER, METER, RATIO, HISTOGRAM = Kind


@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One row. `buckets`: name of the true Prometheus histogram (base units) that goes with it, "" for none."""

    group: str
    type: str
    name: str
    kind: Kind
    labels: tuple[str, ...] = ()
    unit: str = ""
    doc: str = ""
    buckets: str = ""


METRICS: list[Metric] = []


def _row(
    group: str,
    type_: str,
    name: str,
    kind: Kind,
    doc: str,
    *,
    labels: tuple[str, ...] = (),
    unit: str = "",
    buckets: str = "",
) -> Metric:
    row = Metric(group, type_, name, kind, labels, unit, doc, buckets)
    METRICS.append(row)
    return row


# --- kafka.network: the request pipeline ---------------------------------------------------------------------------

_NETWORK = "kafka.network"


def _request_time(name: str, buckets: str, doc: str) -> Metric:
    return _row(_NETWORK, "RequestMetrics", name, HISTOGRAM, doc, labels=("request",), unit="ms", buckets=buckets)


REQUEST_QUEUE_TIME_MS = _request_time(
    "RequestQueueTimeMs", "request_queue_time", "Time a request waits in the request queue."
)
LOCAL_TIME_MS = _request_time("LocalTimeMs", "request_local_time", "Time a handler works on a request.")
REMOTE_TIME_MS = _request_time(
    "RemoteTimeMs", "request_remote_time", "Time a request waits in a purgatory: for followers, bytes, the controller."
)
THROTTLE_TIME_MS = _request_time(
    "ThrottleTimeMs", "request_throttle_time", "Time a client is held back by a quota after a request."
)
RESPONSE_QUEUE_TIME_MS = _request_time(
    "ResponseQueueTimeMs", "request_response_queue_time", "Time a response waits in a processor's response queue."
)
RESPONSE_SEND_TIME_MS = _request_time(
    "ResponseSendTimeMs", "request_response_send_time", "Time a processor takes to send a response."
)
TOTAL_TIME_MS = _request_time(
    "TotalTimeMs", "request_total_time", "Time from the last byte of a request to the last byte of its response."
)
REQUEST_BYTES = _row(
    _NETWORK, "RequestMetrics", "RequestBytes", HISTOGRAM, "Size of requests.", labels=("request",), unit="bytes"
)
TEMPORARY_MEMORY_BYTES = _row(
    _NETWORK,
    "RequestMetrics",
    "TemporaryMemoryBytes",
    HISTOGRAM,
    "Memory taken to decompress or rebuild record batches of a request.",
    labels=("request",),
    unit="bytes",
)
MESSAGE_CONVERSIONS_TIME_MS = _row(
    _NETWORK,
    "RequestMetrics",
    "MessageConversionsTimeMs",
    HISTOGRAM,
    "Time spent on rebuilding record batches of a request.",
    labels=("request",),
    unit="ms",
)
REQUESTS_PER_SEC = _row(
    _NETWORK, "RequestMetrics", "RequestsPerSec", METER, "Requests answered.", labels=("request", "version")
)
ERRORS_PER_SEC = _row(
    _NETWORK,
    "RequestMetrics",
    "ErrorsPerSec",
    METER,
    "Errors in responses, by code (NONE counts successes).",
    labels=("request", "error"),
)
REQUEST_QUEUE_SIZE = _row(_NETWORK, "RequestChannel", "RequestQueueSize", GAUGE, "Requests in the request queue.")
REQUEST_QUEUE_CAPACITY = _row(
    _NETWORK, "RequestChannel", "RequestQueueCapacity", GAUGE, "Bound of the request queue (queued.max.requests)."
)
RESPONSE_QUEUE_SIZE = _row(
    _NETWORK,
    "RequestChannel",
    "ResponseQueueSize",
    GAUGE,
    "Responses in the response queues: of all processors, and of each.",
    labels=("processor",),
)
NETWORK_PROCESSOR_AVG_IDLE_PERCENT = _row(
    _NETWORK,
    "SocketServer",
    "NetworkProcessorAvgIdlePercent",
    GAUGE,
    "Share of time (0..1) that the network processors are idle, on average.",
)
EXPIRED_CONNECTIONS_KILLED_COUNT = _row(
    _NETWORK, "SocketServer", "ExpiredConnectionsKilledCount", GAUGE, "Connections closed as expired."
)
MEMORY_POOL_AVAILABLE = _row(
    _NETWORK, "SocketServer", "MemoryPoolAvailable", GAUGE, "Bytes left for requests (queued.max.request.bytes)."
)
MEMORY_POOL_USED = _row(_NETWORK, "SocketServer", "MemoryPoolUsed", GAUGE, "Bytes of requests held in memory.")
PROCESSOR_IDLE_PERCENT = _row(
    _NETWORK,
    "Processor",
    "IdlePercent",
    GAUGE,
    "Share of time (0..1) that this network processor is idle.",
    labels=("networkProcessor",),
)
ACCEPTOR_BLOCKED_PERCENT = _row(
    _NETWORK,
    "Acceptor",
    "AcceptorBlockedPercent",
    RATIO,
    "Share of time that an acceptor waits for room in its processors' inboxes.",
    labels=("listener",),
)

_SOCKET_LABELS = ("listener", "networkProcessor")
CONNECTION_COUNT = _row(
    "kafka.server", "socket-server-metrics", "connection-count", GAUGE, "Open connections.", labels=_SOCKET_LABELS
)
CONNECTION_CREATION_TOTAL = _row(
    "kafka.server",
    "socket-server-metrics",
    "connection-creation",
    COUNTER,
    "Connections accepted.",
    labels=_SOCKET_LABELS,
)
CONNECTION_CLOSE_TOTAL = _row(
    "kafka.server",
    "socket-server-metrics",
    "connection-close",
    COUNTER,
    "Connections closed.",
    labels=_SOCKET_LABELS,
)
CONNECTION_CREATION_RATE = _row(
    "kafka.server",
    "socket-server-metrics",
    "connection-creation-rate",
    GAUGE,
    "Connections accepted a second.",
    labels=_SOCKET_LABELS,
)
CONNECTION_CLOSE_RATE = _row(
    "kafka.server",
    "socket-server-metrics",
    "connection-close-rate",
    GAUGE,
    "Connections closed a second.",
    labels=_SOCKET_LABELS,
)
CONNECTIONS = _row(
    "kafka.server",
    "socket-server-metrics",
    "connections",
    GAUGE,
    "Open connections by the client software they announced.",
    labels=("clientSoftwareName", "clientSoftwareVersion", *_SOCKET_LABELS),
)

# --- kafka.server --------------------------------------------------------------------------------------------------

_SERVER = "kafka.server"

REQUEST_HANDLER_AVG_IDLE_PERCENT = _row(
    _SERVER,
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent",
    RATIO,
    "Share of time (0..1) that the request handlers are idle: each marks its idle ns divided by their number.",
)


def _topic_meter(name: str, doc: str, unit: str = "") -> Metric:
    return _row(_SERVER, "BrokerTopicMetrics", name, METER, doc, labels=("topic",), unit=unit)


BYTES_IN_PER_SEC = _topic_meter("BytesInPerSec", "Bytes of records appended by clients.", "bytes")
BYTES_OUT_PER_SEC = _topic_meter("BytesOutPerSec", "Bytes of records fetched by clients.", "bytes")
BYTES_REJECTED_PER_SEC = _topic_meter("BytesRejectedPerSec", "Bytes of batches refused for their size.", "bytes")
MESSAGES_IN_PER_SEC = _topic_meter("MessagesInPerSec", "Records appended by clients.")
TOTAL_PRODUCE_REQUESTS_PER_SEC = _topic_meter("TotalProduceRequestsPerSec", "Produce requests, per partition.")
TOTAL_FETCH_REQUESTS_PER_SEC = _topic_meter("TotalFetchRequestsPerSec", "Fetch requests, per partition read.")
FAILED_PRODUCE_REQUESTS_PER_SEC = _topic_meter("FailedProduceRequestsPerSec", "Produces that failed.")
FAILED_FETCH_REQUESTS_PER_SEC = _topic_meter("FailedFetchRequestsPerSec", "Fetches that failed.")
FETCH_MESSAGE_CONVERSIONS_PER_SEC = _topic_meter(
    "FetchMessageConversionsPerSec", "Record batches converted for a fetch (never: old formats are not served)."
)
PRODUCE_MESSAGE_CONVERSIONS_PER_SEC = _topic_meter(
    "ProduceMessageConversionsPerSec", "Record batches converted on produce."
)
REPLICATION_BYTES_IN_PER_SEC = _topic_meter("ReplicationBytesInPerSec", "Bytes fetched from leaders.", "bytes")
REPLICATION_BYTES_OUT_PER_SEC = _topic_meter("ReplicationBytesOutPerSec", "Bytes fetched by followers.", "bytes")
REASSIGNMENT_BYTES_IN_PER_SEC = _topic_meter(
    "ReassignmentBytesInPerSec", "Bytes fetched from leaders for a reassignment.", "bytes"
)
REASSIGNMENT_BYTES_OUT_PER_SEC = _topic_meter(
    "ReassignmentBytesOutPerSec", "Bytes fetched by followers for a reassignment.", "bytes"
)
NO_KEY_COMPACTED_TOPIC_RECORDS_PER_SEC = _topic_meter(
    "NoKeyCompactedTopicRecordsPerSec", "Records without a key refused by a compacted topic."
)
INVALID_MAGIC_NUMBER_RECORDS_PER_SEC = _topic_meter(
    "InvalidMagicNumberRecordsPerSec", "Batches refused for their magic byte."
)
INVALID_MESSAGE_CRC_RECORDS_PER_SEC = _topic_meter(
    "InvalidMessageCrcRecordsPerSec", "Batches refused for a wrong checksum."
)
INVALID_OFFSET_OR_SEQUENCE_RECORDS_PER_SEC = _topic_meter(
    "InvalidOffsetOrSequenceRecordsPerSec", "Batches refused for offsets or sequence numbers out of order."
)

NUM_DELAYED_OPERATIONS = _row(
    _SERVER,
    "DelayedOperationPurgatory",
    "NumDelayedOperations",
    GAUGE,
    "Operations waiting in a purgatory.",
    labels=("delayedOperation",),
)
PURGATORY_SIZE = _row(
    _SERVER,
    "DelayedOperationPurgatory",
    "PurgatorySize",
    GAUGE,
    "Watchers in a purgatory: one for each key that an operation is watched under.",
    labels=("delayedOperation",),
)
DELAYED_PRODUCE_EXPIRES_PER_SEC = _row(
    _SERVER,
    "DelayedProduceMetrics",
    "ExpiresPerSec",
    METER,
    "Produces whose wait for replicas expired.",
    labels=("topic", "partition"),
)
DELAYED_FETCH_EXPIRES_PER_SEC = _row(
    _SERVER,
    "DelayedFetchMetrics",
    "ExpiresPerSec",
    METER,
    "Fetches whose wait for bytes expired.",
    labels=("fetcherType",),
)
NUM_INCREMENTAL_FETCH_SESSIONS = _row(
    _SERVER, "FetchSessionCache", "NumIncrementalFetchSessions", GAUGE, "Fetch sessions in the cache."
)
NUM_INCREMENTAL_FETCH_PARTITIONS_CACHED = _row(
    _SERVER,
    "FetchSessionCache",
    "NumIncrementalFetchPartitionsCached",
    GAUGE,
    "Partitions in all fetch sessions.",
)
INCREMENTAL_FETCH_SESSION_EVICTIONS_PER_SEC = _row(
    _SERVER,
    "FetchSessionCache",
    "IncrementalFetchSessionEvictionsPerSec",
    METER,
    "Fetch sessions evicted for others.",
)
BROKER_STATE = _row(
    _SERVER,
    "KafkaServer",
    "BrokerState",
    GAUGE,
    "0 not running, 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down.",
)
LINUX_DISK_READ_BYTES = _row(
    _SERVER, "KafkaServer", "linux-disk-read-bytes", GAUGE, "Bytes this process read from disks.", unit="bytes"
)
LINUX_DISK_WRITE_BYTES = _row(
    _SERVER, "KafkaServer", "linux-disk-write-bytes", GAUGE, "Bytes this process wrote to disks.", unit="bytes"
)


def _replica_gauge(name: str, doc: str) -> Metric:
    return _row(_SERVER, "ReplicaManager", name, GAUGE, doc)


LEADER_COUNT = _replica_gauge("LeaderCount", "Partitions that this broker leads.")
PARTITION_COUNT = _replica_gauge("PartitionCount", "Partitions that this broker holds a replica of.")
OFFLINE_REPLICA_COUNT = _replica_gauge("OfflineReplicaCount", "Replicas in failed log directories.")
UNDER_REPLICATED_PARTITIONS = _replica_gauge(
    "UnderReplicatedPartitions", "Led partitions with replicas out of the ISR."
)
UNDER_MIN_ISR_PARTITION_COUNT = _replica_gauge(
    "UnderMinIsrPartitionCount", "Led partitions with a smaller ISR than min.insync.replicas."
)
AT_MIN_ISR_PARTITION_COUNT = _replica_gauge(
    "AtMinIsrPartitionCount", "Led partitions whose ISR is just min.insync.replicas."
)
REASSIGNING_PARTITIONS = _replica_gauge("ReassigningPartitions", "Led partitions being reassigned.")
PRODUCER_ID_COUNT = _replica_gauge("ProducerIdCount", "Producer ids known to the logs.")
PARTITIONS_WITH_LATE_TRANSACTIONS_COUNT = _replica_gauge(
    "PartitionsWithLateTransactionsCount", "Partitions with a transaction open for longer than allowed."
)
ISR_SHRINKS_PER_SEC = _row(_SERVER, "ReplicaManager", "IsrShrinksPerSec", METER, "Replicas leaving an ISR.")
ISR_EXPANDS_PER_SEC = _row(_SERVER, "ReplicaManager", "IsrExpandsPerSec", METER, "Replicas joining an ISR.")
FAILED_ISR_UPDATES_PER_SEC = _row(
    _SERVER, "ReplicaManager", "FailedIsrUpdatesPerSec", METER, "ISR changes that the controller refused."
)

FETCHER_MAX_LAG = _row(
    _SERVER,
    "ReplicaFetcherManager",
    "MaxLag",
    GAUGE,
    "Largest lag, in records, of this broker's followers behind their leaders.",
    labels=("clientId",),
)
FETCHER_MIN_FETCH_RATE = _row(
    _SERVER,
    "ReplicaFetcherManager",
    "MinFetchRate",
    GAUGE,
    "Fetches a second of the slowest fetcher.",
    labels=("clientId",),
)
FETCHER_FAILED_PARTITIONS_COUNT = _row(
    _SERVER,
    "ReplicaFetcherManager",
    "FailedPartitionsCount",
    GAUGE,
    "Partitions that a fetcher has given up.",
    labels=("clientId",),
)
FETCHER_DEAD_THREAD_COUNT = _row(
    _SERVER, "ReplicaFetcherManager", "DeadThreadCount", GAUGE, "Fetcher threads that died.", labels=("clientId",)
)

# --- kafka.cluster, kafka.log: one line for each partition ---------------------------------------------------------

_PARTITION_LABELS = ("topic", "partition")


def _partition_gauge(name: str, doc: str) -> Metric:
    return _row("kafka.cluster", "Partition", name, GAUGE, doc, labels=_PARTITION_LABELS)


PARTITION_UNDER_REPLICATED = _partition_gauge("UnderReplicated", "1 if a replica is out of the ISR (leaders only).")
PARTITION_UNDER_MIN_ISR = _partition_gauge("UnderMinIsr", "1 if the ISR is below min.insync.replicas (leaders only).")
PARTITION_AT_MIN_ISR = _partition_gauge("AtMinIsr", "1 if the ISR is just min.insync.replicas (leaders only).")
PARTITION_REPLICAS_COUNT = _partition_gauge("ReplicasCount", "Replicas of the partition (0 unless leader).")
PARTITION_IN_SYNC_REPLICAS_COUNT = _partition_gauge("InSyncReplicasCount", "Size of the ISR (0 unless leader).")
PARTITION_LAST_STABLE_OFFSET_LAG = _partition_gauge("LastStableOffsetLag", "High watermark minus last stable offset.")


def _log_gauge(name: str, doc: str, unit: str = "") -> Metric:
    return _row("kafka.log", "Log", name, GAUGE, doc, labels=_PARTITION_LABELS, unit=unit)


LOG_SIZE = _log_gauge("Size", "Bytes of a log's segments.", "bytes")
LOG_START_OFFSET = _log_gauge("LogStartOffset", "First offset of a log.")
LOG_END_OFFSET = _log_gauge("LogEndOffset", "Next offset of a log.")
NUM_LOG_SEGMENTS = _log_gauge("NumLogSegments", "Segments of a log.")
LOG_FLUSH_TIME_MS = _row(
    "kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs", HISTOGRAM, "Flushes of logs, and how long.", unit="ms"
)
LOG_DIRECTORY_OFFLINE = _row(
    "kafka.log", "LogManager", "LogDirectoryOffline", GAUGE, "1 if a log directory failed.", labels=("logDirectory",)
)
OFFLINE_LOG_DIRECTORY_COUNT = _row(
    "kafka.log", "LogManager", "OfflineLogDirectoryCount", GAUGE, "Log directories that failed."
)

# --- kafka.coordinator.group ---------------------------------------------------------------------------------------


def _group_gauge(name: str, doc: str) -> Metric:
    return _row("kafka.coordinator.group", "GroupMetadataManager", name, GAUGE, doc)


NUM_OFFSETS = _group_gauge("NumOffsets", "Committed offsets held by this coordinator.")
NUM_GROUPS = _group_gauge("NumGroups", "Groups of this coordinator.")
NUM_GROUPS_EMPTY = _group_gauge("NumGroupsEmpty", "Groups without members.")
NUM_GROUPS_PREPARING_REBALANCE = _group_gauge("NumGroupsPreparingRebalance", "Groups waiting for members to join.")
NUM_GROUPS_COMPLETING_REBALANCE = _group_gauge("NumGroupsCompletingRebalance", "Groups waiting for an assignment.")
NUM_GROUPS_STABLE = _group_gauge("NumGroupsStable", "Groups with an assignment.")
NUM_GROUPS_DEAD = _group_gauge("NumGroupsDead", "Groups that are being removed.")

# --- kafka.controller ----------------------------------------------------------------------------------------------

_CONTROLLER = "kafka.controller"


def _controller_gauge(name: str, doc: str, labels: tuple[str, ...] = ()) -> Metric:
    return _row(_CONTROLLER, "KafkaController", name, GAUGE, doc, labels=labels)


ACTIVE_CONTROLLER_COUNT = _controller_gauge("ActiveControllerCount", "1 on the active controller, else 0.")
ACTIVE_BROKER_COUNT = _controller_gauge("ActiveBrokerCount", "Brokers that are registered and not fenced.")
FENCED_BROKER_COUNT = _controller_gauge("FencedBrokerCount", "Brokers that are registered and fenced.")
CONTROLLED_SHUTDOWN_BROKER_COUNT = _controller_gauge("ControlledShutdownBrokerCount", "Brokers in controlled shutdown.")
GLOBAL_TOPIC_COUNT = _controller_gauge("GlobalTopicCount", "Topics of the cluster.")
GLOBAL_PARTITION_COUNT = _controller_gauge("GlobalPartitionCount", "Partitions of the cluster.")
OFFLINE_PARTITIONS_COUNT = _controller_gauge("OfflinePartitionsCount", "Partitions without a leader.")
PREFERRED_REPLICA_IMBALANCE_COUNT = _controller_gauge(
    "PreferredReplicaImbalanceCount", "Partitions that another replica than the preferred one leads."
)
METADATA_ERROR_COUNT = _controller_gauge("MetadataErrorCount", "Errors when applying metadata records.")
LAST_APPLIED_RECORD_OFFSET = _controller_gauge("LastAppliedRecordOffset", "Offset last applied to the image.")
LAST_COMMITTED_RECORD_OFFSET = _controller_gauge("LastCommittedRecordOffset", "Offset last made durable.")
LAST_APPLIED_RECORD_TIMESTAMP = _controller_gauge("LastAppliedRecordTimestamp", "Its timestamp, ms since the epoch.")
LAST_APPLIED_RECORD_LAG_MS = _controller_gauge("LastAppliedRecordLagMs", "Age of what was last applied; 0 if active.")
TIMED_OUT_BROKER_HEARTBEAT_COUNT = _controller_gauge("TimedOutBrokerHeartbeatCount", "Sessions that timed out.")
EVENT_QUEUE_OPERATIONS_STARTED_COUNT = _controller_gauge("EventQueueOperationsStartedCount", "Events begun.")
EVENT_QUEUE_OPERATIONS_TIMED_OUT_COUNT = _controller_gauge(
    "EventQueueOperationsTimedOutCount", "Events given up before they began."
)
NEW_ACTIVE_CONTROLLERS_COUNT = _controller_gauge("NewActiveControllersCount", "Changes of the active controller.")
BROKER_REGISTRATION_STATE = _controller_gauge(
    "BrokerRegistrationState", "10 fenced, 20 controlled shutdown, 30 active, -1 not registered.", ("broker",)
)
TIME_SINCE_LAST_HEARTBEAT_RECEIVED_MS = _controller_gauge(
    "TimeSinceLastHeartbeatReceivedMs", "Age of a broker's last heartbeat.", ("broker",)
)
EVENT_QUEUE_TIME_MS = _row(
    _CONTROLLER, "ControllerEventManager", "EventQueueTimeMs", HISTOGRAM, "Time events wait in the queue.", unit="ms"
)
EVENT_QUEUE_PROCESSING_TIME_MS = _row(
    _CONTROLLER,
    "ControllerEventManager",
    "EventQueueProcessingTimeMs",
    HISTOGRAM,
    "Time the event thread takes for an event.",
    unit="ms",
)
EVENT_QUEUE_SIZE = _row(_CONTROLLER, "ControllerEventManager", "EventQueueSize", GAUGE, "Events in the queue.")
EVENT_QUEUE_AVG_IDLE_RATIO = _row(
    _CONTROLLER, "ControllerEventManager", "AvgIdleRatio", GAUGE, "Share of time that the event thread is idle."
)
UNCLEAN_LEADER_ELECTIONS_PER_SEC = _row(
    _CONTROLLER, "ControllerStats", "UncleanLeaderElectionsPerSec", METER, "Elections of a leader out of the ISR."
)
PUSH_QUEUE_SIZE = _row(
    _CONTROLLER,
    "ControllerChannelManager",
    "QueueSize",
    GAUGE,
    "Pushes waiting for a broker.",
    labels=("broker",),
)
PUSH_TIME_MS = _row(
    _CONTROLLER,
    "ControllerChannelManager",
    "RequestRateAndQueueTimeMs",
    HISTOGRAM,
    "Time from a change to its push being answered by the broker.",
    labels=("broker",),
    unit="ms",
)


def find(group: str, type_: str, name: str) -> Metric:
    """Return the row of that MBean; KeyError if there is none."""
    for row in METRICS:
        if (row.group, row.type, row.name) == (group, type_, name):
            return row
    raise KeyError(f"{group}:type={type_},name={name}")
