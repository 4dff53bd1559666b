"""THE table of metrics: kafka.server, the components of a broker (see `catalogue.py`)."""

from __future__ import annotations

from barnabas.metrics.table.row import AVG_MAX, GAUGE, METER, RATIO, SENSOR, TEXT, Metric, row

_SERVER = "kafka.server"
_POOL = "KafkaRequestHandlerPool"

REQUEST_HANDLER_AVG_IDLE_PERCENT = row(
    _SERVER,
    _POOL,
    "RequestHandlerAvgIdlePercent",
    RATIO,
    "Share of time (0..1) that the request handlers are idle, on average.",
)
BROKER_REQUEST_HANDLER_AVG_IDLE_PERCENT = row(
    _SERVER,
    _POOL,
    "BrokerRequestHandlerAvgIdlePercent",
    RATIO,
    "Share of time (0..1) that the broker's request handlers are idle.",
)
CONTROLLER_REQUEST_HANDLER_AVG_IDLE_PERCENT = row(
    _SERVER,
    _POOL,
    "ControllerRequestHandlerAvgIdlePercent",
    RATIO,
    "Share of time (0..1) that the controller's request handlers are idle.",
)
CONTROL_PLANE_REQUEST_HANDLER_AVG_IDLE_PERCENT = row(
    _SERVER,
    _POOL,
    "ControlPlaneRequestHandlerAvgIdlePercent",
    RATIO,
    "Share of time (0..1) that the handler of the controller's pushes is idle.",
)
REQUEST_HANDLER_COUNT = row(_SERVER, _POOL, "RequestHandlerCount", GAUGE, "Request handlers (not in Kafka).")
SLEEPING_REQUEST_HANDLER_COUNT = row(
    _SERVER, _POOL, "SleepingRequestHandlerCount", GAUGE, "Request handlers without work (not in Kafka)."
)

# --- topics: a series for the whole broker, and one for each topic with traffic


def _topic_meter(name: str, doc: str, unit: str = "") -> Metric:
    return row(_SERVER, "BrokerTopicMetrics", name, METER, doc, labels=("topic",), unit=unit)


BYTES_IN_PER_SEC = _topic_meter("BytesInPerSec", "Bytes of records appended by clients.", "bytes")
BYTES_OUT_PER_SEC = _topic_meter("BytesOutPerSec", "Bytes of records fetched by clients.", "bytes")
BYTES_REJECTED_PER_SEC = _topic_meter(
    "BytesRejectedPerSec", "Bytes of batches rejected because of their size.", "bytes"
)
MESSAGES_IN_PER_SEC = _topic_meter("MessagesInPerSec", "Records appended by clients.")
TOTAL_PRODUCE_REQUESTS_PER_SEC = _topic_meter(
    "TotalProduceRequestsPerSec", "Produce requests, counted for each partition."
)
TOTAL_FETCH_REQUESTS_PER_SEC = _topic_meter(
    "TotalFetchRequestsPerSec", "Fetch requests, counted for each partition read."
)
FAILED_PRODUCE_REQUESTS_PER_SEC = _topic_meter(
    "FailedProduceRequestsPerSec", "Produce requests that failed, counted for each partition."
)
FAILED_FETCH_REQUESTS_PER_SEC = _topic_meter(
    "FailedFetchRequestsPerSec", "Fetch requests that failed, counted for each partition."
)
TOTAL_SHARE_FETCH_REQUESTS_PER_SEC = _topic_meter(
    "TotalShareFetchRequestsPerSec", "Share fetches, counted for each topic of a request."
)
FAILED_SHARE_FETCH_REQUESTS_PER_SEC = _topic_meter(
    "FailedShareFetchRequestsPerSec", "Share fetches that failed, counted for each topic of a request."
)
TOTAL_SHARE_ACKNOWLEDGEMENT_REQUESTS_PER_SEC = _topic_meter(
    "TotalShareAcknowledgementRequestsPerSec", "Acknowledgements of members, counted for each topic of a request."
)
FAILED_SHARE_ACKNOWLEDGEMENT_REQUESTS_PER_SEC = _topic_meter(
    "FailedShareAcknowledgementRequestsPerSec", "Acknowledgements that failed, counted for each topic of a request."
)
FETCH_MESSAGE_CONVERSIONS_PER_SEC = _topic_meter(
    "FetchMessageConversionsPerSec", "Record batches converted for a fetch (always 0: old formats are not served)."
)
PRODUCE_MESSAGE_CONVERSIONS_PER_SEC = _topic_meter(
    "ProduceMessageConversionsPerSec", "Record batches converted on produce (always 0: old formats are rejected)."
)
REPLICATION_BYTES_IN_PER_SEC = _topic_meter("ReplicationBytesInPerSec", "Bytes fetched from leaders.", "bytes")
REPLICATION_BYTES_OUT_PER_SEC = _topic_meter("ReplicationBytesOutPerSec", "Bytes fetched by followers.", "bytes")
REASSIGNMENT_BYTES_IN_PER_SEC = _topic_meter(
    "ReassignmentBytesInPerSec", "Bytes fetched from leaders during a reassignment.", "bytes"
)
REASSIGNMENT_BYTES_OUT_PER_SEC = _topic_meter(
    "ReassignmentBytesOutPerSec", "Bytes fetched by followers during a reassignment.", "bytes"
)
NO_KEY_COMPACTED_TOPIC_RECORDS_PER_SEC = _topic_meter(
    "NoKeyCompactedTopicRecordsPerSec", "Records without a key that compacted topics rejected."
)
INVALID_MAGIC_NUMBER_RECORDS_PER_SEC = _topic_meter(
    "InvalidMagicNumberRecordsPerSec", "Batches rejected because of their magic byte."
)
INVALID_MESSAGE_CRC_RECORDS_PER_SEC = _topic_meter(
    "InvalidMessageCrcRecordsPerSec", "Batches rejected because of a wrong checksum."
)
INVALID_OFFSET_OR_SEQUENCE_RECORDS_PER_SEC = _topic_meter(
    "InvalidOffsetOrSequenceRecordsPerSec",
    "Batches rejected because of invalid offsets, a negative sequence number or control records.",
)

