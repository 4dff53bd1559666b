"""The pages that `barnabas top` watches: found when it starts, and again while it goes on.

A broker may be added, or come back elsewhere. To find out can take as long as a process that hangs keeps one waiting,
so it is done on a thread of its own, and frames are made of what was found before. Who was found once is kept: that a
broker is gone is worth seeing.

Threads: all methods by the one that makes the frames; `_find_again` by the finder's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Final

from barnabas.cli.errors import UserError
from barnabas.cli.inside.pages import Page
from barnabas.common.clock import Clock
from barnabas.common.threads import ServiceThread

AGAIN_MS: Final = 5000
SOON_MS: Final = 1000  # while somebody does not answer


class PageFinder:
    """Keeps what `find` finds; raises UserError as it does the first time."""

    def __init__(self, find: Callable[[], Iterable[Page]], clock: Clock) -> None:
        self._find = find  # fixed before start
        self._clock = clock  # fixed before start
        self._pages = list(find())  # replaced whole by the finder's thread
        self._begun_ms = clock.monotonic_ms()  # owner: who makes the frames
        self._thread: ServiceThread | None = None  # owner: who makes the frames

    def pages(self) -> list[Page]:
        """Those that were found last."""
        return self._pages

    def find_again(self, *, is_one_silent: bool) -> None:
        """Begin to, if it is time."""
        now_ms = self._clock.monotonic_ms()
        is_due = now_ms - self._begun_ms >= (SOON_MS if is_one_silent else AGAIN_MS)
        if is_due and (self._thread is None or not self._thread.is_alive()):
            self._begun_ms = now_ms
            self._thread = ServiceThread("page-finder", "page-finder", self._find_again, daemon=True)
            self._thread.start()

    def _find_again(self) -> None:
        with contextlib.suppress(UserError):  # nobody answers now: those that were known are asked on
            known = {(page.role, page.id): page for page in self._pages}
            found = {(page.role, page.id): page for page in self._find()}
            self._pages = sorted((known | found).values())
