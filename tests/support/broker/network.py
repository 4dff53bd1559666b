"""A network layer with a tiny API table, on a loopback port: for tests of sockets, queues and handlers alone.

Its APIs are Heartbeat, whose group id selects the behaviour, and Fetch, whose max_bytes is the size of the response.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import types
from typing import Any, NamedTuple

from barnabas.broker.apis import k18_api_versions as api_versions
from barnabas.broker.handlers import CONTROL_PLANE, HandlerPool
from barnabas.broker.metadata.features import FinalizedFeatures
from barnabas.broker.network.connection import Connection
from barnabas.broker.purgatory import Deferred, Purgatory
from barnabas.broker.request_channel import RequestChannel
from barnabas.broker.requests.answers import NO_REPLY, Close, NoReply, Reply
from barnabas.broker.requests.api import Api, make_table, nodes_only
from barnabas.broker.requests.parking import Answer, Park
from barnabas.broker.requests.request import Request
from barnabas.broker.requests.request_log import RequestLog
from barnabas.broker.socket_server import SocketServer
from barnabas.common.clock import Clock, SystemClock
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.protocol import headers
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k01_fetch, k06_update_metadata, k12_heartbeat, k18_api_versions, response_class
from tests.support.waiting import eventually

UNLIMITED = 2**31 - 1
TIMEOUT_S = 60

HEARTBEAT, FETCH, API_VERSIONS = 12, 1, 18
UPDATE_METADATA = 6
HEARTBEAT_VERSION, FETCH_VERSION = 4, 12


class Region:
    """Part of a file, as storage's FileSlice."""

    def __init__(self, fd: int, position: int, size: int) -> None:
        self.fd, self.position, self.size = fd, position, size

    def fileno(self) -> int:
        return self.fd

    def read(self) -> bytes:
        return os.pread(self.fd, self.size, self.position)


class Services:
    """The state of the APIs below."""

    def __init__(self, clock: Clock) -> None:
        self.purgatory = Purgatory("Heartbeat", clock)
        self.deferred: list[Deferred] = []
        self.arrived = threading.Semaphore(0)  # released by each request that waits
        self.gate = threading.Event()  # releases the waiting requests
        self.threads: set[str] = set()
        self.completed: list[Any] = []
        self.fetching: list[Any] = []  # the connection of each fetch
        self.table = make_api_table()

    def complete_all_delayed(self, keys: Any) -> None:
        self.completed += keys
        if "broken" in keys:
            raise RuntimeError("our bug in completing")
        self.purgatory.check_all(keys)


def handle_heartbeat(services: Services, request: Request) -> Answer:
    services.threads.add(threading.current_thread().name)
    kind, _, argument = request.message.group_id.partition(":")
    return _KINDS[kind](services, request, argument)


def _ok(_services: Services, request: Request, _argument: str) -> Answer:
    return Reply(k12_heartbeat.HeartbeatResponse(throttle_time_ms=request.message.generation_id))


def _wait(services: Services, request: Request, argument: str) -> Answer:
    services.arrived.release()
    assert services.gate.wait(TIMEOUT_S)
    return _ok(services, request, argument)


def _throttle(_services: Services, _request: Request, argument: str) -> Answer:
    return Reply(k12_heartbeat.HeartbeatResponse(), throttle_time_ms=int(argument))


def _api_error(_services: Services, _request: Request, _argument: str) -> Answer:
    raise ApiError(ErrorCode.NOT_COORDINATOR)


def _bug(_services: Services, _request: Request, _argument: str) -> Answer:
    raise RuntimeError("our bug")


def _park(services: Services, _request: Request, argument: str) -> Answer:
    deferred = Deferred(
        int(argument or "60000"), lambda: k12_heartbeat.HeartbeatResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
    )
    services.deferred.append(deferred)
    services.arrived.release()
    return Park(deferred, services.purgatory, ["key"])


def _move(services: Services, request: Request, argument: str) -> Answer:
    request.moved.append(argument)
    return _ok(services, request, argument)


def _not_encodable(_services: Services, _request: Request, _argument: str) -> Answer:
    return Reply(k12_heartbeat.HeartbeatResponse(error_code=10**6))