# --- purgatories, fetch sessions

NUM_DELAYED_OPERATIONS = row(
    _SERVER,
    "DelayedOperationPurgatory",
    "NumDelayedOperations",
    GAUGE,
    "Operations waiting in a purgatory.",
    labels=("delayedOperation",),
)
PURGATORY_SIZE = row(
    _SERVER,
    "DelayedOperationPurgatory",
    "PurgatorySize",
    GAUGE,
    "Watchers in a purgatory: one for each key that an operation waits on.",
    labels=("delayedOperation",),
)
DELAYED_PRODUCE_EXPIRES_PER_SEC = row(
    _SERVER,
    "DelayedProduceMetrics",
    "ExpiresPerSec",
    METER,
    "Produce requests whose wait for replicas timed out, counted for each partition.",
    labels=("topic", "partition"),
)
DELAYED_FETCH_EXPIRES_PER_SEC = row(
    _SERVER,
    "DelayedFetchMetrics",
    "ExpiresPerSec",
    METER,
    "Fetch requests whose wait for bytes timed out.",
    labels=("fetcherType",),
)
NUM_INCREMENTAL_FETCH_SESSIONS = row(
    _SERVER, "FetchSessionCache", "NumIncrementalFetchSessions", GAUGE, "Fetch sessions in the cache."
)
MAX_INCREMENTAL_FETCH_SESSIONS = row(
    _SERVER,
    "FetchSessionCache",
    "MaxIncrementalFetchSessions",
    GAUGE,
    "Upper limit of fetch sessions (max.incremental.fetch.session.cache.slots; not in Kafka).",
)
NUM_INCREMENTAL_FETCH_PARTITIONS_CACHED = row(
    _SERVER,
    "FetchSessionCache",
    "NumIncrementalFetchPartitionsCached",
    GAUGE,
    "Partitions in all fetch sessions.",
)
INCREMENTAL_FETCH_SESSION_EVICTIONS_PER_SEC = row(
    _SERVER,
    "FetchSessionCache",
    "IncrementalFetchSessionEvictionsPerSec",
    METER,
    "Fetch sessions evicted in favour of others.",
)

