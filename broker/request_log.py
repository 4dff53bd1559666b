"""What is kept of a finished request: metrics, and a line in the request log.

Rules
1. A response that carries an error gets a line, `Request 1557 from client=producer_app failed with ...`: at INFO, or at
   DEBUG for the codes by which a client is merely told what to do next (`ROUTINE`).
2. Every completed request gets a line with its six times when `kafka.request.logger` is set to DEBUG.
3. Error codes are looked for in the message's fields named `error_code`, by a function made once for each class.

Threads: `replied` by whoever answers, `completed` by the request's processor; nothing here is locked.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from barnabas.common.clock import NS_PER_MS
from barnabas.common.logs import REQUEST_LOGGER
from barnabas.protocol.errors import ErrorCode
from broker.error_codes import error_codes_of

if TYPE_CHECKING:
    from broker.request_channel import Request
    from metrics.request_metrics import RequestMetrics, Times

log = logging.getLogger(REQUEST_LOGGER)

NONE = 0
_STATIONS = ("requestQueue", "local", "remote", "throttle", "responseQueue", "send")

ROUTINE = frozenset(
    {
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


_NAMES = {int(code): code.name for code in ErrorCode}


def error_name(code: int) -> str:
    """Return the name of an error code, also of one that the table does not know."""
    return _NAMES.get(code) or f"UNKNOWN_CODE_{code}"


class RequestLog:
    """Records finished requests of one process."""

    def __init__(self, metrics: RequestMetrics) -> None:
        self._metrics = metrics  # fixed before start

    def replied(self, request: Request, message: Any) -> None:
        """Count and log the error codes of an answer."""
        assert request.api is not None
        codes = request.error_codes if request.error_codes is not None else error_codes_of(message)
        name = request.api.name
        if not any(codes):
            self._metrics.error(name, "NONE", len(codes))
            return
        counts = Counter(codes)
        for code, count in counts.items():
            self._metrics.error(name, error_name(code), count)
        counts.pop(NONE, None)
        if counts:
            self._log_errors(request, counts)

    def completed(self, request: Request) -> None:
        """Record the times of a request whose response left, or that needed none."""
        api = request.api
        if api is None:  # refused before it was understood
            return
        times = _times(request)
        self._metrics.record(api.name, request.header.api_version, times, request.size_bytes, request.is_follower)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("Completed request: %s", _line(request, times))

    def dropped(self, request: Request) -> None:
        """A response found its connection closed."""
        log.debug("dropping the response for connection %s, which is closed", request.context.connection_id)

    def _log_errors(self, request: Request, codes: Iterable[int]) -> None:
        codes = sorted(codes)
        level = logging.DEBUG if ROUTINE.issuperset(codes) else logging.INFO
        if not log.isEnabledFor(level):
            return
        header = request.header
        log.log(
            level,
            "Request %d from client=%s failed with %s (%s v%d, connection %s)",
            header.correlation_id,
            header.client_id,
            ", ".join(map(error_name, codes)),
            request.api.name if request.api is not None else header.api_key,
            header.api_version,
            request.context.connection_id,
        )


def _times(request: Request) -> Times:
    """Return how long the request was in each of its stations, in nanoseconds."""
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


def _line(request: Request, times: Times) -> str:
    header = request.header
    named = zip((*_STATIONS, "total"), (*times, request.sent_ns - request.received_ns), strict=True)
    return (
        f"{request.api.name if request.api is not None else header.api_key} v{header.api_version} "
        f"correlationId={header.correlation_id} clientId={header.client_id} "
        f"connection={request.context.connection_id} listener={request.context.listener_name} "
        f"principal={request.context.principal} " + " ".join(f"{name}TimeMs={ns / 1e6:.3f}" for name, ns in named)
    )