def _last(services: Services, request: Request, argument: str) -> Answer:
    return Reply(k12_heartbeat.HeartbeatResponse(), close_after=True)


def _hook(services: Services, request: Request, argument: str) -> Answer:
    """Have a bug met when the connection is closed."""

    def bug() -> None:
        raise RuntimeError("our bug")

    request.connection.on_closed["test"] = bug
    return _ok(services, request, argument)


_KINDS = {
    "ok": _ok,
    "wait": _wait,
    "throttle": _throttle,
    "error": _api_error,
    "bug": _bug,
    "bug-when-closed": _hook,
    "park": _park,
    "move": _move,
    "not-encodable": _not_encodable,
    "last": _last,
    "none": lambda *_: NO_REPLY,
    "none-throttled": lambda _services, _request, argument: NoReply(int(argument)),
    "close": lambda *_: Close("asked to"),
}


def handle_fetch(services: Services, request: Request) -> Answer:
    """Answer with max_bytes bytes: of the file whose descriptor is in `rack_id`, if any."""
    services.fetching.append(request.connection)
    size = request.message.max_bytes
    records: Any = bytes(size)
    if request.message.rack_id:
        records = Region(int(request.message.rack_id), request.message.min_bytes, size)
    partition = k01_fetch.PartitionData(partition_index=0, records=records)
    topic = k01_fetch.FetchableTopicResponse(topic="t", partitions=[partition])
    return Reply(k01_fetch.FetchResponse(responses=[topic]))


def handle_push(services: Services, _request: Request) -> Answer:
    """Answer, and record the thread's name."""
    services.threads.add(threading.current_thread().name)
    return Reply(k06_update_metadata.UpdateMetadataResponse())


def make_api_table() -> dict[int, Api]:
    return make_table(
        Api(FETCH, "Fetch", (4, FETCH_VERSION), handle_fetch),
        Api(UPDATE_METADATA, "UpdateMetadata", (8, 8), handle_push, nodes_only=nodes_only, advertised=False),
        Api(HEARTBEAT, "Heartbeat", (0, HEARTBEAT_VERSION), handle_heartbeat),
        api_versions.make_api(lambda _services: FinalizedFeatures({"metadata.version": 25}, 7)),
    )


def network_config(**changes: Any) -> Any:
    """Kafka's defaults of the keys that the network layer reads, with these changes."""
    keys: dict[str, Any] = {
        "node_id": 0,
        "max_connections": UNLIMITED,
        "max_connections_per_ip": UNLIMITED,
        "max_connections_per_ip_overrides": "",
        "barnabas_busy_poll_max_us": 200,
        "barnabas_connections_per_processor": 4,
        "barnabas_ssl_handshake_timeout_ms": 10_000,
        "barnabas_ssl_handshakes_max": 256,
        "barnabas_ssl_review_interval_ms": 10_000,
        "max_connection_creation_rate": UNLIMITED,
        "queued_max_request_bytes": -1,
        "socket_listen_backlog_size": 50,
        "socket_receive_buffer_bytes": 102400,
        "socket_send_buffer_bytes": 102400,
        "socket_request_max_bytes": 104857600,
        "connections_max_idle_ms": 600000,
        "num_network_threads": 3,
        "quota_window_num": 11,
        "quota_window_size_seconds": 1,
        "originals": {},
        "current": {},
    }
    assert changes.keys() <= keys.keys(), changes
    return types.SimpleNamespace(**{**keys, **changes})


class ListenerRow(NamedTuple):
    """A listener as the configuration has it."""

    name: str = "PLAINTEXT"
    security_protocol: str = "PLAINTEXT"
    host: str = "127.0.0.1"
    port: int = 0


