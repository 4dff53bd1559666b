"""Finds the pages that `barnabas top` watches, at its start and repeatedly while it runs.

A broker may be added, or restart at another address. The search can wait for a process that hangs, so it runs on its
own thread, and frames use the pages found last. A page once found is kept, so that a lost broker stays visible.

*Threads*: the thread that makes the frames calls all methods; the finder's thread runs `_find_again`.
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
SOON_MS: Final = 1000  # while a broker does not answer


class PageFinder:
    """Keeps the pages that `find` returns. The constructor raises UserError if `find` does."""

    def __init__(self, find: Callable[[], Iterable[Page]], clock: Clock) -> None:
        self._find = find  # fixed before start
        self._clock = clock  # fixed before start
        self._pages = list(find())  # replaced whole by the finder's thread
        self._begun_ms = clock.monotonic_ms()  # owner: the thread that makes the frames
        self._thread: ServiceThread | None = None  # owner: the thread that makes the frames

    def pages(self) -> list[Page]:
        """The pages found last."""
        return self._pages

    def find_again(self, *, is_one_silent: bool) -> None:
        """Start a search if it is due: sooner while a broker does not answer."""
        now_ms = self._clock.monotonic_ms()
        is_due = now_ms - self._begun_ms >= (SOON_MS if is_one_silent else AGAIN_MS)
        if is_due and (self._thread is None or not self._thread.is_alive()):
            self._begun_ms = now_ms
            self._thread = ServiceThread("page-finder", "page-finder", self._find_again, daemon=True)
            self._thread.start()

    def _find_again(self) -> None:
        with contextlib.suppress(UserError):  # no process answers now: keep the known pages
            known = {(page.role, page.id): page for page in self._pages}
            found = {(page.role, page.id): page for page in self._find()}
            self._pages = sorted((known | found).values())
