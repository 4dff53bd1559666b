"""The metrics of Apache Kafka that this project does not have, each with its reason; the rest is in THE table.

- `MBEANS`: MBeans by `group:type=...,name=...`. Without a name, all attributes of the type. A key that ends in `*`
  stands for all keys with that beginning.
- `ATTRIBUTES`: single attributes of an MBean of the client library, by type and attribute.
- `DASHBOARD_NAMES`: names that public dashboards query and that are on no page.

A test compares this and the catalogue with Apache Kafka's list: each MBean is in exactly one of them.
"""

from __future__ import annotations

from typing import Final

_NO_TIERED = "Tiered storage is not built."
_NO_QUEUE = "Requests step groups themselves, on handlers: the coordinator has no event queue and no batching runtime."
_COUNTED_BY_THE_OTHER = "The node at the other end counts authentications; here a failure is a failed connection."
_NO_SELECTOR = (
    "A processor's calls of its selector are not counted one by one; io-wait-ratio shows their share of time."
)
_NO_NODE_SELECTOR = "A connection to another node blocks its own thread; it has no selector."

MBEANS: Final[dict[str, str]] = {
    "kafka.network:type=RequestMetrics,name=MessageConversionsTimeMs": "Record batches are never converted.",
    "kafka.network:type=RequestMetrics,name=TemporaryMemoryBytes": "Memory for decompression is not counted.",
    "kafka.server:type=BrokerMetadataListener*": (
        "A push is a request here: LocalTimeMs and RequestBytes of LeaderAndIsr and UpdateMetadata measure it."
    ),
    "kafka.server:type=DelayedOperationPurgatory,name=*,delayedOperation=AlterAcls": (
        "Brokers forward requests for ACLs; the controller answers once the quorum has the change, without a purgatory."
    ),
    "kafka.server:type=DelayedOperationPurgatory,name=*,delayedOperation=RemoteFetch": _NO_TIERED,
    "kafka.server:type=DelayedOperationPurgatory,name=*,delayedOperation=RemoteListOffsets": _NO_TIERED,
    "kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments": (
        "Assignments to directories are sent to the controller at once, on the channel directory-assignments."
    ),
    "kafka.server:type=MetadataLoader,name=AvgIdleRatio": (
        "The handler that takes a push applies it: there is no thread for metadata alone."
    ),
    "kafka.server:type=MetadataLoader,name=HandleLoadSnapshotCount": (
        "Brokers load no snapshots: the controller pushes metadata."
    ),
    "kafka.server:type=ReplicaAlterLogDirsManager*": (
        "Moves between log directories copy files on their own threads, which do not fetch."
    ),
    "kafka.server:type=kafka-metrics-count": "yammer-metrics-count counts the instruments of both families.",
    "kafka.server:type=registration-metrics": (
        "Registrations and heartbeats share a connection: heartbeat-metrics counts both."
    ),
    "kafka.utils:type=Throttler,name=cleaner-io": "The cleaner's throttle does not count bytes.",
    "kafka:type=kafka.Log4jController": "Levels of loggers are changed with IncrementalAlterConfigs (KIP-412).",
}

ATTRIBUTES: Final[dict[tuple[str, str], str]] = {
    ("app-info", "commit-id"): "Packages do not know their commit.",
    (
        "broker-metadata-metrics",
        "ignored-static-voters",
    ): "Controllers show it; brokers do not read voters.",
    ("broker-metadata-metrics", "metadata-load-error-count"): "Metadata is pushed: errors appear when it is applied.",
    ("socket-server-metrics", "request-size-avg"): "RequestBytes has the whole distribution, by request.",
    ("socket-server-metrics", "request-size-max"): "RequestBytes has the whole distribution, by request.",
    **{
        ("group-coordinator-metrics", f"{stage}-{what}"): _NO_QUEUE
        for stage in (
            "event-queue-time-ms",
            "event-processing-time-ms",
            "event-purgatory-time-ms",
            "background-queue-time-ms",
            "background-processing-time-ms",
            "batch-linger-time-ms",
            "batch-flush-time-ms",
        )
        for what in ("p50", "p95", "p99", "p999", "max")
    },
    **{
        ("group-coordinator-metrics", name): _NO_QUEUE
        for name in (
            "event-queue-size",
            "thread-idle-ratio-avg",
            "background-thread-idle-ratio-avg",
            "batch-flush-rate",
            "batch-buffer-cache-size-bytes",
            "batch-buffer-cache-discard-count",
        )
    },
    **{
        ("share-coordinator-metrics", f"{stage}-{what}"): _NO_QUEUE
        for stage in (
            "event-queue-time-ms",
            "event-processing-time-ms",
            "event-purgatory-time-ms",
            "batch-linger-time-ms",
            "batch-flush-time-ms",
        )
        for what in ("p50", "p95", "p99", "p999", "max")
    },
    **{
        ("share-coordinator-metrics", name): _NO_QUEUE
        for name in (
            "event-queue-size",
            "thread-idle-ratio-avg",
            "batch-flush-rate",
            "batch-buffer-cache-size-bytes",
            "batch-buffer-cache-discard-count",
        )
    },
    **{
        ("ForwardingManager", f"{name}.{share}"): "A forwarded request's wait is RemoteTimeMs of its API."
        for name in ("QueueTimeMs", "RemoteTimeMs")
        for share in ("p99", "p999")
    },
}

