"""The hand on the clock of one process: /clock, beside /metrics.

    GET     /clock    {"node", "role", "now_ms", "offset_ms", "next_due_in_ms", "busy": [name, …]}
    POST    /clock    {"offset_ms": 604800000, "is_last": false}: move the clock to this offset, then as GET, some ms
                      later if there is work

`offset_ms` is how far the clock is ahead, `busy` names the work that is due or in progress, and `next_due_in_ms` how
long it takes until the next deadline that a walk must not jump over (null: none). A mistake is 400 with {"error": one
line}.

Rules
1. The offset never becomes smaller, so a late or repeated request changes nothing, or is refused.
2. The file is written before the clock moves: a process that starts meanwhile is not behind.
3. The file is read twice: before anything reads the clock, and once /clock is served (`catch_up`). The process learns
   of the moves between these two readings only from the file.
4. The log has a line at the first step of a walk and one at its last: what expires is explained, and not drowned.
5. The hand only moves the clock and wakes the parts. `barnabas.clock` walks all nodes of a cluster in steps.

Threads: the visitors of the page, one at a time (`_lock`).
"""

from __future__ import annotations

import json
import logging
import threading
from typing import TYPE_CHECKING, Final

from barnabas.common.clock import MovedClock
from barnabas.common.disk.files import FileSystem, OsFileSystem
from barnabas.common.pages.page import Page, ResourceRequest
from barnabas.common.pages.phrases import duration
from barnabas.config.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.broker.clock.parts import Part
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.metrics.http import MetricsServer

log = logging.getLogger("barnabas.clock")

OFFSET_MS_MAX: Final = 100 * 365 * 86_400_000  # a hundred years: timestamps stay far from the end of their 64 bits
JSON_TYPE: Final = "application/json"
OK, BAD, MISSING, NOT_ALLOWED = "200 OK", "400 Bad Request", "404 Not Found", "405 Method Not Allowed"
LOOKS_MAX, LOOK_S = 20, 0.002  # 40 ms at most, in which the other pages wait
_DIGITS_MAX: Final = 20
KEYS: Final = frozenset({"offset_ms", "is_last"})


class _MoveError(Exception):
    """A move that is refused; the message is one line."""


