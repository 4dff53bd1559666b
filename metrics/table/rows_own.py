"""THE table of metrics: metrics that Kafka does not have in JMX (see `catalogue.py`).

They are the sizes of batches and records, the use of the broker by each client, the process and its interpreter under
the names of Prometheus' client libraries, and consumer lag under the names of kafka_exporter. `exact` rows have one
name in both dialects.
"""

from __future__ import annotations

from barnabas.metrics.table.row import COUNTER, GAUGE, HISTOGRAM, Kind, Metric, row

_OWN = "barnabas"


def _own(type_: str, name: str, kind: Kind, doc: str, labels: tuple[str, ...] = (), buckets: str = "") -> Metric:
    exact = "" if buckets else f"barnabas_{type_}_{name}"
    return row(_OWN, type_, name, kind, doc, labels=labels, exact=exact, buckets=buckets)


# --- batches that producers send

BATCH_BYTES = _own("produce", "batch", HISTOGRAM, "Size of produced batches.", buckets="barnabas_produce_batch_bytes")
BATCH_RECORDS = _own(
    "produce", "batch_length", HISTOGRAM, "Records in a produced batch.", buckets="barnabas_produce_batch_records"
)
RECORD_BYTES = _own(
    "produce",
    "record",
    HISTOGRAM,
    "Size of produced records. Each record counts with the mean size of its batch.",
    buckets="barnabas_produce_record_bytes",
)

# --- clients

_CLIENT = ("client_id",)
CLIENT_REQUESTS = _own("client", "requests", COUNTER, "Requests of a client, by its client id.", _CLIENT)
CLIENT_REQUEST_BYTES = _own("client", "request_bytes", COUNTER, "Bytes of a client's requests.", _CLIENT)
CLIENT_RESPONSE_BYTES = _own("client", "response_bytes", COUNTER, "Bytes of the responses to a client.", _CLIENT)
CLIENT_REQUEST_SECONDS = _own(
    "client", "request_seconds", COUNTER, "Handler and send time of a client's requests.", _CLIENT
)

# --- threads and logs of this process

LOG_LINES = _own("log", "lines", COUNTER, "Lines logged, by level.", ("level",))
LOG_DIRECTORY_FREE = _own(
    "log_directory", "free_bytes", GAUGE, "Free bytes of a log directory's file system.", ("logDirectory",)
)
LOG_DIRECTORY_SIZE = _own(
    "log_directory", "size_bytes", GAUGE, "Size of a log directory's file system.", ("logDirectory",)
)
SLOW_REQUESTS = _own("request", "slow", COUNTER, "Requests slower than barnabas.slow.request.ms.", ("request",))
SCRAPE_SECONDS = _own("scrape", "seconds", GAUGE, "Duration of the previous scrape in this process.")

# --- the names and texts of Prometheus' client libraries, which are the same in every language


def _process(name: str, kind: Kind, doc: str) -> Metric:
    return row("process", "process", name, kind, doc, exact=f"process_{name}")


PROCESS_VIRTUAL_MEMORY = _process("virtual_memory_bytes", GAUGE, "Virtual memory size in bytes.")
PROCESS_RESIDENT_MEMORY = _process("resident_memory_bytes", GAUGE, "Resident memory size in bytes.")
PROCESS_START_TIME = _process("start_time_seconds", GAUGE, "Start time of the process since unix epoch in seconds.")
PROCESS_CPU = _process("cpu_seconds", COUNTER, "Total user and system CPU time spent in seconds.")
PROCESS_OPEN_FDS = _process("open_fds", GAUGE, "Number of open file descriptors.")
PROCESS_MAX_FDS = _process("max_fds", GAUGE, "Maximum number of open file descriptors.")


def _python(name: str, kind: Kind, doc: str, labels: tuple[str, ...]) -> Metric:
    return row("python", "python", name, kind, doc, labels=labels, exact=f"python_{name}")


PYTHON_INFO = _python(
    "info", GAUGE, "Python platform information.", ("implementation", "major", "minor", "patchlevel", "version")
)
_GENERATION = ("generation",)
GC_COLLECTED = _python("gc_objects_collected", COUNTER, "Objects collected during gc.", _GENERATION)
GC_UNCOLLECTABLE = _python("gc_objects_uncollectable", COUNTER, "Uncollectable objects found during gc.", _GENERATION)
GC_COLLECTIONS = _python("gc_collections", COUNTER, "Number of times this generation was collected.", _GENERATION)

