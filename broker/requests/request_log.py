"""What is recorded of a finished request: metrics, a line in the request log, an entry among the slow requests.

Rules
1. A response that carries an error gets a line, `Request 1557 from client=producer_app failed with ...`. It is at INFO,
   or at DEBUG for codes that only tell a client what to do next (`ROUTINE`; on a controller, `ELECTION_CODES`
   too). Lines of one API with the same codes are limited (`LogLimit`): a client can repeat a request for ever.
2. Every completed request gets a line, `Completed request:{...}` in Kafka's JSON, if `kafka.request.logger` is set to
   DEBUG, or `kafka.request.logger.<API>` for one API. The bodies are converted right after decoding and before sending
   (`wants`), since handlers drop them.
3. A request slower than `barnabas.slow.request.ms` gets a line at WARN from `kafka.request.slow.logger`; those of one
   API are limited, too. The wait of a request that waits on purpose (`WAITING`) does not count.
4. `slow` and `errors` keep the latest requests of either kind for the live page; `slow` keeps the slowest since the
   last `take_slow` too.
5. Error codes are found in the message's fields named `error_code`, by a function created once for each class.

Threads: `received` and `replied` by the thread that handles or answers, `completed` by the request's processor; nothing
here is locked. The rings are lists, not deques. Appending to, cutting and copying a list is atomic on any interpreter.
Without a global lock, copying a deque may fail while others append.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.broker.requests.error_codes import error_codes_of
from barnabas.broker.requests.request_json import completed_json, header_json, message_json
from barnabas.common import logs
from barnabas.common.clock import NS_PER_MS, Clock, SystemClock
from barnabas.common.logs import REQUEST_LOGGER, SLOW_REQUEST_LOGGER, LogLimit
from barnabas.common.threads import SHARED_INT_MAX
from barnabas.metrics.client_ids import bounded
from barnabas.metrics.table import catalogue
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import SIZE_BYTES

if TYPE_CHECKING:
    from barnabas.broker.requests.api import Table
    from barnabas.broker.requests.request import Request
    from barnabas.metrics.registry import Registry
    from barnabas.metrics.request_metrics import RequestMetrics, ThreadRecorder, Times
    from barnabas.protocol.headers import RequestHeader
    from barnabas.protocol.schema import Message

log = logging.getLogger(REQUEST_LOGGER)
slow_log = logging.getLogger(SLOW_REQUEST_LOGGER)

NONE: Final = 0
STATIONS: Final = ("requestQueue", "local", "remote", "throttle", "responseQueue", "send")
REMOTE: Final = 2
KEPT: Final = 64

ROUTINE: Final = frozenset(
    {
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
#: What controllers and brokers answer each other, many times, while a new active controller is found.
ELECTION_CODES: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
    }
)
#: APIs whose requests wait on purpose: for bytes, or for the other members of a group.
WAITING: Final = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.SHARE_FETCH})


_NAMES: Final = {int(code): code.name for code in ErrorCode}


def error_name(code: int) -> str:
    """Return the name of an error code; `UNKNOWN_CODE_<n>` for one that is not in the table."""
    return _NAMES.get(code) or f"UNKNOWN_CODE_{code}"


class SlowRequest(NamedTuple):
    """A request that took long: client, API, when its last byte was sent, and its six times."""

    api: str
    version: int
    correlation_id: int
    client_id: str | None
    connection: str
    size_bytes: int
    received_ns: int
    sent_ns: int
    times_ns: Times

    @property
    def total_ns(self) -> int:
        """From the last byte of the request to the last byte of the response."""
        return self.sent_ns - self.received_ns

    def describe(self) -> dict[str, Any]:
        """Return it as JSON values, times in milliseconds by station."""
        times = {f"{name}TimeMs": ns / NS_PER_MS for name, ns in zip(STATIONS, self.times_ns, strict=True)}
        return {
            "api": self.api,
            "version": self.version,
            "correlationId": self.correlation_id,
            "clientId": self.client_id,
            "connection": self.connection,
            "sizeInBytes": self.size_bytes,
            "totalTimeMs": self.total_ns / NS_PER_MS,
            **times,
        }


class FailedRequest(NamedTuple):
    """A response with errors: client, API, and the names of the codes."""

    api: str
    version: int
    correlation_id: int
    client_id: str | None
    connection: str
    errors: tuple[str, ...]


class RequestLog:
    """Records finished requests of one process."""

    def __init__(
        self,
        metrics: RequestMetrics,
        registry: Registry | None = None,
        slow_ms: int = -1,
        table: Table | None = None,
        routine: frozenset[ErrorCode] = frozenset(),
        clock: Clock | None = None,
    ) -> None:
        """`routine` has codes that are routine in this process, besides `ROUTINE`."""
        self._routine = ROUTINE | routine  # fixed before start
        self.metrics = metrics  # fixed before start
        self._registry = registry  # fixed before start
        now_ns = (clock or SystemClock()).monotonic_ns
        self._error_lines = LogLimit(log, now_ns)  # fixed before start
        self._slow_lines = LogLimit(slow_log, now_ns)  # fixed before start
        self.slow: list[SlowRequest] = []  # `_keep` adds to it, on any processor
        self.errors: list[FailedRequest] = []  # likewise, on any thread that answers
        self._slow_ns = _slow_ns(slow_ms)  # replaced whole by `set_slow_ms`
        self._bar_ns = 0  # slower requests are noted; any processor sets it, and races do not matter
        self._wanted: frozenset[int] = frozenset()  # replaced whole by `refresh`
        # Created here so that their levels can be set before the first request. Fixed before start.
        self._loggers = {key: logging.getLogger(logger_name(api.name)) for key, api in (table or {}).items()}
        logs.on_change(self.refresh)
        self.refresh()

    # Settings, from any thread

    def refresh(self) -> None:
        """Update which APIs are logged; called when the level of a logger has changed."""
        self._wanted = frozenset(key for key, logger in self._loggers.items() if logger.isEnabledFor(logging.DEBUG))

    def set_slow_ms(self, slow_ms: int) -> None:
        """Set from how many milliseconds on a request is logged as slow; -1: never."""
        self._slow_ns = _slow_ns(slow_ms)

    def take_slow(self) -> list[SlowRequest]:
        """Return the slow requests, newest last; the ring then notes the slowest from now on."""
        self._bar_ns = 0
        return list(self.slow)

    # On the way of a request

    def wants(self, api_key: int) -> bool:
        """Return whether requests of this API are logged (rule 2)."""
        return api_key in self._wanted

    def received(self, request: Request) -> None:
        """Convert the body of a request before its API sees it; call it if `wants` is true."""
        if request.message is not None:
            request.bodies = {"request": message_json(request.message, request.header.api_version)}

    def replied(self, request: Request, message: Message) -> None:
        """Count and log the error codes of a response; convert it if its request was."""
        assert request.api is not None
        if request.bodies is not None:
            request.bodies["response"] = message_json(message, min(request.header.api_version, message.MAX_VERSION))
        codes = request.error_codes if request.error_codes is not None else error_codes_of(message)
        request.ok_count = len(codes)  # counted with the rest of the request, when it is sent
        for code in codes:  # Why not any(): compiled, this is faster
            if code != NONE:
                self.count_errors(request, codes)
                return

    def count_errors(self, request: Request, codes: list[int]) -> None:
        """Count and log the error codes of a response, or of one in place of which the connection is closed."""
        assert request.api is not None
        counts = Counter(codes)
        request.ok_count = counts.pop(NONE, 0)
        for code, count in counts.items():
            self.metrics.error(request.api.name, error_name(code), count)
        self._log_errors(request, counts)

    def completed(self, request: Request, recorder: ThreadRecorder) -> None:
        """Record a request whose response was sent, or that needs none; `recorder` is the calling thread's."""
        api = request.api
        if api is None:  # refused before it was decoded
            return
        header = request.header
        times = _times(request)
        recorder.record(
            api.name,
            header.api_version,
            times,
            request.size_bytes - request.header_bytes,  # as Kafka's RequestBytes
            request.is_follower,
            request.response_size_bytes,
            header.client_id,
            request.header_bytes + SIZE_BYTES,
            request.ok_count,
        )
        if request.sent_ns - request.received_ns > self._bar_ns:
            self._note_slow(request, times)
        if request.bodies is not None:
            self._log_completed(request, times)

    def dropped(self, request: Request) -> None:
        """Log that a response is dropped because its connection is closed."""
        log.debug("dropping the response for connection %s, which is closed", request.context.connection_id)

    # Log lines

    def _log_completed(self, request: Request, times: Times) -> None:
        assert request.bodies is not None
        node = completed_json(request, times, request.bodies)
        text = json.dumps(node, separators=(",", ":"), default=str)
        self._loggers[request.header.api_key].debug("Completed request:%s", text, extra={"fields": {"request": node}})

    def _note_slow(self, request: Request, times: Times) -> None:
        header, api = request.header, request.api
        assert api is not None
        total_ns = request.sent_ns - request.received_ns
        if header.api_key in WAITING:
            total_ns -= times[REMOTE]
            if total_ns <= self._bar_ns:
                return
        slow = SlowRequest(
            api.name,
            header.api_version,
            header.correlation_id,
            _client_of(header),
            request.context.connection_id,
            request.size_bytes,
            request.received_ns,
            request.sent_ns,
            times,
        )
        _keep(self.slow, slow)
        is_slow = 0 <= self._slow_ns < total_ns
        # Why not higher: every slow request is logged; of the others only the slowest are kept.
        self._bar_ns = min(total_ns, self._slow_ns) if self._slow_ns >= 0 else total_ns
        if is_slow:
            if self._registry is not None:
                self._registry.counter(catalogue.SLOW_REQUESTS, request=api.name).inc()
            if self._slow_lines.admits(logging.WARNING, f"slow {api.name} requests"):
                _log_slow(slow)

    def _log_errors(self, request: Request, codes: Iterable[int]) -> None:
        codes = sorted(codes)
        header, api = request.header, request.api
        assert api is not None
        names = tuple(map(error_name, codes))
        is_routine = self._routine.issuperset(codes)
        if not is_routine:
            failed = FailedRequest(
                api.name,
                header.api_version,
                header.correlation_id,
                _client_of(header),
                request.context.connection_id,
                names,
            )
            _keep(self.errors, failed)
        level = logging.DEBUG if is_routine else logging.INFO
        failed_with = f"{api.name} requests failed with {', '.join(names)}"
        # Why a wider kind: a client may cause all combinations of errors, and must not hide those of other APIs.
        if not self._error_lines.admits(level, failed_with, f"{api.name} requests failed with other errors"):
            return
        log.log(
            level,
            "Request %d from client=%s failed with %s (%s v%d, connection %s)",
            header.correlation_id,
            header.client_id,
            ", ".join(names),
            api.name,
            header.api_version,
            request.context.connection_id,
            extra={
                "fields": {
                    "requestHeader": header_json(request),
                    "connection": request.context.connection_id,
                    "principal": request.context.principal,
                    "errors": names,
                }
            },
        )


