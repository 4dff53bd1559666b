"""Logging: one format, Kafka's logger names, levels that can change at run time, a limit for lines that clients cause.

Rules
1. Loggers are named `barnabas.<area>`, except Kafka's two loggers of requests: `REQUEST_LOGGER` and
   `SLOW_REQUEST_LOGGER`.
2. A line is `[2025-01-31 12:34:56,789] INFO text (logger)`, as in Kafka, so that existing tools can parse it. Or it is
   a JSON object (`JsonFormatter`), which also contains a caller's `extra={"fields": {...}}`.
3. A record is one line, whatever its text contains: clients choose names, and must not write lines of their own. The
   lines of an exception follow it.
4. A line that a client can cause as often as it likes asks a `LogLimit` first. In a period, `lines_max` lines of a kind
   are admitted; one line says how many more there were, and comes with the next line of any kind. KINDS_MAX kinds are
   told apart, and the others are one kind: clients can combine errors at will. A logger at DEBUG is not limited:
   whoever sets it wants all lines.

*Threads*: any. main calls `configure` and `use_format` before the first thread starts.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, TextIO

from barnabas.common.clock import NS_PER_S

REQUEST_LOGGER: Final = "kafka.request.logger"
SLOW_REQUEST_LOGGER: Final = "kafka.request.slow.logger"

LINE_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"

#: Kafka's (log4j's) level names, and Python's.
LEVELS: Final = {
    "OFF": logging.CRITICAL + 10,
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG - 5,
}

LINES_MAX: Final = 5
PERIOD_S: Final = 60
KINDS_MAX: Final = 50
OTHERS: Final = "of other kinds"

PLAIN: Final = "plain"
JSON: Final = "json"

lines: Final = Counter[str]()  # by level; guarded by: the handler's lock
_listeners: Final[list[Callable[[], None]]] = []  # added to before start
_changing: Final = threading.Lock()  # one thread at a time tells listeners, so each ends with the last level


class LineFormatter(logging.Formatter):
    """A record as one line of text (rule 3)."""

    def __init__(self) -> None:
        super().__init__(LINE_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        """Return the line without its exception."""
        if not record.message.isprintable():
            record.message = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in record.message)
        return super().formatMessage(record)


class JsonFormatter(logging.Formatter):
    """A record as one JSON object in one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        node: dict[str, Any] = {
            "timestamp": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname,
            "logger": record.name,
            "thread": record.threadName,
            "message": record.getMessage(),
        }
        if record.exc_info:
            node["exception"] = self.formatException(record.exc_info)
        node.update(getattr(record, "fields", {}))
        return json.dumps(node, default=str)


class CountingHandler(logging.StreamHandler[TextIO]):
    """Writes lines and counts them by level."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line; the caller holds the handler's lock."""
        lines[record.levelname] += 1
        super().emit(record)


class LogLimit:
    """Says which lines of a logger may be written (rule 4)."""

    def __init__(
        self,
        log: logging.Logger,
        now_ns: Callable[[], int],
        lines_max: int = LINES_MAX,
        period_s: int = PERIOD_S,
    ) -> None:
        """`now_ns` reads the monotonic clock."""
        # Fixed before start.
        self._log = log
        self._now_ns = now_ns
        self._lines_max = lines_max
        self._period_s = period_s
        self._lock = threading.Lock()  # a leaf
        self._end_ns = 0  # guarded by: _lock; the end of the present period
        self._counts: dict[tuple[int, str], int] = {}  # replaced whole under _lock; by level and kind

    def admits(self, level: int, kind: str, wider: str = OTHERS) -> bool:
        """Return whether a line of this level and kind may be written now; report what was left out before.

        `wider` is the kind that the line counts as when too many kinds are told apart: one of few.
        """
        is_on, is_limited = self._log.isEnabledFor(level), not self._log.isEnabledFor(logging.DEBUG)
        # Why the clock and the lock in any case: simulated ones take time, and a life must not depend on its log.
        now_ns = self._now_ns()
        ended: dict[tuple[int, str], int] = {}
        with self._lock:
            ago_s = (now_ns - self._end_ns) // NS_PER_S
            if ago_s >= 0:
                ended, self._counts = self._counts, {}
                self._end_ns = now_ns + self._period_s * NS_PER_S
            count = self._count_locked(level, kind, wider) if is_on and is_limited else 0
        for (ended_level, ended_kind), total in ended.items():
            if total > self._lines_max:
                self._report(ended_level, ended_kind, total - self._lines_max, ago_s)
        return is_on and count <= self._lines_max

    def _count_locked(self, level: int, kind: str, wider: str) -> int:
        counts, key = self._counts, (level, kind)
        if key not in counts and len(counts) >= KINDS_MAX:
            key = (level, wider)
        count = counts[key] = counts.get(key, 0) + 1
        return count

    def _report(self, level: int, kind: str, left_out: int, ago_s: int) -> None:
        ended = f", which ended {ago_s} s ago" if ago_s else ""
        self._log.log(level, "... and %d more in a period of %d s%s: %s", left_out, self._period_s, ended, kind)


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send every record from `level` upwards to `stream` (stderr when None), in Kafka's line format."""
    for name, value in LEVELS.items():
        logging.addLevelName(value, name)
    # Why: `logging` computes these for each record, and our formats do not show them.
    logging.logMultiprocessing = False
    logging.logProcesses = False
    handler = CountingHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(LineFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(LEVELS[level.upper()])
    logging.captureWarnings(True)


def use_format(name: str) -> None:
    """Switch the format of all handlers to `PLAIN` text or `JSON`."""
    formatter = JsonFormatter() if name == JSON else LineFormatter()
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)


def on_change(listener: Callable[[], None]) -> None:
    """Call `listener` each time `set_level` has changed a level."""
    _listeners.append(listener)


def level_of(name: str) -> str:
    """Return Kafka's name of a logger's effective level; `root` is the root logger."""
    logger = logging.getLogger(None if name == "root" else name)
    effective = logger.getEffectiveLevel()
    return min(LEVELS, key=lambda level: (LEVELS[level] < effective, abs(LEVELS[level] - effective)))


def set_level(name: str, level: str | None) -> None:
    """Change a logger's level; None inherits the parent's. Raises KeyError for an unknown level."""
    logger = logging.getLogger(None if name == "root" else name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level.upper()])
    with _changing:
        for listener in _listeners[:]:
            listener()


def logger_names() -> list[str]:
    """Return the names of all existing loggers, `root` first."""
    known = [name for name, logger in logging.root.manager.loggerDict.items() if isinstance(logger, logging.Logger)]
    return ["root", *sorted(known)]
