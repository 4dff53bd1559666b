"""THE table of metrics: the controller process, kafka.controller and its metadata log (see `catalogue.py`)."""

from __future__ import annotations

from barnabas.metrics.table.row import AVG_MAX, GAUGE, HISTOGRAM, METER, SENSOR, TEXT, Kind, Metric, row

_CONTROLLER = "kafka.controller"
_SERVER = "kafka.server"


def _controller_gauge(name: str, doc: str, labels: tuple[str, ...] = ()) -> Metric:
    return row(_CONTROLLER, "KafkaController", name, GAUGE, doc, labels=labels)


ACTIVE_CONTROLLER_COUNT = _controller_gauge("ActiveControllerCount", "1 on the active controller, else 0.")
ACTIVE_BROKER_COUNT = _controller_gauge("ActiveBrokerCount", "Brokers that are registered and not fenced.")
FENCED_BROKER_COUNT = _controller_gauge("FencedBrokerCount", "Brokers that are registered and fenced.")
CONTROLLED_SHUTDOWN_BROKER_COUNT = _controller_gauge("ControlledShutdownBrokerCount", "Brokers in controlled shutdown.")
GLOBAL_TOPIC_COUNT = _controller_gauge("GlobalTopicCount", "Topics of the cluster.")
GLOBAL_PARTITION_COUNT = _controller_gauge("GlobalPartitionCount", "Partitions of the cluster.")
OFFLINE_PARTITIONS_COUNT = _controller_gauge("OfflinePartitionsCount", "Partitions without a leader.")
PREFERRED_REPLICA_IMBALANCE_COUNT = _controller_gauge(
    "PreferredReplicaImbalanceCount", "Partitions whose leader is not the preferred replica."
)
METADATA_ERROR_COUNT = _controller_gauge(
    "MetadataErrorCount", "Metadata records that could not be applied, and snapshots that could not be written."
)
LAST_APPLIED_RECORD_OFFSET = _controller_gauge("LastAppliedRecordOffset", "Last offset applied to the metadata image.")
LAST_COMMITTED_RECORD_OFFSET = _controller_gauge(
    "LastCommittedRecordOffset", "Last committed offset of the metadata log."
)
LAST_APPLIED_RECORD_TIMESTAMP = _controller_gauge("LastAppliedRecordTimestamp", "Timestamp of the last applied record.")
LAST_APPLIED_RECORD_LAG_MS = _controller_gauge(
    "LastAppliedRecordLagMs", "Ms since a standby controller that is behind applied a record; else 0."
)
TIMED_OUT_BROKER_HEARTBEAT_COUNT = _controller_gauge("TimedOutBrokerHeartbeatCount", "Broker sessions that expired.")
EVENT_QUEUE_OPERATIONS_STARTED_COUNT = _controller_gauge("EventQueueOperationsStartedCount", "Events started.")
EVENT_QUEUE_OPERATIONS_TIMED_OUT_COUNT = _controller_gauge(
    "EventQueueOperationsTimedOutCount", "Events that timed out before they started."
)
NEW_ACTIVE_CONTROLLERS_COUNT = _controller_gauge("NewActiveControllersCount", "Changes of the active controller.")
IGNORED_STATIC_VOTERS = _controller_gauge(
    "IgnoredStaticVoters",
    "1 if controller.quorum.voters has no effect: under kraft.version 1 the log has the voters.",
)
BROKER_REGISTRATION_STATE = _controller_gauge(
    "BrokerRegistrationState", "10 fenced, 20 controlled shutdown, 30 active, -1 not registered.", ("broker",)
)
TIME_SINCE_LAST_HEARTBEAT_RECEIVED_MS = _controller_gauge(
    "TimeSinceLastHeartbeatReceivedMs", "Age of a broker's last heartbeat, in ms.", ("broker",)
)


def _event_manager(name: str, kind: Kind, doc: str, unit: str = "") -> Metric:
    return row(_CONTROLLER, "ControllerEventManager", name, kind, doc, unit=unit)


EVENT_QUEUE_TIME_MS = _event_manager("EventQueueTimeMs", HISTOGRAM, "Time an event waits in the queue.", "ms")
EVENT_QUEUE_PROCESSING_TIME_MS = _event_manager(
    "EventQueueProcessingTimeMs", HISTOGRAM, "Time the event thread takes for an event.", "ms"
)
EVENT_QUEUE_SIZE = _event_manager("EventQueueSize", GAUGE, "Events in the queue (not in Kafka).")
EVENT_QUEUE_AVG_IDLE_RATIO = _event_manager("AvgIdleRatio", GAUGE, "Share of time that the event thread is idle.")

UNCLEAN_LEADER_ELECTIONS_PER_SEC = row(
    _CONTROLLER, "ControllerStats", "UncleanLeaderElectionsPerSec", METER, "Elections of a leader from outside the ISR."
)
ELECTION_FROM_ELIGIBLE_LEADER_REPLICAS_PER_SEC = row(
    _CONTROLLER,
    "ControllerStats",
    "ElectionFromEligibleLeaderReplicasPerSec",
    METER,
    "Elections of a leader from the eligible leader replicas.",
)

