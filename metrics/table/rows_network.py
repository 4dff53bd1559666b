"""THE table of metrics: kafka.network and the sockets of kafka.server (see `catalogue.py`)."""

from __future__ import annotations

from barnabas.metrics.table.row import AVG_MAX, COUNTER, GAUGE, HISTOGRAM, METER, RATIO, SENSOR, Kind, Metric, row

_NETWORK = "kafka.network"
_SERVER = "kafka.server"

# --- the six times of a request, and its sizes


def _of_request(name: str, doc: str, unit: str = "ms", buckets: str = "", labels: tuple[str, ...] = ()) -> Metric:
    buckets = buckets and f"kafka_network_requestmetrics_{buckets}"
    labels = ("request", *labels)
    return row(_NETWORK, "RequestMetrics", name, HISTOGRAM, doc, labels=labels, unit=unit, buckets=buckets)


REQUEST_QUEUE_TIME_MS = _of_request(
    "RequestQueueTimeMs", "Time a request waits in the request queue.", buckets="request_queue_time_seconds"
)
LOCAL_TIME_MS = _of_request("LocalTimeMs", "Time a handler works on a request.", buckets="request_local_time_seconds")
REMOTE_TIME_MS = _of_request(
    "RemoteTimeMs",
    "Time a request waits for others, such as followers, producers or the controller.",
    buckets="request_remote_time_seconds",
)
THROTTLE_TIME_MS = _of_request(
    "ThrottleTimeMs",
    "Time a quota throttles a client after a request.",
    buckets="request_throttle_time_seconds",
)
RESPONSE_QUEUE_TIME_MS = _of_request(
    "ResponseQueueTimeMs",
    "Time a response waits in a processor's response queue.",
    buckets="request_response_queue_time_seconds",
)
RESPONSE_SEND_TIME_MS = _of_request(
    "ResponseSendTimeMs",
    "Time a processor takes to send a response.",
    buckets="request_response_send_time_seconds",
)
TOTAL_TIME_MS = _of_request(
    "TotalTimeMs",
    "Time from the last byte of a request to the last byte of its response.",
    buckets="request_total_time_seconds",
)
REQUEST_BYTES = _of_request("RequestBytes", "Size of requests.", "bytes", buckets="request_size_bytes")
RESPONSE_BYTES = _of_request("ResponseBytes", "Size of responses (not in Kafka).", "bytes", "response_size_bytes")
REQUESTS_PER_SEC = row(
    _NETWORK, "RequestMetrics", "RequestsPerSec", METER, "Requests answered.", labels=("request", "version")
)
ERRORS_PER_SEC = row(
    _NETWORK,
    "RequestMetrics",
    "ErrorsPerSec",
    METER,
    "Errors in responses, by code (NONE counts successes).",
    labels=("request", "error"),
)

# --- queues and threads

REQUEST_QUEUE_SIZE = row(_NETWORK, "RequestChannel", "RequestQueueSize", GAUGE, "Requests in the request queue.")
CONTROL_PLANE_REQUEST_QUEUE_SIZE = row(
    _NETWORK,
    "RequestChannel",
    "ControlPlaneRequestQueueSize",
    GAUGE,
    "Pushes of the controller waiting in their queue.",
)
REQUEST_QUEUE_CAPACITY = row(
    _NETWORK,
    "RequestChannel",
    "RequestQueueCapacity",
    GAUGE,
    "Capacity of the request queue (queued.max.requests; not in Kafka).",
)
RESPONSE_QUEUE_SIZE = row(
    _NETWORK,
    "RequestChannel",
    "ResponseQueueSize",
    GAUGE,
    "Responses in the response queues: in all of them, and in each processor's.",
    labels=("processor",),
)
NETWORK_PROCESSOR_AVG_IDLE_PERCENT = row(
    _NETWORK,
    "SocketServer",
    "NetworkProcessorAvgIdlePercent",
    GAUGE,
    "Share of time (0..1) that the network processors are idle, on average.",
)
EXPIRED_CONNECTIONS_KILLED_COUNT = row(
    _NETWORK,
    "SocketServer",
    "ExpiredConnectionsKilledCount",
    GAUGE,
    "Connections closed because their authentication expired.",
)
MEMORY_POOL_AVAILABLE = row(
    _NETWORK,
    "SocketServer",
    "MemoryPoolAvailable",
    GAUGE,
    "Free bytes of the memory pool for requests (queued.max.request.bytes).",
)
MEMORY_POOL_USED = row(
    _NETWORK, "SocketServer", "MemoryPoolUsed", GAUGE, "Bytes of the memory pool that requests hold."
)
PROCESSOR_IDLE_PERCENT = row(
    _NETWORK,
    "Processor",
    "IdlePercent",
    GAUGE,
    "Share of time (0..1) that this network processor is idle.",
    labels=("networkProcessor",),
)
PROCESSOR_INBOX_SIZE = row(
    _NETWORK,
    "Processor",
    "InboxSize",
    GAUGE,
    "Accepted connections waiting for this processor (not in Kafka).",
    labels=("networkProcessor",),
)
PROCESSOR_INBOX_CAPACITY = row(
    _NETWORK,
    "Processor",
    "InboxCapacity",
    GAUGE,
    "Capacity of a processor's inbox (not in Kafka).",
    labels=("networkProcessor",),
)
ACCEPTOR_BLOCKED_PERCENT = row(
    _NETWORK,
    "Acceptor",
    "AcceptorBlockedPercent",
    RATIO,
    "Share of time (0..1) that an acceptor waits for space in its processors' inboxes.",
    labels=("listener",),
)
MAX_CONNECTIONS = row(
    _NETWORK,
    "SocketServer",
    "MaxConnections",
    GAUGE,
    "Upper limit of open connections (max.connections; not in Kafka).",
)

