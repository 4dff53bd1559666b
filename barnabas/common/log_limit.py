"""A limit of log lines: the first ones of a kind are written, the others are counted.

It is for lines that a client can cause as often as it likes.

Rules
1. In a period, `lines_max` lines of a kind are admitted. One line says how many more there were; it comes with the next
   line of any kind.
2. A period tells KINDS_MAX kinds apart. The others together are one more kind: clients can combine errors at will.
3. A logger at DEBUG is not limited: whoever sets it wants all lines.

Threads: any.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from barnabas.common.clock import NS_PER_S

LINES_MAX: Final = 5
PERIOD_S: Final = 60
KINDS_MAX: Final = 50
OTHERS: Final = "of other kinds"


class LogLimit:
    """Says which lines of a logger may be written."""

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

    def admits(self, level: int, kind: str) -> bool:
        """Return whether a line of this level and kind may be written now; report what was left out before."""
        if not self._log.isEnabledFor(level) or self._log.isEnabledFor(logging.DEBUG):
            return self._log.isEnabledFor(level)
        now_ns = self._now_ns()
        ended: dict[tuple[int, str], int] = {}
        with self._lock:
            ago_s = (now_ns - self._end_ns) // NS_PER_S
            if ago_s >= 0:
                ended, self._counts = self._counts, {}
                self._end_ns = now_ns + self._period_s * NS_PER_S
            counts, key = self._counts, (level, kind)
            if key not in counts and len(counts) >= KINDS_MAX:
                key = (level, OTHERS)
            count = counts[key] = counts.get(key, 0) + 1
        for (ended_level, ended_kind), total in ended.items():
            if total > self._lines_max:
                self._report(ended_level, ended_kind, total - self._lines_max, ago_s)
        return count <= self._lines_max

    def _report(self, level: int, kind: str, left_out: int, ago_s: int) -> None:
        ended = f", which ended {ago_s} s ago" if ago_s else ""
        self._log.log(level, "... and %d more in a period of %d s%s: %s", left_out, self._period_s, ended, kind)