#: Attributes that every MBean of a socket selector has.
SELECTOR_ATTRIBUTES: Final[dict[str, str]] = {
    "select-rate": _NO_SELECTOR,
    "select-total": _NO_SELECTOR,
    "io-time-ns-avg": _NO_SELECTOR,
    "io-time-ns-total": _NO_SELECTOR,
    "io-wait-time-ns-avg": _NO_SELECTOR,
}
#: Attributes that only a processor's selector has here.
NODE_CHANNEL_ATTRIBUTES: Final[dict[str, str]] = {
    **dict.fromkeys(("io-ratio", "io-wait-ratio", "io-wait-time-ns-total"), _NO_NODE_SELECTOR),
    **{
        f"{name}-{what}": _COUNTED_BY_THE_OTHER
        for name in (
            "successful-authentication",
            "failed-authentication",
            "successful-reauthentication",
            "failed-reauthentication",
        )
        for what in ("rate", "total")
    },
    "reauthentication-latency-avg": _COUNTED_BY_THE_OTHER,
    "reauthentication-latency-max": _COUNTED_BY_THE_OTHER,
    "successful-authentication-no-reauth-total": _COUNTED_BY_THE_OTHER,
}

_ANOTHER_SPELLING = "Grafana's dashboards query several spellings with `or`; another one of them is on the page."

DASHBOARD_NAMES: Final[dict[str, str]] = {
    "kafka_server_transaction_coordinator_metrics_active_transaction_total_time_max": "Of Confluent's server only.",
    "kafka_server_transaction_coordinator_metrics_prepare_commit_to_complete_commit_latency": (
        "Of Confluent's server only."
    ),
    "kafka_server_transaction_coordinator_metrics_transaction_state_error_count": "Of Confluent's server only.",
    "kafka_server_transaction_coordinator_metrics_transaction_timeout_count": "Of Confluent's server only.",
    "kafka_server_transaction_coordinator_metrics_transaction_timeout_rate": "Of Confluent's server only.",
    **{
        f"kafka_server_brokertopicmetrics_{name}persec_count": _ANOTHER_SPELLING
        for name in ("bytesin", "bytesout", "messagesin", "fetchmessageconversions", "producemessageconversions")
    },
    **{
        f"kafka_controller_kafkacontroller_{name}_value": _ANOTHER_SPELLING
        for name in ("activecontrollercount", "offlinepartitionscount", "preferredreplicaimbalancecount")
    },
    "kafka_server_kafkaserver_total_brokerstate_value": _ANOTHER_SPELLING,
    "kafka_server_replicamanager_total_isrexpandspersec_count": _ANOTHER_SPELLING,
    "kafka_server_replicamanager_total_isrshrinkspersec_count": _ANOTHER_SPELLING,
    "kafka_server_replicamanager_total_partitioncount_value": _ANOTHER_SPELLING,
}
#: The prefix of the JVM's metrics.
JVM_PREFIX: Final = "jvm_"


def reason_for(mbean: str) -> str | None:
    """Return why an MBean is not measured; None if it is in THE table."""
    for pattern, reason in MBEANS.items():
        if _matches(pattern, mbean):
            return reason
    return None


def _matches(pattern: str, mbean: str) -> bool:
    """Compare key properties one by one; `*` stands for a whole value, or at the end for all further properties."""
    if pattern.endswith("*") and "=*" not in pattern:
        return mbean.startswith(pattern[:-1])
    wanted, found = _properties(pattern), _properties(mbean)
    return all(found.get(key) == value or value == "*" for key, value in wanted.items()) and (
        "name" in wanted or "name" not in found
    )


def _properties(mbean: str) -> dict[str, str]:
    domain, _, rest = mbean.partition(":")
    pairs = (pair.partition("=") for pair in rest.split(",") if "=" in pair)
    return {"": domain, **{key: value for key, _, value in pairs}}