class ClockHand:
    """See the module. Built before all other parts of the process. Raises ConfigError."""

    def __init__(self, config: Config, base: Clock, fs: FileSystem | None = None) -> None:
        if config.barnabas_metrics_port < 0:
            raise ConfigError("barnabas.clock.enable needs barnabas.metrics.port: the clock is moved there")
        self._node_id = int(config.node_id)  # fixed before start
        self._file = str(config.barnabas_clock_file)  # fixed before start; empty: none
        self._fs = OsFileSystem() if fs is None else fs  # fixed before start
        self.clock = MovedClock(base, self._kept_offset())  # fixed before start
        self.parts: list[Part] = []  # fixed before start
        self._never = threading.Event()  # never set: a wait for it is a pause
        self._lock = threading.Lock()  # one move at a time; taken before the locks of all parts
        self._is_moving = False  # guarded by: _lock; a walk has begun, and its last step has not come
        if self.clock.offset_ms:
            log.warning("The clock is ahead by %s: it was moved on purpose", duration(self.clock.offset_ms))

    def serve(self, server: MetricsServer, role: str) -> None:
        """Serve /clock on the server of a process, before its start."""
        server.add_resource("/clock", lambda request: self.respond(role, request))

    def catch_up(self) -> None:
        """Move to the offset that the file has now; called once, after the start of the server (rule 3)."""
        with self._lock:
            offset_ms = self._kept_offset()
            if offset_ms > self.clock.offset_ms:
                self.clock.move_to(offset_ms)
                self._wake(is_last=False)

    def respond(self, role: str, request: ResourceRequest) -> Page:
        """Return the answer to one request."""
        if request.path:
            return _page({"error": "there is nothing below /clock"}, MISSING)
        if request.method not in ("GET", "HEAD", "POST"):
            return _page(
                {"error": "the clock does not go back: start the cluster again, without its file"}, NOT_ALLOWED
            )
        try:
            if request.method == "POST":
                self._move(*_parsed(request.body))
                self._wait_a_moment()
        except _MoveError as error:
            return _page({"error": str(error)}, BAD)
        return _page({"node": self._node_id, "role": role, **self.state()})

    def state(self) -> dict[str, object]:
        """Return the time and what is left to do, as GET /clock shows it."""
        # Why the deadline first: work that is done meanwhile may add one, and is then seen as busy.
        due = [due_ms for part in self.parts if (due_ms := part.next_due_ms()) is not None]
        busy = {name for part in self.parts for name in part.busy()}
        unfinished = {name for part in self.parts for name in part.unfinished(is_calm=not busy)}
        next_ms = min(due, default=None)
        return {
            "now_ms": self.clock.wall_ms(),
            "offset_ms": self.clock.offset_ms,
            "next_due_in_ms": None if next_ms is None else max(0, next_ms - self.clock.monotonic_ms()),
            "busy": sorted(busy | unfinished),
        }

    def _move(self, offset_ms: int, is_last: bool) -> None:
        with self._lock:
            if offset_ms < self.clock.offset_ms:
                raise _MoveError(f"a clock does not go back: it is ahead by {self.clock.offset_ms} ms, not {offset_ms}")
            if offset_ms > self.clock.offset_ms:
                self._keep(offset_ms)
                self.clock.move_to(offset_ms)
                if not self._is_moving:
                    log.warning("The clock is moved on purpose")
                self._is_moving = True
            if is_last and self._is_moving:
                self._is_moving = False
                log.warning("The clock is ahead by %s: it was moved on purpose", duration(offset_ms))
            self._wake(is_last=is_last)

    def _wake(self, *, is_last: bool) -> None:
        for part in self.parts:
            part.unfinished(is_calm=False)  # Why: what was waited for before belongs to another step
            part.moved(is_last=is_last)

    def _wait_a_moment(self) -> None:
        """Wait some ms for the parts: most steps cause little work, and a further request costs more than this."""
        for _ in range(LOOKS_MAX):
            if not self.state()["busy"]:
                return
            self._never.wait(LOOK_S)

    def _kept_offset(self) -> int:
        """Return the offset that the file keeps; 0 without a file. Raises ConfigError."""
        if not self._file or not self._fs.exists(self._file):
            return 0
        text = self._fs.read_bytes(self._file).decode("ascii", "replace").strip()
        if not text.isdecimal() or len(text) > _DIGITS_MAX or int(text) > OFFSET_MS_MAX:
            raise ConfigError(f"barnabas.clock.file: {self._file} holds no offset in ms; remove it")
        return int(text)

    def _keep(self, offset_ms: int) -> None:
        if not self._file:
            return
        # Why no fsync: what is lost with the power is the time of a test.
        temporary = f"{self._file}.{self._node_id}"
        try:
            self._fs.write_bytes(temporary, b"%d\n" % offset_ms, sync=False)
            self._fs.rename(temporary, self._file)
        except OSError as error:
            raise _MoveError(f"{self._file} cannot be written: {error.strerror}") from error


def _parsed(body: bytes) -> tuple[int, bool]:
    """Return offset and is_last of a request's body."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _MoveError(f"the body is not JSON: {error}") from None
    if not isinstance(values, dict) or not values.keys() <= KEYS or "offset_ms" not in values:
        raise _MoveError('the body must be {"offset_ms": NUMBER}, or with "is_last": true')
    offset_ms, is_last = values["offset_ms"], values.get("is_last", False)
    if not isinstance(offset_ms, int) or isinstance(offset_ms, bool) or not 0 <= offset_ms <= OFFSET_MS_MAX:
        raise _MoveError(f"offset_ms must be a number of milliseconds up to {OFFSET_MS_MAX}")
    if not isinstance(is_last, bool):
        raise _MoveError("is_last must be true or false")
    return offset_ms, is_last


def _page(value: object, status: str = OK) -> Page:
    return Page(json.dumps(value).encode() + b"\n", JSON_TYPE, status)