# --- the process

BROKER_STATE = row(
    _SERVER,
    "KafkaServer",
    "BrokerState",
    GAUGE,
    "0 not running, 1 starting, 2 recovery, 3 running, 6 pending controlled shutdown, 7 shutting down.",
)
CLUSTER_ID = row(_SERVER, "KafkaServer", "ClusterId", TEXT, "The id of the cluster, as a label.", labels=("ClusterId",))
LINUX_DISK_READ_BYTES = row(
    _SERVER, "KafkaServer", "linux-disk-read-bytes", GAUGE, "Bytes this process read from disks.", unit="bytes"
)
LINUX_DISK_WRITE_BYTES = row(
    _SERVER, "KafkaServer", "linux-disk-write-bytes", GAUGE, "Bytes this process wrote to disks.", unit="bytes"
)
METRICS_COUNT = row(
    _SERVER, "KafkaServer", "yammer-metrics-count", GAUGE, "Metrics of this process, counted for each set of labels."
)
APP_INFO = row(_SERVER, "app-info", "version", TEXT, "The running version, as a label.", labels=("version", "id"))
START_TIME_MS = row(
    _SERVER, "app-info", "start-time-ms", GAUGE, "When the process started, in ms since the epoch.", labels=("id",)
)

# --- replicas


def _replica_gauge(name: str, doc: str) -> Metric:
    return row(_SERVER, "ReplicaManager", name, GAUGE, doc)


LEADER_COUNT = _replica_gauge("LeaderCount", "Partitions that this broker leads.")
PARTITION_COUNT = _replica_gauge("PartitionCount", "Partitions of which this broker has a replica.")
OFFLINE_REPLICA_COUNT = _replica_gauge("OfflineReplicaCount", "Replicas in failed log directories.")
UNDER_REPLICATED_PARTITIONS = _replica_gauge(
    "UnderReplicatedPartitions", "Partitions led here that have replicas outside the ISR."
)
UNDER_MIN_ISR_PARTITION_COUNT = _replica_gauge(
    "UnderMinIsrPartitionCount", "Partitions led here whose ISR is smaller than min.insync.replicas."
)
AT_MIN_ISR_PARTITION_COUNT = _replica_gauge(
    "AtMinIsrPartitionCount", "Partitions led here whose ISR has exactly min.insync.replicas members."
)
REASSIGNING_PARTITIONS = _replica_gauge("ReassigningPartitions", "Partitions led here that are being reassigned.")
PRODUCER_ID_COUNT = _replica_gauge("ProducerIdCount", "Producer ids known to the logs.")
PARTITIONS_WITH_LATE_TRANSACTIONS_COUNT = _replica_gauge(
    "PartitionsWithLateTransactionsCount", "Partitions with a transaction open for longer than allowed."
)
ISR_SHRINKS_PER_SEC = row(_SERVER, "ReplicaManager", "IsrShrinksPerSec", METER, "Replicas removed from an ISR.")
ISR_EXPANDS_PER_SEC = row(_SERVER, "ReplicaManager", "IsrExpandsPerSec", METER, "Replicas added to an ISR.")
FAILED_ISR_UPDATES_PER_SEC = row(
    _SERVER, "ReplicaManager", "FailedIsrUpdatesPerSec", METER, "ISR changes that the controller rejected."
)


def _fetcher_gauge(name: str, doc: str) -> Metric:
    return row(_SERVER, "ReplicaFetcherManager", name, GAUGE, doc, labels=("clientId",))


FETCHER_MAX_LAG = _fetcher_gauge("MaxLag", "Largest lag, in records, of this broker's followers behind their leaders.")
FETCHER_MIN_FETCH_RATE = _fetcher_gauge("MinFetchRate", "Fetches per second of the slowest fetcher.")
FETCHER_FAILED_PARTITIONS_COUNT = _fetcher_gauge(
    "FailedPartitionsCount", "Partitions that a fetcher no longer fetches because of an error."
)
FETCHER_DEAD_THREAD_COUNT = _fetcher_gauge("DeadThreadCount", "Fetcher threads that died.")
FETCHER_LAG = row(
    _SERVER,
    "FetcherLagMetrics",
    "ConsumerLag",
    GAUGE,
    "Records that a follower of this broker is behind its leader.",
    labels=("clientId", "topic", "partition"),
)
FETCHER_BYTES_PER_SEC = row(
    _SERVER,
    "FetcherStats",
    "BytesPerSec",
    METER,
    "Bytes fetched from a leader broker.",
    labels=("clientId", "brokerHost", "brokerPort"),
    unit="bytes",
)
FETCHER_REQUESTS_PER_SEC = row(
    _SERVER,
    "FetcherStats",
    "RequestsPerSec",
    METER,
    "Fetches sent to a leader broker.",
    labels=("clientId", "brokerHost", "brokerPort"),
)

