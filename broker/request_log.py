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

from barnabas.common.logs import REQUEST_LOGGER
from barnabas.protocol.errors import ErrorCode
from broker.error_codes import error_codes_of

if TYPE_CHECKING:
    from broker.request_channel import Request
    from metrics.request_metrics import RequestMetrics

log = logging.getLogger(REQUEST_LOGGER)

NONE = 0

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
        if len(codes) == 1 and codes[0] == NONE:
            self._metrics.error(name, "NONE")
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
        self._metrics.record(
            api.name,
            request.header.api_version,
            request_queue_ns=request.dequeued_ns - request.received_ns,
            local_ns=request.api_local_done_ns - request.dequeued_ns,
            remote_ns=request.api_remote_done_ns - request.api_local_done_ns,
            throttle_ns=request.api_throttle_ms * 1_000_000,
            response_queue_ns=request.response_dequeued_ns - request.api_remote_done_ns,
            send_ns=request.sent_ns - request.response_dequeued_ns,
            size_bytes=request.size_bytes,
            is_follower=request.is_follower,
        )
        if log.isEnabledFor(logging.DEBUG):
            log.debug("Completed request: %s", _line(request))

    def dropped(self, request: Request) -> None:
        """A response found its connection closed."""
        log.debug(
            "dropping the response for connection %s, which is closed", request.context.connection_id
        )

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


def _line(request: Request) -> str:
    header = request.header
    times = (
        ("requestQueue", request.dequeued_ns - request.received_ns),
        ("local", request.api_local_done_ns - request.dequeued_ns),
        ("remote", request.api_remote_done_ns - request.api_local_done_ns),
        ("throttle", request.api_throttle_ms * 1_000_000),
        ("responseQueue", request.response_dequeued_ns - request.api_remote_done_ns),
        ("send", request.sent_ns - request.response_dequeued_ns),
        ("total", request.sent_ns - request.received_ns),
    )
    return (
        f"{request.api.name if request.api is not None else header.api_key} v{header.api_version} "
        f"correlationId={header.correlation_id} clientId={header.client_id} "
        f"connection={request.context.connection_id} listener={request.context.listener_name} "
        f"principal={request.context.principal} "
        + " ".join(f"{name}TimeMs={ns / 1e6:.3f}" for name, ns in times)
    )
