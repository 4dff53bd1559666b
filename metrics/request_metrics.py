"""The metrics of requests: times, sizes, counts and clients, recorded in one call for each request.

Rules
1. The thread that sent a response (a processor) calls `ThreadRecorder.record` once for its request. The call takes no
   lock and keeps nothing of the request: the sums and the buckets of a `Tally` belong to the thread. A request most
   often has the API and version of the one before it, so those are compared first.
2. Fetch is counted twice, as in Kafka: under `FetchConsumer` or `FetchFollower`, and under `Fetch`. The scrape adds the
   two for `Fetch`, so that recording does not.
3. The number of requests is the sum of the buckets, so the histogram and the rate of one scrape always agree.
4. Clients choose their client ids, so their length (`client_ids.py`) and their number in each thread (`CLIENTS_MAX`)
   are bounded. A thread that reaches the number forgets the tenth that was idle for the longest time. What a client
   used there still counts while another thread knows it, so its totals do not decrease.

Threads: any; each has its own recorder. The scraper reads.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Final, NamedTuple

from barnabas.metrics.client_ids import bounded
from barnabas.metrics.histograms import BOUNDS, BOUNDS_NS, SUM
from barnabas.metrics.meters import Meter
from barnabas.metrics.registry import Registry
from barnabas.metrics.table import catalogue as c
from barnabas.metrics.tally import Tally

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
_BOUNDS: Final = (BOUNDS_NS,) * _TIMES + (BOUNDS,) * (len(_ROWS) - _TIMES)
REQUEST_SIZE: Final = 7
RESPONSE_SIZE: Final = 8
NS_PER_MS: Final = 1e6

#: Nanoseconds in the request queue, local, remote, throttled, in the response queue, being sent.
Times = tuple[int, int, int, int, int, int]

CLIENTS_MAX: Final = 1000
_FORGOTTEN: Final = CLIENTS_MAX // 10  # at once: finding those that are idle costs a pass over all

_FETCH: Final = "Fetch"
_FETCH_OF: Final = {False: "FetchConsumer", True: "FetchFollower"}


class ClientUse(NamedTuple):
    """A client's use of the broker so far; times in nanoseconds."""

    requests: int = 0
    request_bytes: int = 0
    response_bytes: int = 0
    thread_ns: int = 0


NOTHING: Final = ClientUse()


class ThreadUse(NamedTuple):
    """The requests of one thread: their number, their bytes and those of their responses."""

    requests: int
    request_bytes: int
    response_bytes: int


class _Client:
    """A client that a thread knows; written by that thread."""

    __slots__ = ("name", "recorders", "turn")

    def __init__(self, name: str) -> None:
        self.name = name  # fixed before start
        self.turn = 0  # of the thread, at the client's last request
        self.recorders: list[_Recorder] = []  # those that count it


class _Use:
    """The counters of a ClientUse."""

    __slots__ = ("client", "request_bytes", "requests", "response_bytes", "thread_ns")

    def __init__(self, client: _Client) -> None:
        self.client = client  # fixed before start
        self.requests = 0
        self.request_bytes = 0
        self.response_bytes = 0
        self.thread_ns = 0

    def seen(self) -> ClientUse:
        return ClientUse(self.requests, self.request_bytes, self.response_bytes, self.thread_ns)


class _Seen(NamedTuple):
    """A copy of a recorder's numbers at one moment; times in milliseconds."""

    requests: int
    cells: list[list[float]]  # one for each row
    clients: dict[str, tuple[_Use, ClientUse]]  # the counters, and what they were at that moment
    header_bytes: int
    ok_count: int


class _Recorder:
    """One thread's requests of one API and version; written by that thread."""

    __slots__ = ("client", "clients", "count", "header_bytes", "name", "ok_count", "tally", "thread", "use", "version")

    def __init__(self, thread: ThreadRecorder, name: str, version: int) -> None:
        self.thread = thread  # fixed before start
        self.name = name  # fixed before start; "" before the first request
        self.version = version  # fixed before start
        self.tally = Tally(_BOUNDS)  # a column for each row
        self.count = self.tally.count  # Why: saves a lookup for each request
        self.clients: dict[str, _Use] = {}
        self.client: str | None = None  # of the last request
        self.use = _Use(_Client(""))  # what `client` has used
        self.header_bytes = 0
        self.ok_count = 0

    def use_of(self, client_id: str | None) -> _Use:
        """Return the counters of that client."""
        name = client_id if client_id is not None else ""
        if name != self.client:
            use = self.clients.get(name)
            if use is None:  # Why only now bounded: known clients with short ids pay nothing for it
                name = bounded(name)
                use = self.clients.get(name) or self._new(name)
            self.client, self.use = name, use
        return self.use

    def _new(self, name: str) -> _Use:
        client = self.thread.client(name)
        client.recorders.append(self)
        use = self.clients[name] = _Use(client)
        return use

    def forget(self, name: str) -> None:
        """Drop the counters of that client."""
        del self.clients[name]
        if self.client == name:
            self.client = None

    def cells(self) -> list[list[float]]:
        """Return a histogram's cell for each row, with times in milliseconds. For any thread."""
        cells = self.tally.cells()
        for cell in cells[:_TIMES]:
            cell[SUM] /= NS_PER_MS
        return cells

    def seen(self) -> _Seen:
        """Return a copy of all numbers. For any thread."""
        cells = self.cells()
        clients = {client: (use, use.seen()) for client, use in list(self.clients.items())}
        return _Seen(_count(cells), cells, clients, self.header_bytes, self.ok_count)