# --- metadata, as pushed by the controller


def _metadata_gauge(name: str, doc: str) -> Metric:
    return row(_SERVER, "broker-metadata-metrics", name, GAUGE, doc)


METADATA_LAST_APPLIED_RECORD_OFFSET = _metadata_gauge(
    "last-applied-record-offset", "Metadata offset that this broker has applied completely."
)
METADATA_LAST_APPLIED_RECORD_TIMESTAMP = _metadata_gauge(
    "last-applied-record-timestamp", "When this broker applied the last metadata, in ms since the epoch."
)
METADATA_LAST_APPLIED_RECORD_LAG_MS = _metadata_gauge(
    "last-applied-record-lag-ms", "Ms since this broker applied the last metadata."
)
METADATA_APPLY_ERROR_COUNT = _metadata_gauge("metadata-apply-error-count", "Pushes that could not be applied.")
CURRENT_CONTROLLER_ID = row(
    _SERVER, "MetadataLoader", "CurrentControllerId", GAUGE, "Id of the active controller, -1 if unknown."
)
CURRENT_METADATA_VERSION = row(
    _SERVER, "MetadataLoader", "CurrentMetadataVersion", GAUGE, "Feature level of metadata.version."
)
FINALIZED_LEVEL = row(
    _SERVER, "MetadataLoader", "FinalizedLevel", GAUGE, "Finalized level of a feature.", labels=("featureName",)
)
SUPPORTED_LEVEL_MAX = row(
    _SERVER,
    "node-metrics",
    "maximum-supported-level",
    GAUGE,
    "Highest supported level of a feature.",
    labels=("feature-name",),
)
SUPPORTED_LEVEL_MIN = row(
    _SERVER,
    "node-metrics",
    "minimum-supported-level",
    GAUGE,
    "Lowest supported level of a feature.",
    labels=("feature-name",),
)

# --- forwarding to the controller

FORWARDING_QUEUE_LENGTH = row(
    _SERVER, "ForwardingManager", "QueueLength", GAUGE, "Requests waiting to be forwarded to the controller."
)

# --- the authorizer, of brokers and controllers

_PLUGIN = ("config", "class", "role")
AUTHORIZATIONS_ALLOWED = row(
    _SERVER, "plugins", "authorization-allowed-rate-per-minute", GAUGE, "Rights granted in a minute.", labels=_PLUGIN
)
AUTHORIZATIONS_DENIED = row(
    _SERVER, "plugins", "authorization-denied-rate-per-minute", GAUGE, "Rights refused in a minute.", labels=_PLUGIN
)
AUTHORIZATIONS = row(
    _SERVER, "plugins", "authorization-request-rate-per-minute", GAUGE, "Rights asked for in a minute.", labels=_PLUGIN
)
ACLS = row(_SERVER, "plugins", "acls-total-count", GAUGE, "ACLs that the authorizer has.", labels=_PLUGIN)

# --- replication throttles

LEADER_REPLICATION_BYTE_RATE = row(
    _SERVER,
    "LeaderReplication",
    "byte-rate",
    GAUGE,
    "Bytes per second that followers fetch from throttled leaders here.",
)
FOLLOWER_REPLICATION_BYTE_RATE = row(
    _SERVER, "FollowerReplication", "byte-rate", GAUGE, "Bytes per second that throttled followers here fetch."
)

# --- use of the broker by each client id