# --- sockets, by listener and processor

_SOCKETS = "socket-server-metrics"
_PROCESSOR_LABELS = ("listener", "networkProcessor")


def _socket(name: str, kind: Kind, doc: str, labels: tuple[str, ...] = _PROCESSOR_LABELS) -> Metric:
    return row(_SERVER, _SOCKETS, name, kind, doc, labels=labels)


CONNECTION_COUNT = _socket("connection-count", GAUGE, "Open connections.")
CONNECTION_CREATION = _socket("connection-creation", SENSOR, "Connections accepted.")
CONNECTION_CLOSE = _socket("connection-close", SENSOR, "Connections closed.")
SUCCESSFUL_AUTHENTICATION = _socket("successful-authentication", SENSOR, "Clients that authenticated, by TLS or SASL.")
SUCCESSFUL_AUTHENTICATION_NO_REAUTH = _socket(
    "successful-authentication-no-reauth-total", COUNTER, "Those that cannot authenticate again on their connection."
)
FAILED_AUTHENTICATION = _socket("failed-authentication", SENSOR, "Clients whose TLS handshake or login failed.")
REQUEST = _socket("request", SENSOR, "Requests read.")
RESPONSE = _socket("response", SENSOR, "Responses sent.")
INCOMING_BYTE = _socket("incoming-byte", SENSOR, "Bytes of requests read.")
OUTGOING_BYTE = _socket("outgoing-byte", SENSOR, "Bytes of responses sent.")
NETWORK_IO = _socket("network-io", SENSOR, "Requests read and responses sent.")
IO_WAIT_RATIO = _socket("io-wait-ratio", GAUGE, "Share of time (0..1) that a processor waits in its selector.")
IO_RATIO = _socket("io-ratio", GAUGE, "Share of time (0..1) that a processor works.")
IO_WAIT_TIME_NS = _socket("io-wait-time-ns", COUNTER, "Nanoseconds that a processor has waited in its selector.")
EXPIRED_CONNECTIONS = _socket(
    "expired-connections-killed-count", GAUGE, "Connections closed because their authentication expired."
)
SUCCESSFUL_REAUTHENTICATION = _socket(
    "successful-reauthentication", SENSOR, "Clients that logged in again on their connection (KIP-368)."
)
FAILED_REAUTHENTICATION = _socket(
    "failed-reauthentication", SENSOR, "Clients that failed to log in again on their connection."
)
REAUTHENTICATION_LATENCY = _socket(
    "reauthentication-latency", AVG_MAX, "Milliseconds in which clients logged in again."
)
CONNECTION_ACCEPT_RATE = _socket(
    "connection-accept-rate", GAUGE, "Connections accepted per second.", labels=("listener",)
)
ACCEPT_THROTTLE_TIME = _socket(
    "connection-accept-throttle-time", GAUGE, "Mean ms that the rate of connections delayed new ones.",
    labels=("listener",),
)  # fmt: skip
ADDRESS_ACCEPT_THROTTLE_TIME = _socket(
    "ip-connection-accept-throttle-time", GAUGE, "Mean ms after which connections of too fast addresses were closed.",
    labels=("listener",),
)  # fmt: skip
BROKER_CONNECTION_ACCEPT_RATE = _socket(
    "broker-connection-accept-rate", GAUGE, "Connections accepted per second by all listeners.", labels=()
)
MEMORY_POOL_DEPLETED_TIME = _socket(
    "MemoryPoolDepletedTimeTotal", COUNTER, "Milliseconds in which the memory pool for requests was empty.", labels=()
)
MEMORY_POOL_DEPLETED_SHARE = _socket(
    "MemoryPoolAvgDepletedPercent",
    GAUGE,
    "Share of time (0..1) in which the memory pool for requests is empty.",
    labels=(),
)
CONNECTIONS = _socket(
    "connections",
    GAUGE,
    "Open connections, by the client software that they announced.",
    labels=("clientSoftwareName", "clientSoftwareVersion", *_PROCESSOR_LABELS),
)

# --- connections to other nodes, by purpose (alter-partition-metrics, BrokerId=1, ...)

CHANNEL_SENSORS = {
    "connection-creation": "Connections made.",
    "connection-close": "Connections closed.",
    "request": "Requests sent.",
    "response": "Responses received.",
    "outgoing-byte": "Bytes of requests sent.",
    "incoming-byte": "Bytes of responses received.",
    "network-io": "Requests sent and responses received.",
}


def _channel(type_: str, labels: tuple[str, ...]) -> dict[str, Metric]:
    """Add the rows of one channel; return them by name."""
    rows = {name: row(_SERVER, type_, name, SENSOR, doc, labels=labels) for name, doc in CHANNEL_SENSORS.items()}
    rows["connection-count"] = row(_SERVER, type_, "connection-count", GAUGE, "Open connections.", labels=labels)
    rows["request-size"] = row(_SERVER, type_, "request-size", AVG_MAX, "Size of requests.", labels=labels)
    return rows


CHANNELS = {
    name: _channel(f"{name}-metrics", ("BrokerId",))
    for name in ("alter-partition", "directory-assignments", "forwarding", "heartbeat")
}
CHANNELS["raft-channel"] = _channel("raft-channel-metrics", ())
CHANNELS["txn-marker-channel"] = _channel("txn-marker-channel-metrics", ())
CHANNELS["Persister-channel"] = _channel("Persister-channel-metrics", ())
CHANNELS["AddPartitionsManager-channel"] = _channel("AddPartitionsManager-channel-metrics", ())
