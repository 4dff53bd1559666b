"""Which logs a broker has, by partition: the current ones, and the future ones that move to another directory.

Threads: any. `lock` guards the maps and the creation of logs; single look-ups need no lock. A log's own lock is never
taken while `lock` is held, except for a log that no other thread knows yet.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping

from barnabas.broker.storage.directories.log_directory import LogDirectory
from barnabas.broker.storage.log.log import Log
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

PREFERRED_MAX = 100_000  # partitions without a log whose directory is remembered; any client may name any partition


class LogRegistry:
    """The logs of one broker."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        # Guarded by: lock
        self.current: dict[TopicPartition, Log] = {}
        self.future: dict[TopicPartition, Log] = {}
        self._preferred: dict[TopicPartition, LogDirectory] = {}  # where to create a later log

    # Lookups

    def get(self, tp: TopicPartition) -> Log | None:
        """Return a partition's current log; None if there is none."""
        return self.current.get(tp)

    def get_future(self, tp: TopicPartition) -> Log | None:
        """Return a partition's future log; None if it does not move."""
        return self.future.get(tp)

    def all_current(self) -> list[Log]:
        """Return every current log."""
        with self.lock:
            return list(self.current.values())

    def all_future(self) -> list[Log]:
        """Return every future log."""
        with self.lock:
            return list(self.future.values())

    def all(self) -> list[Log]:
        """Return every log, current ones first."""
        with self.lock:
            return [*self.current.values(), *self.future.values()]

    def all_unlocked(self) -> list[Log]:
        """Return every log without taking the lock; the caller may hold it, or a log's."""
        return [*self.current.copy().values(), *self.future.copy().values()]

    def in_directory(self, directory: LogDirectory) -> list[Log]:
        """Return the logs in one log directory, future ones too."""
        return [found for found in self.all() if os.path.dirname(found.directory) == directory.path]

    # Preferred directories

    def prefer(self, tp: TopicPartition, directory: LogDirectory) -> None:
        """Create the partition's log in `directory` if it is created later; forgotten if it is, or moves, there.

        Raises ApiError(INVALID_REQUEST) for too many partitions.
        """
        with self.lock:
            logs = [found for found in (self.current.get(tp), self.future.get(tp)) if found is not None]
            if any(os.path.dirname(found.directory) == directory.path for found in logs):
                self._preferred.pop(tp, None)
                return
            if tp not in self._preferred and len(self._preferred) >= PREFERRED_MAX:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"More than {PREFERRED_MAX} partitions to come have a directory"
                )
            self._preferred[tp] = directory

    def take_preferred_locked(self, tp: TopicPartition) -> LogDirectory | None:
        """Forget and return the preferred directory of a partition."""
        return self._preferred.pop(tp, None)

    # Removing

    def remove(self, tps: Iterable[TopicPartition]) -> list[Log]:
        """Forget the logs of partitions and return them, future ones first."""
        with self.lock:
            gone = [logs.pop(tp) for tp in tps for logs in (self.future, self.current) if tp in logs]
            for tp in tps:
                self._preferred.pop(tp, None)
        return gone

    def remove_strays(self, strays: Mapping[TopicPartition, bytes | None]) -> list[Log]:
        """Forget the logs of partitions and return them, but keep those of the topic id given (None: keep none)."""
        with self.lock:
            return [
                logs.pop(tp)
                for tp, topic_id in strays.items()
                for logs in (self.future, self.current)
                if tp in logs and (topic_id is None or logs[tp].topic_id not in (None, topic_id))
            ]

    def remove_directory(self, path: str) -> tuple[list[TopicPartition], list[Log]]:
        """Forget the logs in a log directory, and the moves into it and out of it.

        Returns the partitions that lost their current log, and all forgotten logs.
        """
        with self.lock:
            lost = {tp: found for tp, found in self.current.items() if os.path.dirname(found.directory) == path}
            moves = {
                tp: found for tp, found in self.future.items() if tp in lost or os.path.dirname(found.directory) == path
            }
            for tp in lost:
                del self.current[tp]
            for tp in moves:
                del self.future[tp]
        return list(lost), [*lost.values(), *moves.values()]

    def adopt_future(self, tp: TopicPartition, new: Log) -> None:
        """Make `new`, the future log, the current one if there is no other, and it is still registered."""
        with self.lock:
            if tp not in self.current and self.future.get(tp) is new:
                self.current[tp] = self.future.pop(tp)

    def swap_in_future(self, tp: TopicPartition, old: Log, new: Log) -> bool:
        """Make `new`, the future log, the current one in place of `old`; False if either is no longer registered."""
        with self.lock:
            if self.current.get(tp) is not old or self.future.get(tp) is not new:
                return False
            self.current[tp] = new
            del self.future[tp]
            return True