# --- the push: Kafka 3.9's ControllerChannelManager


def _push(name: str, kind: Kind, doc: str, unit: str = "", buckets: str = "") -> Metric:
    return row(_CONTROLLER, "ControllerChannelManager", name, kind, doc, labels=("broker",), unit=unit, buckets=buckets)


PUSH_QUEUE_SIZE = _push("QueueSize", GAUGE, "Changes waiting to be pushed to a broker.")
PUSH_TIME_MS = _push(
    "RequestRateAndQueueTimeMs",
    Kind.TIMER,
    "Pushes that a broker acknowledged, and the time from the oldest change in each to the acknowledgement.",
    "ms",
    "kafka_controller_push_time_seconds",
)
PUSH_FAILURES_PER_SEC = _push("PushFailuresPerSec", METER, "Pushes that failed and will be sent again (not in Kafka).")
PUSH_LAG = _push("UnacknowledgedRecords", GAUGE, "Metadata records that a broker has not acknowledged (not in Kafka).")

# --- the metadata log, which controllers replicate; a single one is a quorum of one


def _raft(name: str, kind: Kind, doc: str, labels: tuple[str, ...] = ()) -> Metric:
    return row(_SERVER, "raft-metrics", name, kind, doc, labels=labels)


RAFT_CURRENT_LEADER = _raft("current-leader", GAUGE, "Id of the quorum's leader, the active controller; -1 if unknown.")
RAFT_CURRENT_VOTE = _raft("current-vote", GAUGE, "Id of the controller that this one voted for in this epoch, or -1.")
RAFT_CURRENT_VOTE_DIRECTORY = _raft(
    "current-vote-directory-id", TEXT, "Directory id that this controller voted for, as a label.",
    ("current-vote-directory-id",),
)  # fmt: skip
RAFT_CURRENT_EPOCH = _raft("current-epoch", GAUGE, "Epoch of the quorum; each election raises it.")
RAFT_CURRENT_STATE = _raft("current-state", TEXT, "Role of this node in the quorum, as a label.", ("current-state",))
RAFT_HIGH_WATERMARK = _raft("high-watermark", GAUGE, "Offset below which all metadata records are committed.")
RAFT_LOG_END_OFFSET = _raft("log-end-offset", GAUGE, "Next offset of the metadata log.")
RAFT_LOG_END_EPOCH = _raft("log-end-epoch", GAUGE, "Epoch of the last record of the metadata log.")
RAFT_NUMBER_OF_VOTERS = _raft("number-of-voters", GAUGE, "Controllers in the quorum.")
RAFT_NUMBER_OF_OBSERVERS = _raft(
    "number-of-observers", GAUGE, "Registered brokers, and on the leader controllers that fetch and do not vote."
)
RAFT_UNKNOWN_VOTERS = _raft("number-unknown-voter-connections", GAUGE, "Voters whose address is not known.")
RAFT_UNCOMMITTED_VOTER_CHANGE = _raft("uncommitted-voter-change", GAUGE, "1 while a change of voters is uncommitted.")
RAFT_ELECTION_LATENCY = _raft(
    "election-latency", AVG_MAX, "Time from this controller's candidacy until a leader is known, in ms."
)
RAFT_APPEND_RECORDS = _raft("append-records", SENSOR, "Metadata records appended.")
RAFT_FETCH_RECORDS = _raft("fetch-records", SENSOR, "Metadata records fetched from the leader.")
RAFT_COMMIT_LATENCY = _raft("commit-latency", AVG_MAX, "Time from a group of appends to its commit, in ms.")
RAFT_POLL_IDLE_RATIO = _raft(
    "poll-idle-ratio-avg",
    GAUGE,
    "Idle share of the raft thread; of a single controller: of the event thread.",
)

SNAPSHOT_AGE_MS = row(
    _SERVER,
    "SnapshotEmitter",
    "LatestSnapshotGeneratedAgeMs",
    GAUGE,
    "Age of the newest snapshot in ms; age of the process if there is none.",
)
SNAPSHOT_BYTES = row(
    _SERVER, "SnapshotEmitter", "LatestSnapshotGeneratedBytes", GAUGE, "Size of the newest snapshot.", unit="bytes"
)
CONTROLLER_CLUSTER_ID = row(
    _SERVER, "ControllerServer", "ClusterId", TEXT, "The id of the cluster, as a label.", labels=("ClusterId",)
)
CONTROLLER_DISK_READ_BYTES = row(
    _SERVER, "ControllerServer", "linux-disk-read-bytes", GAUGE, "Bytes this process read from disks.", unit="bytes"
)
CONTROLLER_DISK_WRITE_BYTES = row(
    _SERVER, "ControllerServer", "linux-disk-write-bytes", GAUGE, "Bytes this process wrote to disks.", unit="bytes"
)
CONTROLLER_METRICS_COUNT = row(
    _SERVER,
    "ControllerServer",
    "yammer-metrics-count",
    GAUGE,
    "Metrics of this process, counted for each set of labels.",
)