def _client_of(header: RequestHeader) -> str | None:
    """Return a client id as it is kept (rule 4)."""
    return header.client_id if header.client_id is None else bounded(header.client_id)


def _log_slow(slow: SlowRequest) -> None:
    slow_log.warning(
        "Slow request: %s v%d, correlation id %d from client=%s, connection %s: %s",
        *slow[:5],
        ", ".join(f"{name}TimeMs={ms:.3f}" for name, ms in _shown(slow)),
        extra={"fields": slow.describe()},
    )


def _keep(ring: list[Any], item: SlowRequest | FailedRequest) -> None:
    """Append to a ring and cut it; a thread that appends at the same time may cut instead."""
    ring.append(item)
    del ring[:-KEPT]


def _slow_ns(slow_ms: int) -> int:
    """Return the nanoseconds; -1 if no request is slow."""
    return min(slow_ms * NS_PER_MS, SHARED_INT_MAX) if slow_ms >= 0 else -1


def logger_name(api_name: str) -> str:
    """Return the name of the logger of one API's requests."""
    return f"{REQUEST_LOGGER}.{api_name}"


def _shown(slow: SlowRequest) -> list[tuple[str, float]]:
    named = [*zip(STATIONS, slow.times_ns, strict=True), ("total", slow.total_ns)]
    return [(name, ns / NS_PER_MS) for name, ns in named]


def _times(request: Request) -> Times:
    """Return how long the request was at each station (STATIONS), in nanoseconds."""
    dequeued_ns = request.dequeued_ns
    local_done_ns = request.api_local_done_ns
    remote_done_ns = request.api_remote_done_ns
    response_dequeued_ns = request.response_dequeued_ns
    return (
        dequeued_ns - request.received_ns,
        local_done_ns - dequeued_ns,
        remote_done_ns - local_done_ns,
        request.api_throttle_ms * NS_PER_MS,
        response_dequeued_ns - remote_done_ns,
        request.sent_ns - response_dequeued_ns,
    )
