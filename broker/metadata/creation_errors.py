"""CreationErrors: why topics could not be created, kept for a short while.

A member of a streams group asks for its missing topics with every heartbeat. The error of an attempt is part of its
next answers, and no other attempt is made until the error has expired.

Threads: any.
Source: Kafka's DefaultAutoTopicCreationManager.ExpiringErrorCache (4.3).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from barnabas.common.clock import Clock

ERRORS_MAX: Final = 1000


class _Kept(NamedTuple):
    message: str
    until_ms: int  # monotonic


class CreationErrors:
    """The last errors by topic; the oldest go when there are too many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._kept: dict[str, _Kept] = {}  # guarded by: _lock; the last one put is the last one

    def put(self, name: str, message: str, keep_ms: int) -> None:
        """Keep the error of a topic for some time."""
        kept = _Kept(message, self._clock.monotonic_ms() + keep_ms)
        with self._lock:
            self._kept.pop(name, None)
            if len(self._kept) >= ERRORS_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[name] = kept

    def of(self, names: Iterable[str]) -> dict[str, str]:
        """Return the errors of those topics that have one."""
        now_ms = self._clock.monotonic_ms()
        found: dict[str, str] = {}
        with self._lock:
            for name in names:
                kept = self._kept.get(name)
                if kept is None:
                    continue
                if kept.until_ms > now_ms:
                    found[name] = kept.message
                else:
                    del self._kept[name]
        return found
