"""What is recorded of each request, in one call.

Rules
1. `record` is called once a request, by the thread that saw its response leave (a processor). It only appends a tuple
   to a list of that thread's; each `FULL` tuples the thread digests them: columns are sorted, and each bucket is
   counted at once. That costs half of counting one by one. The scrape digests what is left, without touching it.
2. Fetch is counted twice, as Kafka does: under `FetchConsumer` or `FetchFollower`, and under `Fetch`, whose numbers
   include those of the two at the scrape, so that it costs nothing here.
3. What a thread has digested and what it has not is one value (`_Digest`), replaced whole: a reader that takes it once
   never sees a request twice or not at all, so counts never go back.
4. Clients choose their client ids, so there is a bound (`CLIENTS_MAX`): a thread that has seen that many begins anew,
   which Prometheus takes for the reset of a counter.

Threads: any; each records into its own lists. The scraper reads.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any, Final, NamedTuple

from metrics import catalogue as c
from metrics.histograms import BOUNDS, BOUNDS_NS, CELL_SIZE, SUM, count_sorted
from metrics.meters import Meter
from metrics.registry import Registry

_ROWS: Final = (
    c.REQUEST_QUEUE_TIME_MS,
    c.LOCAL_TIME_MS,
    c.REMOTE_TIME_MS,
    c.THROTTLE_TIME_MS,
    c.RESPONSE_QUEUE_TIME_MS,
    c.RESPONSE_SEND_TIME_MS,
    c.TOTAL_TIME_MS,
    c.REQUEST_BYTES,
    c.RESPONSE_BYTES,
)
_TIMES: Final = 7
STATIONS: Final = 6  # the times but for the total
# Places in a Record.
LOCAL: Final = 1
THROTTLE: Final = 3
SEND: Final = 5
REQUEST_SIZE: Final = 7
RESPONSE_SIZE: Final = 8
CLIENT: Final = 9
HEADER: Final = 10
OK: Final = 11
NS_PER_MS: Final = 1e6

#: Nanoseconds in the request queue, local, remote, throttled, in the response queue, being sent.
Times = tuple[int, int, int, int, int, int]
#: Those, all of them, bytes of the request's body and of the response, client id, bytes of the request's head, items of
#: the response without an error.
Record = tuple[int, int, int, int, int, int, int, int, int, "str | None", int, int]

FULL: Final = 512
CLIENTS_MAX: Final = 1000

_FETCH: Final = "Fetch"
_FETCH_OF: Final = {False: "FetchConsumer", True: "FetchFollower"}


class ClientUse(NamedTuple):
    """What a client has used so far; times in nanoseconds."""

    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    thread_ns: int = 0
    throttle_ns: int = 0


NOTHING: Final = ClientUse()


class ThreadUse(NamedTuple):
    """Requests that left through a processor, with their bytes and those of their responses."""

    requests: int
    request_bytes: int
    response_bytes: int


class _Digest(NamedTuple):
    """A thread's requests of one API and version: those counted already, and those still in a list (rule 3)."""

    requests: int
    cells: list[list[float]]  # one for each row
    clients: dict[str, ClientUse]
    header_bytes: int
    ok_count: int
    pending: list[Record]  # appended to by its owner until replaced

    def whole(self) -> _Digest:
        """Return the same with nothing pending; this one is left as it is."""
        rows = self.pending[:]  # Why a copy: its owner goes on appending.
        if not rows:
            return self
        cells = [cell[:] for cell in self.cells]
        columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True))  # numbers, but for the clients' ids
        for index, cell in enumerate(cells):
            column = sorted(columns[index])
            if index < _TIMES:
                # Why clipped: the times of a request that was refused early may be unknown, and count as none.
                if column[0] < 0:
                    column = [max(0, value) for value in column]
                count_sorted(cell, column, BOUNDS_NS)
                cell[SUM] += sum(column) / NS_PER_MS
            else:
                count_sorted(cell, column, BOUNDS)
                cell[SUM] += sum(column)
        header_bytes = self.header_bytes + sum(columns[HEADER])
        ok_count = self.ok_count + sum(columns[OK])
        clients = _with_clients(self.clients, columns)
        return _Digest(self.requests + len(rows), cells, clients, header_bytes, ok_count, [])