class Network:
    """All of it together: started on entry, stopped on exit."""

    def __init__(
        self,
        *,
        handlers: int = 8,
        queued_max_requests: int = 500,
        listeners: tuple[ListenerRow, ...] = (ListenerRow(),),
        inter_broker_listener: str | None = None,
        control_max_requests: int = 0,
        client_quotas: Any = None,
        sasl: Any = None,
        clock: Clock | None = None,
        **config: Any,
    ) -> None:
        self.clock: Clock = SystemClock() if clock is None else clock
        self.registry = Registry(self.clock)
        self.services = Services(self.clock)
        self.channel = RequestChannel(queued_max_requests, control_max_requests)
        request_log = self.request_log = RequestLog(RequestMetrics(self.registry))
        self.server = SocketServer(
            listeners,
            network_config(**config),
            self.channel,
            request_log,
            self.registry,
            self.clock,
            sasl=sasl,
            inter_broker_listener=inter_broker_listener,
            client_quotas=client_quotas,
        )
        self.table = self.services.table
        self.pool = HandlerPool(
            handlers, self.channel, self.table, self.services, request_log, self.registry, self.clock
        )
        self.control_pool: HandlerPool | None = None
        if control_max_requests:
            self.control_pool = HandlerPool(
                1, self.channel, self.table, self.services, request_log, self.registry, self.clock,
                thread_prefix=CONTROL_PLANE,
            )  # fmt: skip

    def __enter__(self) -> Network:
        self.services.purgatory.start()
        self.pool.start()
        if self.control_pool is not None:
            self.control_pool.start()
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.server.begin_shutdown()
        self.services.gate.set()
        self.pool.shutdown()
        if self.control_pool is not None:
            self.control_pool.shutdown()
        self.server.shutdown()
        self.services.purgatory.shutdown()

    def connections(self) -> list[Connection]:
        """Return a snapshot of all processors' connections."""
        return [found for processor in self.server.processors() for found in processor.connections()]

    def client(self, listener: str = "PLAINTEXT") -> Client:
        return Client(self.server.port(listener))

    def block_processor(self, first: Client, second: Client, third: Client) -> None:
        """Have the processor wait for space in the request queue until `services.gate` is set.

        Of a network with one handler and queued_max_requests=1; the clients have sent nothing.
        """
        first.send(heartbeat("wait", 1))
        assert self.services.arrived.acquire(timeout=TIMEOUT_S)
        second.send(heartbeat("ok"))
        eventually("the queue is full", self.channel.requests.qsize)
        third.send(heartbeat("ok"))
        eventually("the processor waits for space", self.channel.requests.blocked_putters)


class Client:
    """A bare client of one connection."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def heartbeat(self, kind: str, correlation_id: int = 1) -> int:
        """Send a heartbeat; return the error code of the response after checking its correlation id."""
        self.send(heartbeat(kind, correlation_id))
        response = self.receive(HEARTBEAT, HEARTBEAT_VERSION, correlation_id)
        code: int = response.error_code
        return code

    def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        """Read one response and decode it."""
        frame = self.read_frame()
        received_id, offset = headers.decode_response_header(frame, api_key, version)
        assert received_id == correlation_id
        return response_class(api_key).decode(frame, version, offset)

    def read_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.read(4))
        return self.read(size)

    def read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            chunk = self.sock.recv(min(65536, size - len(received)))
            if not chunk:
                raise EOFError(f"the connection was closed after {len(received)} of {size} bytes")
            received += chunk
        return bytes(received)

    def is_closed_by_server(self) -> bool:
        """Wait for the server to close; false if it sends something instead."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


def heartbeat(kind: str, correlation_id: int = 1, version: int = HEARTBEAT_VERSION, client_id: str = "test") -> bytes:
    """A heartbeat's frame; its generation id is the correlation id."""
    request = k12_heartbeat.HeartbeatRequest(group_id=kind, generation_id=correlation_id)
    return headers.encode_request(headers.RequestHeader(HEARTBEAT, version, correlation_id, client_id), request)


def fetch(
    size: int, correlation_id: int = 1, file: int | None = None, position: int = 0, client_id: str = "test"
) -> bytes:
    """The frame of a fetch of `size` bytes."""
    request = k01_fetch.FetchRequest(max_bytes=size, min_bytes=position, rack_id="" if file is None else str(file))
    return headers.encode_request(headers.RequestHeader(FETCH, FETCH_VERSION, correlation_id, client_id), request)


def api_versions_request(version: int, correlation_id: int = 1, name: str = "tests", software: str = "1.0") -> bytes:
    request = k18_api_versions.ApiVersionsRequest(client_software_name=name, client_software_version=software)
    header = headers.RequestHeader(API_VERSIONS, version, correlation_id, "test")
    return headers.encode_request(header, request)