_CLIENT = ("user", "client-id")
PRODUCE_BYTE_RATE = row(
    _SERVER, "Produce", "byte-rate", GAUGE, "Bytes per second of a client's Produce requests.", labels=_CLIENT
)
PRODUCE_THROTTLE_TIME = row(
    _SERVER, "Produce", "throttle-time", GAUGE, "Mean ms that a client's Produce requests were throttled.",
    labels=_CLIENT,
)  # fmt: skip
FETCH_BYTE_RATE = row(
    _SERVER, "Fetch", "byte-rate", GAUGE, "Bytes per second of the responses to a client's Fetch requests.",
    labels=_CLIENT,
)  # fmt: skip
FETCH_THROTTLE_TIME = row(
    _SERVER, "Fetch", "throttle-time", GAUGE, "Mean ms that a client's Fetch requests were throttled.", labels=_CLIENT
)
PRODUCE_QUEUE_SIZE = row(_SERVER, "Produce", "queue-size", GAUGE, "Connections that wait for producer_byte_rate.")
FETCH_QUEUE_SIZE = row(_SERVER, "Fetch", "queue-size", GAUGE, "Connections that wait for consumer_byte_rate.")
REQUEST_QUOTA_QUEUE_SIZE = row(_SERVER, "Request", "queue-size", GAUGE, "Connections that wait for request_percentage.")
EXEMPT_REQUEST_TIME = row(
    _SERVER, "Request", "exempt-request-time", GAUGE, "Percent of one thread's time that requests of nodes took."
)
MUTATION_QUEUE_SIZE = row(
    _SERVER, "ControllerMutation", "queue-size", GAUGE, "Connections that wait for controller_mutation_rate."
)
MUTATION_TOKENS = row(
    _SERVER, "ControllerMutation", "tokens", GAUGE, "Partitions that a client may still create or delete.",
    labels=_CLIENT,
)  # fmt: skip
MUTATION_RATE = row(
    _SERVER, "ControllerMutation", "mutation-rate", GAUGE, "Partitions that a client creates and deletes a second.",
    labels=_CLIENT,
)  # fmt: skip
MUTATION_THROTTLE_TIME = row(
    _SERVER, "ControllerMutation", "throttle-time", GAUGE, "Mean ms that a client's changes of topics were throttled.",
    labels=_CLIENT,
)  # fmt: skip
REQUEST_TIME = row(
    _SERVER, "Request", "request-time", GAUGE, "Percent of one thread's time that a client's requests took.",
    labels=_CLIENT,
)  # fmt: skip
REQUEST_THROTTLE_TIME = row(
    _SERVER, "Request", "throttle-time", GAUGE, "Mean ms that a client's requests were throttled.", labels=_CLIENT
)

# --- client telemetry (KIP-714)

_CLIENT_METRICS = "client-metrics"
_INSTANCE = ("client_instance_id",)
CLIENT_METRICS_INSTANCES = row(
    _SERVER, _CLIENT_METRICS, "instance-count", GAUGE, "Client instances that get subscriptions from this broker."
)
CLIENT_METRICS_UNKNOWN_SUBSCRIPTION = row(
    _SERVER, _CLIENT_METRICS, "unknown-subscription-request", SENSOR,
    "Pushes for a subscription that was not the client's current one.", total="count",
)  # fmt: skip
CLIENT_METRICS_THROTTLE = row(
    _SERVER, _CLIENT_METRICS, "throttle", SENSOR, "Requests of a client instance that came too early.",
    labels=_INSTANCE, total="count",
)  # fmt: skip
CLIENT_METRICS_EXPORT = row(
    _SERVER, _CLIENT_METRICS, "plugin-export", SENSOR, "Pushes of a client instance that the broker took.",
    labels=_INSTANCE, total="count",
)  # fmt: skip
CLIENT_METRICS_EXPORT_TIME = row(
    _SERVER, _CLIENT_METRICS, "plugin-export-time", AVG_MAX, "Milliseconds to read a push of a client instance.",
    labels=_INSTANCE, unit="ms",
)  # fmt: skip
CLIENT_METRICS_ERROR = row(
    _SERVER, _CLIENT_METRICS, "plugin-error", SENSOR, "Pushes of a client instance that could not be read.",
    labels=_INSTANCE, total="count",
)  # fmt: skip