def _with_clients(known: dict[str, ClientUse], columns: list[tuple[Any, ...]]) -> dict[str, ClientUse]:
    clients = {} if len(known) >= CLIENTS_MAX else dict(known)
    wanted = (CLIENT, REQUEST_SIZE, HEADER, RESPONSE_SIZE, LOCAL, SEND, THROTTLE)
    ids = set(columns[CLIENT])
    if len(ids) == 1:  # the usual case: sums of whole columns
        (only,) = ids
        size, header, answer, local, send, throttle = [sum(columns[index]) for index in wanted[1:]]
        used = clients.get(str(only or ""), NOTHING)
        clients[str(only or "")] = ClientUse(
            used.requests + len(columns[CLIENT]),
            used.request_bytes + size + header,
            used.response_bytes + answer,
            used.thread_ns + local + send,
            used.throttle_ns + throttle,
        )
        return clients
    for client, size, header, answer, local, send, throttle in zip(*[columns[index] for index in wanted], strict=True):
        used = clients.get(str(client or ""), NOTHING)
        clients[str(client or "")] = ClientUse(
            used[0] + 1, used[1] + size + header, used[2] + answer, used[3] + local + send, used[4] + throttle
        )
    return clients


def _nothing() -> _Digest:
    return _Digest(0, [[0.0] * CELL_SIZE for _ in _ROWS], {}, 0, 0, [])


class _Recorder:
    """One thread's requests of one API and version."""

    __slots__ = ("digest",)

    def __init__(self) -> None:
        self.digest = _nothing()  # replaced whole by its thread

    def fold(self) -> None:
        self.digest = self.digest.whole()


