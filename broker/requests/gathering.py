"""Gathering: collects the results of the parts of a request, which end on several threads.

Threads: any thread adds a result; the one that adds the last calls `reply`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Gathering(Generic[K, V]):
    """Calls `reply` once, with all results by key, when `expected` of them are there (at once for 0)."""

    __slots__ = ("_expected", "_lock", "_reply", "_results")

    def __init__(self, expected: int, reply: Callable[[dict[K, V]], object]) -> None:
        self._lock = threading.Lock()  # a leaf
        self._expected = expected  # fixed before start
        self._results: dict[K, V] = {}  # guarded by: _lock
        self._reply = reply  # fixed before start
        if expected == 0:
            reply(self._results)

    def add(self, key: K, result: V) -> None:
        """Add the result of one part; each key comes once."""
        with self._lock:
            self._results[key] = result
            is_last = len(self._results) == self._expected
        if is_last:
            self._reply(self._results)
