"""A lock with a mailbox: how a shard hears from threads that must not wait for it, and speaks when it is free to.

Theory
While a shard is held it may append to its partition, so partition locks and the locks of delayed operations are taken
after it. The news that a record is committed, or that a timer is due, comes from threads that may hold exactly those:
    1. thread A holds the shard and appends: it wants operation X's lock;
    2. thread B holds X's lock, completes X, and would tell the shard: it wants the shard.
Neither could go on. So B only posts, and carries on: whoever holds the shard takes the letter out after releasing it.
A letter is never left lying: the poster tries the lock without waiting; if that fails somebody held it *after* the
letter was posted, and will look into the mailbox after letting go.

Rules
1. `post` never blocks.
2. What is said to the outside (`say`: answers, wake-ups) is said after the lock was released, in order.
3. A letter runs on whatever thread is there: a reaper's, a fetcher's, another client's handler. So one that fails never
   raises there: the shard is told (`failed`, with the lock held), and the letters after it are still read. Words that
   fail are logged, and the words after them are still said.

Threads: any.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

log = logging.getLogger("barnabas.group")

Letter: TypeAlias = Callable[[], object]


class Mailbox:
    """Use as a context manager to hold it."""

    __slots__ = ("_failed", "_letters", "_lock", "_outbox")

    def __init__(self, failed: Callable[[Exception], object]) -> None:
        self._failed = failed  # fixed before start; called with the lock held
        self._lock = threading.Lock()  # the shard's: taken before any partition's
        self._letters: deque[Letter] = deque()  # any thread appends; taken out under _lock
        self._outbox: list[Letter] = []  # guarded by: _lock

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
        if self._letters:
            self._drain()

    def post(self, letter: Letter) -> None:
        """Have `letter` called with the lock held, soon: by this thread if the lock is free, else by its holder."""
        self._letters.append(letter)
        self._drain()

    def say(self, words: Letter) -> None:
        """Have `words` called once the lock is released. The lock is held."""
        self._outbox.append(words)

    def _release(self) -> None:
        outbox = self._outbox
        if outbox:
            self._outbox = []
        self._lock.release()
        for words in outbox:
            try:
                words()
            except Exception:
                log.exception("an answer of a coordinator could not be given")

    def _drain(self) -> None:
        while self._letters and self._lock.acquire(blocking=False):
            try:
                while self._letters:
                    letter = self._letters.popleft()
                    try:
                        letter()
                    except Exception as error:
                        self._failed(error)
            finally:
                self._release()