class ThreadRecorder:
    """One thread's records. Written by that thread, or by a later one that got its identity."""

    __slots__ = ("_add", "_last", "_turn", "clients", "recorders")

    def __init__(self, add: Callable[[str, int], None]) -> None:
        self._add = add  # fixed before start; called for a request and version that are new to this thread
        self._last = _Recorder(self, "", 0)
        self._turn = 0  # counts the requests
        self.recorders: dict[tuple[str, int], _Recorder] = {}
        self.clients: dict[str, _Client] = {}

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

        `request` is the API's name, and `times_ns` are its six times. `size_bytes` is the size of its body,
        `header_bytes` that of its length and header. `is_follower` says whether a Fetch is a follower's. `ok_count` is
        the number of items of the response without an error.
        """
        if is_follower is not None and request == _FETCH:
            request = _FETCH_OF[is_follower]
        recorder = self._last
        if recorder.name is not request or recorder.version != version:
            recorder = self._last = self._recorder_of(request, version)
        queue_ns, local_ns, remote_ns, throttle_ns, response_queue_ns, send_ns = times_ns
        # Why floats: the interpreter reuses freed floats, but allocates each int that leaves compiled code.
        recorder.count(
            float(queue_ns),
            float(local_ns),
            float(remote_ns),
            float(throttle_ns),
            float(response_queue_ns),
            float(send_ns),
            float(queue_ns + local_ns + remote_ns + throttle_ns + response_queue_ns + send_ns),
            float(size_bytes),
            float(response_bytes),
        )
        recorder.header_bytes += header_bytes
        recorder.ok_count += ok_count
        use = recorder.use_of(client_id)
        use.requests += 1
        use.request_bytes += size_bytes + header_bytes
        use.response_bytes += response_bytes
        use.thread_ns += local_ns + send_ns
        self._turn = use.client.turn = self._turn + 1

    def client(self, name: str) -> _Client:
        """Return the client of that name. A new one takes the place of one that is idle (rule 4)."""
        client = self.clients.get(name)
        if client is None:
            if len(self.clients) >= CLIENTS_MAX:
                self._forget_idle()
            client = self.clients[name] = _Client(name)
        return client

    def _forget_idle(self) -> None:
        for client in sorted(self.clients.values(), key=_turn_of)[:_FORGOTTEN]:
            del self.clients[client.name]
            for recorder in client.recorders:
                recorder.forget(client.name)

    def _recorder_of(self, request: str, version: int) -> _Recorder:
        recorder = self.recorders.get((request, version))
        if recorder is None:
            self._add(request, version)
            recorder = self.recorders[request, version] = _Recorder(self, request, version)
        return recorder


class RequestMetrics:
    """Times, sizes, counts and errors of requests by API name, over all threads."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # Why dicts without a lock: entries are only added. Each is added by its own thread, or (meters) several threads
        # add the same one.
        self._threads: dict[int, ThreadRecorder] = {}
        self._known: set[str] = set()  # names whose histograms are registered
        self._errors: dict[tuple[str, str], Meter] = {}
        self._seen: dict[tuple[int, str, int], _Seen] = {}  # owner: the scraper; by thread, request, version
        # Owner: the scraper. What clients used in threads that have forgotten them, by request and client (rule 4).
        self._forgotten: dict[str, dict[str, ClientUse]] = {}
        registry.before_scrape(self._look)

    def recorder(self) -> ThreadRecorder:
        """Return the calling thread's recorder."""
        recorder = self._threads.get(get_ident())
        return recorder if recorder is not None else self._threads.setdefault(get_ident(), ThreadRecorder(self._add))

    def error(self, request: str, error: str, count: int = 1) -> None:
        """Count `count` items of a response with the error of that name. `record` counts successes."""
        try:
            meter = self._errors[request, error]
        except KeyError:
            meter = self._registry.meter(c.ERRORS_PER_SEC, request=request, error=error)
            self._errors[request, error] = meter
        meter.mark(count)

    def finished(self) -> dict[tuple[int, str], int]:
        """Return how many requests finished by thread identity and name (`_FETCH_OF` for Fetch). Any thread."""
        counts: dict[tuple[int, str], int] = {}
        for (ident, name, _), recorder in self._recorders():
            counts[ident, name] = counts.get((ident, name), 0) + _count(recorder.cells())
        return counts

    def spent_ms(self) -> dict[str, list[float]]:
        """Return the sums of the six times in ms, by name (`_FETCH_OF` for Fetch). For any thread."""
        spent: dict[str, list[float]] = {}
        for (_, name, _), recorder in self._recorders():
            sums = spent.setdefault(name, [0.0] * STATIONS)
            cells = recorder.cells()
            for index in range(STATIONS):
                sums[index] += cells[index][SUM]
        return spent

    # For the scrape: all numbers are those of `_look`, so they are of the same moment.

    def count(self, request: str, version: int | None = None) -> int:
        """Return the number of requests of that name (and version)."""
        parts = _parts(request)
        return sum(
            seen.requests for (_, name, number), seen in self._seen.items()
            if name in parts and version in (None, number)
        )  # fmt: skip

    def client_uses(self, request: str | None = None) -> dict[str, ClientUse]:
        """Return each client's use, by requests of that name or by all."""
        uses: dict[str, ClientUse] = {}
        for (_, name, _), seen in self._seen.items():
            if request is None or name in _parts(request):
                for client, (_, use) in seen.clients.items():
                    _add_use(uses, client, use)
        for name, forgotten in self._forgotten.items():
            if request is None or name in _parts(request):
                for client, use in forgotten.items():
                    _add_use(uses, client, use)
        return uses

    def of_thread(self, thread: int | None) -> ThreadUse:
        """Return the numbers of that thread."""
        seen = [seen for (ident, _, _), seen in self._seen.items() if ident == thread]
        return ThreadUse(
            sum(part.requests for part in seen),
            int(sum(part.cells[REQUEST_SIZE][SUM] + part.header_bytes for part in seen)),
            int(sum(part.cells[RESPONSE_SIZE][SUM] for part in seen)),
        )

    def _look(self) -> None:
        before = self._seen
        self._seen = {key: recorder.seen() for key, recorder in self._recorders()}
        for key, seen in before.items():
            now = self._seen[key].clients
            for client, (counters, _) in seen.clients.items():
                if client not in now or now[client][0] is not counters:
                    _add_use(self._forgotten.setdefault(key[1], {}), client, counters.seen())
        if self._forgotten:
            known = {client for seen in self._seen.values() for client in seen.clients}
            for name, forgotten in list(self._forgotten.items()):
                self._forgotten[name] = {client: use for client, use in forgotten.items() if client in known}

    def _recorders(self) -> list[tuple[tuple[int, str, int], _Recorder]]:
        """Return the recorders of all threads, by thread, request and version."""
        return [
            ((ident, name, version), recorder)
            for ident, thread in list(self._threads.items())
            for (name, version), recorder in list(thread.recorders.items())
        ]

    def _cells(self, request: str, index: int) -> list[list[float]]:
        parts = _parts(request)
        return [seen.cells[index] for (_, name, _), seen in self._seen.items() if name in parts]

    def _add(self, request: str, version: int) -> None:
        """Register the metrics of a request that a thread records for the first time."""
        for name in (request, _FETCH) if request in _FETCH_OF.values() else (request,):
            if name not in self._known:
                self._known.add(name)
                if name not in _FETCH_OF.values():  # Kafka counts errors of fetches once
                    self._registry.meter_of(c.ERRORS_PER_SEC, self._successes(name), request=name, error="NONE")
                for index, row in enumerate(_ROWS):
                    self._registry.histogram_of(row, self._reader(name, index), request=name)
            if not any(known[1:] == (request, version) for known, _ in self._recorders()):
                self._registry.meter_of(c.REQUESTS_PER_SEC, self._counter(name, version), request=name, version=version)

    def _reader(self, request: str, index: int) -> Callable[[], list[list[float]]]:
        return lambda: self._cells(request, index)

    def _successes(self, request: str) -> Callable[[], int]:
        parts = _parts(request)
        return lambda: sum(seen.ok_count for (_, name, _), seen in self._seen.items() if name in parts)

    def _counter(self, request: str, version: int) -> Callable[[], int]:
        return lambda: self.count(request, version)


def _turn_of(client: _Client) -> int:
    return client.turn


def _add_use(uses: dict[str, ClientUse], client: str, use: ClientUse) -> None:
    before = uses.get(client, NOTHING)
    uses[client] = ClientUse(*(a + b for a, b in zip(before, use, strict=True)))


def _count(cells: list[list[float]]) -> int:
    return int(sum(cells[0][:SUM]))


def _parts(request: str) -> tuple[str, ...]:
    """Return the names under which requests that count as `request` are recorded."""
    return tuple(_FETCH_OF.values()) if request == _FETCH else (request,)