class RequestMetrics:
    """Records times, sizes, counts and errors of requests by API name."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # Why plain dicts without a lock: entries are only added, each by the thread that it belongs to, or (meters)
        # equivalent ones by several.
        self._recorders: dict[tuple[int, str, int], _Recorder] = {}  # by thread, request, version
        self._known: set[str] = set()  # requests whose histograms are registered
        self._errors: dict[tuple[str, str], Meter] = {}
        self._seen: dict[tuple[int, str, int], _Digest] = {}  # owner: the scraper; with nothing pending
        registry.before_scrape(self._look)

    def record(
        self,
        request: str,
        version: int,
        times_ns: Times,
        size_bytes: int,
        is_follower: bool | None = None,
        response_bytes: int = 0,
        client_id: str | None = None,
        header_bytes: int = 0,
        ok_count: int = 0,
    ) -> None:
        """Record one finished request.

        `request` is the API's name; `times_ns` are those of `_ROWS` less their sum; `size_bytes` is the body's,
        `header_bytes` all that came with it; `is_follower` tells whose a Fetch is; `ok_count` items of the response
        carry no error.
        """
        if is_follower is not None and request == _FETCH:
            request = _FETCH_OF[is_follower]
        key = (get_ident(), request, version)
        try:
            recorder = self._recorders[key]
        except KeyError:
            recorder = self._add(key)
        pending = recorder.digest.pending
        queue_ns, local_ns, remote_ns, throttle_ns, response_queue_ns, send_ns = times_ns
        total_ns = queue_ns + local_ns + remote_ns + throttle_ns + response_queue_ns + send_ns
        # Why spelt out: a literal is made at once, where unpacking into one makes a list first.
        pending.append((
            queue_ns, local_ns, remote_ns, throttle_ns, response_queue_ns, send_ns, total_ns,
            size_bytes, response_bytes, client_id, header_bytes, ok_count,
        ))  # fmt: skip
        if len(pending) >= FULL:
            recorder.fold()

    def error(self, request: str, error: str, count: int = 1) -> None:
        """Count `count` items of a response that carry the error of that name; successes are counted by `record`."""
        try:
            meter = self._errors[request, error]
        except KeyError:
            meter = self._registry.meter(c.ERRORS_PER_SEC, request=request, error=error)
            self._errors[request, error] = meter
        meter.mark(count)

    def finished(self) -> dict[tuple[int, str], int]:
        """Return how many requests are done until now, by thread identity and name (of a Fetch: whose); any thread."""
        counts: dict[tuple[int, str], int] = {}
        for (ident, name, _), recorder in list(self._recorders.items()):
            digest = recorder.digest
            counts[ident, name] = counts.get((ident, name), 0) + digest.requests + len(digest.pending)
        return counts

    def spent_ms(self) -> dict[str, list[float]]:
        """Return how long they were at each of the six stations, by name (of a Fetch: whose); any thread."""
        spent: dict[str, list[float]] = {}
        for (_, name, _), recorder in list(self._recorders.items()):
            digest = recorder.digest
            columns: list[tuple[Any, ...]] = list(zip(*digest.pending[:], strict=True))  # none: nothing is pending
            sums = spent.setdefault(name, [0.0] * STATIONS)
            for index in range(STATIONS):
                sums[index] += digest.cells[index][SUM]
                if columns:
                    sums[index] += sum([max(0, ns) for ns in columns[index]]) / NS_PER_MS
        return spent

    # For the scrape, whose numbers are all of one moment: that of `_look`

    def count(self, request: str, version: int | None = None) -> int:
        """Return how many requests of that name (and version) there were."""
        parts = _parts(request)
        return sum(
            digest.requests for (_, name, number), digest in self._seen.items()
            if name in parts and version in (None, number)
        )  # fmt: skip

    def client_uses(self, request: str | None = None) -> dict[str, ClientUse]:
        """Return what each client has used, for requests of that name or for all."""
        uses: dict[str, ClientUse] = {}
        for (_, name, _), digest in self._seen.items():
            if request is None or name in _parts(request):
                for client, use in digest.clients.items():
                    before = uses.get(client, NOTHING)
                    uses[client] = ClientUse(*(a + b for a, b in zip(before, use, strict=True)))
        return uses

    def of_thread(self, thread: int | None) -> ThreadUse:
        """Return what that thread has recorded."""
        digests = [digest for (ident, _, _), digest in self._seen.items() if ident == thread]
        return ThreadUse(
            sum(digest.requests for digest in digests),
            int(sum(digest.cells[REQUEST_SIZE][SUM] + digest.header_bytes for digest in digests)),
            int(sum(digest.cells[RESPONSE_SIZE][SUM] for digest in digests)),
        )

    def _look(self) -> None:
        recorders = list(self._recorders.items())
        self._seen = {key: recorder.digest.whole() for key, recorder in recorders}

    def _cells(self, request: str, index: int) -> list[list[float]]:
        parts = _parts(request)
        return [digest.cells[index] for (_, name, _), digest in self._seen.items() if name in parts]

    def _add(self, key: tuple[int, str, int]) -> _Recorder:
        _, request, version = key
        for name in (request, _FETCH) if request in _FETCH_OF.values() else (request,):
            if name not in self._known:
                self._known.add(name)
                if name not in _FETCH_OF.values():  # Kafka counts errors of fetches once
                    self._registry.meter_of(c.ERRORS_PER_SEC, self._successes(name), request=name, error="NONE")
                for index, row in enumerate(_ROWS):
                    self._registry.histogram_of(row, self._reader(name, index), request=name)
            if not any(known[1:] == (request, version) for known in list(self._recorders)):
                self._registry.meter_of(c.REQUESTS_PER_SEC, self._counter(name, version), request=name, version=version)
        # Why setdefault: the registration above lets other threads run, though none of them has this key.
        return self._recorders.setdefault(key, _Recorder())

    def _reader(self, request: str, index: int) -> Callable[[], list[list[float]]]:
        return lambda: self._cells(request, index)

    def _successes(self, request: str) -> Callable[[], int]:
        parts = _parts(request)
        return lambda: sum(digest.ok_count for (_, name, _), digest in self._seen.items() if name in parts)

    def _counter(self, request: str, version: int) -> Callable[[], int]:
        return lambda: self.count(request, version)


def _parts(request: str) -> tuple[str, ...]:
    """The names under which requests are recorded that count as `request`."""
    return tuple(_FETCH_OF.values()) if request == _FETCH else (request,)
