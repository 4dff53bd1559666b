"""What is recorded of each request, in one call.

Rules
1. `record` is called once a request, by the thread that saw its response leave (a processor).
2. Fetch is counted twice, as Kafka does: under `Fetch` and under `FetchConsumer` or `FetchFollower`.

Threads: any; each records into its own cells.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from threading import get_ident

from metrics import catalogue as c
from metrics.meters import BOUNDS, SUM, Histogram, Meter
from metrics.registry import Registry

_NS_PER_MS = 1e6

_STAGES = (
    c.REQUEST_QUEUE_TIME_MS,
    c.LOCAL_TIME_MS,
    c.REMOTE_TIME_MS,
    c.THROTTLE_TIME_MS,
    c.RESPONSE_QUEUE_TIME_MS,
    c.RESPONSE_SEND_TIME_MS,
    c.TOTAL_TIME_MS,
    c.REQUEST_BYTES,
)


class _OfRequest:
    """The instruments of one request name, and each thread's own cells of its histograms."""

    __slots__ = ("by_thread", "counts", "histograms")

    def __init__(self, registry: Registry, request: str) -> None:
        self.histograms: list[Histogram] = [registry.histogram(row, request=request) for row in _STAGES]
        self.by_thread: dict[int, list[list[float]]] = {}  # owner of each value: the thread of that identity
        self.counts: dict[int, Meter] = {}  # by version; any thread adds an equivalent value

    def cells(self) -> list[list[float]]:
        """Return the calling thread's cells, made at its first call."""
        cells = self.by_thread[get_ident()] = [histogram.cell() for histogram in self.histograms]
        return cells


class RequestMetrics:
    """Records times, sizes, counts and errors of requests by API name."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # Why plain dicts without a lock: entries are only added, and the registry gives two racing threads the same
        # instruments, so the loser of a race loses nothing.
        self._of_request: dict[str, _OfRequest] = {}
        self._errors: dict[tuple[str, str], Meter] = {}

    def record(
        self,
        request: str,
        version: int,
        *,
        request_queue_ns: int,
        local_ns: int,
        remote_ns: int,
        throttle_ns: int,
        response_queue_ns: int,
        send_ns: int,
        size_bytes: int,
        is_follower: bool | None = None,
    ) -> None:
        """Record one finished request; `request` is the API's name, `is_follower` tells whose a Fetch is."""
        total_ns = request_queue_ns + local_ns + remote_ns + throttle_ns + response_queue_ns + send_ns
        values = (
            request_queue_ns / _NS_PER_MS,
            local_ns / _NS_PER_MS,
            remote_ns / _NS_PER_MS,
            throttle_ns / _NS_PER_MS,
            response_queue_ns / _NS_PER_MS,
            send_ns / _NS_PER_MS,
            total_ns / _NS_PER_MS,
            size_bytes,
        )
        self._record(request, version, values)
        if is_follower is not None and request == "Fetch":
            self._record("FetchFollower" if is_follower else "FetchConsumer", version, values)

    def error(self, request: str, error: str, count: int = 1) -> None:
        """Count `count` items of a response that carry the error of that name (NONE for success)."""
        try:
            meter = self._errors[request, error]
        except KeyError:
            meter = self._registry.meter(c.ERRORS_PER_SEC, request=request, error=error)
            self._errors[request, error] = meter
        meter.mark(count)

    def _record(
        self,
        request: str,
        version: int,
        values: tuple[float, ...],
        _bounds: tuple[float, ...] = BOUNDS,
        _find: Callable[[tuple[float, ...], float], int] = bisect_left,
    ) -> None:
        try:
            of_request = self._of_request[request]
            meter = of_request.counts[version]
            cells = of_request.by_thread[get_ident()]
        except KeyError:
            meter, cells = self._add(request, version)
        meter.mark()
        # Why spelt out: this runs for each request; `Histogram.update` eight times would cost twice as much.
        for cell, value in zip(cells, values):  # noqa: B905 - both are eight long
            if value:
                cell[_find(_bounds, value)] += 1
                cell[SUM] += value
            else:
                cell[0] += 1

    def _add(self, request: str, version: int) -> tuple[Meter, list[list[float]]]:
        of_request = self._of_request.get(request)
        if of_request is None:
            of_request = self._of_request.setdefault(request, _OfRequest(self._registry, request))
        meter = self._registry.meter(c.REQUESTS_PER_SEC, request=request, version=version)
        of_request.counts[version] = meter
        return meter, of_request.cells()