# --- kafka_exporter's names; one node of the cluster reports them all


def _exporter(name: str, doc: str, labels: tuple[str, ...] = ()) -> Metric:
    return row("kafka_exporter", name.partition("_")[0], name, GAUGE, doc, labels=labels, exact=f"kafka_{name}")


_PARTITION = ("topic", "partition")
_POSITION = ("consumergroup", "topic", "partition")
_READ_TOPIC = ("consumergroup", "topic")

BROKERS = _exporter("brokers", "Brokers of the cluster that are alive.")
BROKER_INFO = _exporter("broker_info", "The address of a broker, as a label.", ("id", "address"))
TOPIC_PARTITIONS = _exporter("topic_partitions", "Partitions of a topic.", ("topic",))
PARTITION_CURRENT_OFFSET = _exporter("topic_partition_current_offset", "High watermark of a partition.", _PARTITION)
PARTITION_OLDEST_OFFSET = _exporter("topic_partition_oldest_offset", "Oldest offset of a partition.", _PARTITION)
PARTITION_LEADER = _exporter("topic_partition_leader", "The broker that leads a partition, -1 if none.", _PARTITION)
PARTITION_LEADER_IS_PREFERRED = _exporter(
    "topic_partition_leader_is_preferred", "1 if the preferred replica leads a partition.", _PARTITION
)
PARTITION_REPLICAS = _exporter("topic_partition_replicas", "Replicas of a partition.", _PARTITION)
PARTITION_IN_SYNC_REPLICA = _exporter("topic_partition_in_sync_replica", "In-sync replicas of a partition.", _PARTITION)
PARTITION_UNDER_REPLICATED = _exporter(
    "topic_partition_under_replicated_partition",
    "1 if a partition has fewer in-sync replicas than replicas.",
    _PARTITION,
)
GROUP_CURRENT_OFFSET = _exporter("consumergroup_current_offset", "Offset that a group committed.", _POSITION)
GROUP_CURRENT_OFFSET_SUM = _exporter(
    "consumergroup_current_offset_sum", "Sum of the offsets that a group committed in a topic.", _READ_TOPIC
)
GROUP_LAG = _exporter("consumergroup_lag", "Records of a partition that a group has not committed yet.", _POSITION)
GROUP_LAG_SUM = _exporter(
    "consumergroup_lag_sum", "Records of a topic that a group has not committed yet.", _READ_TOPIC
)
GROUP_UNCOMMITTED_OFFSETS = _exporter(
    "consumergroup_uncommitted_offsets", "The lag, under the name of Grafana's exporter.", _POSITION
)
GROUP_LAG_MILLIS = _exporter(
    "consumer_lag_millis",
    "Milliseconds since the last record that a group committed was the newest of its partition.",
    _POSITION,
)
GROUP_MEMBERS = _exporter("consumergroup_members", "Members of a group.", ("consumergroup",))
LAG_AGE_SECONDS = row(
    _OWN,
    "lag",
    "age_seconds",
    GAUGE,
    "Age of the offsets that the lag was computed from.",
    exact="barnabas_lag_age_seconds",
)

# --- TLS

TLS_CERTIFICATE_SECONDS_LEFT = _own(
    "tls",
    "certificate_seconds_left",
    GAUGE,
    "Seconds until the first certificate of a listener (or of the pages) expires; negative afterwards.",
    labels=("listener",),
)
TLS_HANDSHAKES = _own("tls", "handshakes", GAUGE, "Incomplete TLS handshakes of a listener.", labels=("listener",))

# --- what clients push (KIP-714)

TELEMETRY_SERIES = _own("telemetry", "series", GAUGE, "Series that clients have pushed.")
TELEMETRY_LEFT_OUT = _own(
    "telemetry",
    "left_out",
    COUNTER,
    "Numbers that clients pushed and the page does not show: they were too many, or no gauges and sums.",
)

# --- locks, with barnabas.lock.counts

_LOCK = ("lock",)
LOCK_TAKEN = _own("lock", "taken", COUNTER, "How often the locks of a name were taken.", _LOCK)
LOCK_CONTENDED = _own(
    "lock", "contended", COUNTER, "How often a thread waited for a lock of a name, and got it.", _LOCK
)
LOCK_WAITED_SECONDS = _own("lock", "waited_seconds", COUNTER, "How long threads waited for locks of a name.", _LOCK)
