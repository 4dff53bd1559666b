"""NoteLog: the notes of a replica as log lines, without the repetitions.

A node that repeats its mistake sends it with each request, every few milliseconds, perhaps together with others. So a
text is logged once per interval, then with the number of repetitions. Only a few texts are remembered, and no others
are logged meanwhile: a node that sends another epoch each time cannot fill the disk either.

Threads: the raft thread.
"""

from __future__ import annotations

import logging
from typing import Final

from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.controller.raft")

QUIET_MS: Final = 60_000
TEXTS_MAX: Final = 32


class NoteLog:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock  # fixed before start
        self._noted: dict[str, tuple[int, int]] = {}  # owner: raft thread; text -> when it was logged, repetitions

    def note(self, text: str) -> None:
        """Log a text, at DEBUG if that was done a short time ago."""
        now_ms = self._clock.monotonic_ms()
        when_ms, repetitions = self._noted.get(text, (now_ms - QUIET_MS, 0))
        if now_ms - when_ms < QUIET_MS:
            self._noted[text] = (when_ms, repetitions + 1)
            log.debug("%s", text)
            return
        if text not in self._noted and len(self._noted) >= TEXTS_MAX:
            oldest = min(self._noted, key=lambda known: self._noted[known][0])
            if now_ms - self._noted[oldest][0] < QUIET_MS:
                log.debug("%s", text)
                return
            del self._noted[oldest]
        self._noted[text] = (now_ms, 0)
        log.warning("%s%s", text, f" (and {repetitions} times before this line)" if repetitions else "")
