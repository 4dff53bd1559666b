"""Requests in progress, and those that are done.

A request belongs to the thread that took it from a queue. This module reads its fields while they change. Each field is
set only once, so a value may be a moment old, but never wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from barnabas.broker.requests.request_log import REMOTE, WAITING
from barnabas.common.clock import NS_PER_MS
from barnabas.common.pages.live_constants import STATIONS
from barnabas.metrics.client_ids import bounded
from barnabas.protocol import headers
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.messages.k01_fetch import FetchRequest

if TYPE_CHECKING:
    from barnabas.broker.live.look import Look
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.request import Request
    from barnabas.broker.requests.request_log import RequestLog, SlowRequest
    from barnabas.common.pages.live_shape import FailedShape, Place, Requests, RequestShape

REMEMBERED: Final = 64
REMEMBERED_NS: Final = 5 * 60 * 1000 * NS_PER_MS
_REPLICA_STATE_FROM: Final = 15  # Fetch version


class RequestViews:
    """Describes requests. `apis` is the whole API table of the process."""

    def __init__(self, apis: Mapping[int, Api], log: RequestLog) -> None:
        self._names = {key: api.name for key, api in apis.items()}  # fixed before start
        self._waiting = {self._names[key] for key in WAITING if key in self._names}  # fixed before start
        self._log = log  # fixed before start
        self._slow: dict[
            tuple[str, int], SlowRequest
        ] = {}  # guarded by: the page's lock; by connection, correlation id

    def in_progress(self, request: Request, look: Look) -> RequestShape:
        """Return a request that is not answered yet, or whose response is being sent."""
        header = getattr(request, "header", None) or _peek(request)
        place, times = _stations(request, look)
        total = look.ms_since(request.received_ns)
        api = request.api.name if request.api is not None else None
        if api is None and header is not None:
            api = self._names.get(header.api_key)
        return {
            "api": api,
            "version": -1 if header is None else header.api_version,
            "correlation_id": -1 if header is None else header.correlation_id,
            "client_id": None if header is None or header.client_id is None else bounded(header.client_id),
            "connection": request.context.connection_id,
            "listener": request.context.listener_name,
            "follower_id": follower_of(request),
            "size_bytes": request.size_bytes,
            "age_ms": total,
            "place": place,
            "times_ms": times,
            "total_ms": total,
            "own_ms": self._own(api, total, times),
        }

    def finished(self) -> dict[tuple[int, str], int]:
        """Return the number of finished requests, by thread identity and API name."""
        return self._log.metrics.finished()

    def done(self, look: Look) -> Requests:
        """Return the finished requests: counts, the slowest, the latest."""
        ring = self._log.take_slow()
        self._remember(ring, look)
        counts: dict[str, int] = {}
        for (_, name), count in self.finished().items():
            counts[name] = counts.get(name, 0) + count
        slow = sorted((self._finished(slow, look) for slow in self._slow.values()), key=lambda r: -r["own_ms"])
        errors: list[FailedShape] = [
            {
                "api": failed.api,
                "version": failed.version,
                "correlation_id": failed.correlation_id,
                "client_id": failed.client_id,
                "connection": failed.connection,
                "errors": list(failed.errors),
            }
            for failed in list(self._log.errors)
        ]
        return {
            "finished": counts,
            "spent_ms": {
                name: {station: round(ms, 3) for station, ms in zip(STATIONS, spent, strict=True)}
                for name, spent in self._log.metrics.spent_ms().items()
            },
            "slow": slow[: look.limit],
            "recent": [self._finished(slow, look) for slow in ring[::-1][: look.limit]],
            "errors": errors[::-1][: look.limit],
        }

    def _remember(self, ring: list[SlowRequest], look: Look) -> None:
        """Keep the slowest of the last minutes. The log's ring starts empty after each look."""
        known = {(slow.connection, slow.correlation_id): slow for slow in [*self._slow.values(), *ring]}
        fresh = [item for item in known.items() if look.now_ns - item[1].sent_ns < REMEMBERED_NS]
        fresh.sort(key=lambda item: -self._own_ns(item[1]))
        self._slow = dict(fresh[:REMEMBERED])

    def _finished(self, slow: SlowRequest, look: Look) -> RequestShape:
        return {
            "api": slow.api,
            "version": slow.version,
            "correlation_id": slow.correlation_id,
            "client_id": slow.client_id,
            "connection": slow.connection,
            "listener": "",
            "follower_id": None,
            "size_bytes": slow.size_bytes,
            "age_ms": look.ms_since(slow.sent_ns),
            "place": "done",
            "times_ms": {name: _ms(ns) for name, ns in zip(STATIONS, slow.times_ns, strict=True)},
            "total_ms": _ms(slow.total_ns),
            "own_ms": _ms(self._own_ns(slow)),
        }

    def _own_ns(self, slow: SlowRequest) -> int:
        return slow.total_ns - (slow.times_ns[REMOTE] if slow.api in self._waiting else 0)

    def _own(self, api: str | None, total_ms: float, times: dict[str, float]) -> float:
        return round(total_ms - (times.get("remote", 0.0) if api in self._waiting else 0.0), 3)


def follower_of(request: Request) -> int | None:
    """Return the replica that fetches; None if it is not a follower's fetch, or its message is gone."""
    message = request.message
    if not request.is_follower or not isinstance(message, FetchRequest):
        return None
    state = message.replica_state
    return int(state.replica_id if request.header.api_version >= _REPLICA_STATE_FROM else message.replica_id)


def subject(request: RequestShape) -> str:
    """Return the subject of a sentence about a request: `produce of client A`."""
    name = words_of(request["api"] or "request")
    if request["follower_id"] is not None:
        return f"{name} of replica {request['follower_id']}"
    if not request["client_id"]:
        return f"{name} of a client without a name"
    return f"{name} of client {request['client_id']}"


def words_of(api: str) -> str:
    """Return an API's name as words: DeleteRecords is delete records."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in api).strip()


def _peek(request: Request) -> headers.RequestHeader | None:
    """Return the header of a request that no handler has taken yet; None if it cannot be read."""
    buffer = request.buffer
    if buffer is None:
        return None
    try:
        # Why a copy: a handler may take the request at this moment and cut up its frame (see connection.py).
        header, _ = headers.decode_request_header(memoryview(bytes(buffer)))
    except (MalformedMessageError, ValueError):
        return None
    return header


def _stations(request: Request, look: Look) -> tuple[Place, dict[str, float]]:
    """Return the place of the request, and its time at each station so far."""
    stamps: tuple[tuple[Place, int], ...] = (
        ("request_queue", request.dequeued_ns),
        ("handler", request.api_local_done_ns),
        ("parked", request.api_remote_done_ns),
        ("response_queue", request.response_dequeued_ns),
        ("sending", request.sent_ns),
    )
    keys = ("request_queue", "local", "remote", "response_queue", "send")
    times: dict[str, float] = {}
    since_ns = request.received_ns
    for (place, until_ns), key in zip(stamps, keys, strict=True):
        if until_ns == 0:
            times[key] = look.ms_since(since_ns)
            return place, times
        times[key] = _ms(until_ns - since_ns)
        since_ns = until_ns
    return "sending", times


def _ms(ns: int) -> float:
    return round(ns / NS_PER_MS, 3)
