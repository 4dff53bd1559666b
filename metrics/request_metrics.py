"""What is recorded of each request, in one call.

Rules
1. `record` is called once a request, by the thread that saw its response leave (a processor).
2. Fetch is counted twice, as Kafka does: under `FetchConsumer` or `FetchFollower`, and under `Fetch`, whose histograms
   include those of the two at the scrape, so that it costs nothing here.

Threads: any; each records into its own cells.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from threading import get_ident

from metrics import catalogue as c
from metrics.meters import BOUNDS, BOUNDS_NS, SUM, SUM_NS, Histogram, Meter
from metrics.registry import Registry

_TIMES = (
    c.REQUEST_QUEUE_TIME_MS,
    c.LOCAL_TIME_MS,
    c.REMOTE_TIME_MS,
    c.THROTTLE_TIME_MS,
    c.RESPONSE_QUEUE_TIME_MS,
    c.RESPONSE_SEND_TIME_MS,
    c.TOTAL_TIME_MS,
)
#: Nanoseconds in the request queue, local, remote, throttled, in the response queue, being sent.
Times = tuple[int, int, int, int, int, int]

_FETCH = "Fetch"
_FETCH_OF = {False: "FetchConsumer", True: "FetchFollower"}


class _OfRequest:
    """The instruments of one request name, and each thread's own cells of its histograms."""

    __slots__ = ("by_thread", "counts", "histograms")

    def __init__(self, registry: Registry, request: str) -> None:
        self.histograms: list[Histogram] = [
            registry.histogram(row, request=request) for row in (*_TIMES, c.REQUEST_BYTES)
        ]
        self.by_thread: dict[int, list[list[float]]] = {}  # owner of each value: the thread of that identity
        self.counts: dict[int, Meter] = {}  # by version; any thread adds an equivalent value
        if request in _FETCH_OF.values():
            for row, part in zip((*_TIMES, c.REQUEST_BYTES), self.histograms, strict=True):
                registry.histogram(row, request=_FETCH).include(part)

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
        times_ns: Times,
        size_bytes: int,
        is_follower: bool | None = None,
        _bounds: tuple[int, ...] = BOUNDS_NS,
        _find: Callable[[tuple[float, ...], float], int] = bisect_left,
    ) -> None:
        """Record one finished request.

        `request` is the API's name; `times_ns` are those of `_TIMES` less their sum; `is_follower` tells whose a Fetch
        is.
        """
        if is_follower is not None and request == _FETCH:
            self._count(request, version)
            request = _FETCH_OF[is_follower]
        meter, cells = self._find(request, version)
        meter.mark()
        # Why spelt out: this runs for each request, and `Histogram.update` eight times would cost twice as much.
        for cell, ns in zip(cells, (*times_ns, sum(times_ns)), strict=False):  # the last cell is for the size
            if ns > 0:
                cell[_find(_bounds, ns)] += 1
                cell[SUM_NS] += ns
            else:
                cell[0] += 1
        sizes = cells[-1]
        sizes[_find(BOUNDS, size_bytes)] += 1
        sizes[SUM] += size_bytes

    def error(self, request: str, error: str, count: int = 1) -> None:
        """Count `count` items of a response that carry the error of that name (NONE for success)."""
        try:
            meter = self._errors[request, error]
        except KeyError:
            meter = self._registry.meter(c.ERRORS_PER_SEC, request=request, error=error)
            self._errors[request, error] = meter
        meter.mark(count)

    def _count(self, request: str, version: int) -> None:
        """Count a request whose times are recorded under another name."""
        try:
            meter = self._of_request[request].counts[version]
        except KeyError:
            meter, _ = self._add(request, version)
        meter.mark()

    def _find(self, request: str, version: int) -> tuple[Meter, list[list[float]]]:
        try:
            of_request = self._of_request[request]
            return of_request.counts[version], of_request.by_thread[get_ident()]
        except KeyError:
            return self._add(request, version)

    def _add(self, request: str, version: int) -> tuple[Meter, list[list[float]]]:
        of_request = self._of_request.get(request)
        if of_request is None:
            of_request = self._of_request.setdefault(request, _OfRequest(self._registry, request))
        meter = self._registry.meter(c.REQUESTS_PER_SEC, request=request, version=version)
        of_request.counts[version] = meter
        return meter, of_request.cells()
