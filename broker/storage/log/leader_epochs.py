"""The leader epochs of a log: for each, the offset at which its leader began to write.

A replica that diverged finds in them where to truncate (KIP-101, KIP-279). They are kept in memory and stored in
`leader-epoch-checkpoint`.

Rules
1. A change is written later, by `flush`. The log schedules it soon, and always flushes before its recovery point passes
   records that were appended since. An error that a crash leaves in the file is above the recovery point, where the
   batches correct it (`recovery.py`). Why not at once, as Kafka does: a broker that becomes leader, or gets a new
   leader, of a hundred partitions would wait for two hundred fsyncs while producers wait for it.

Threads: changed by the log under its lock; flushed by any thread; read by any thread (the two tuples are replaced
together).

Invariants
1. Epochs and start offsets both ascend strictly from entry to entry.
2. No entry starts above the log end offset, but the newest may start at it.

Source: Kafka's LeaderEpochFileCache, 4.3.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable

from barnabas.broker.storage.directories.checkpoints import read_epochs, write_epochs
from barnabas.broker.storage.directories.names import shared_parts
from barnabas.broker.storage.log.log_types import NO_EPOCH, NO_OFFSET
from barnabas.common.disk.files import FileSystem

log = logging.getLogger("barnabas.storage")


class LeaderEpochCache:
    """(epoch, start offset) entries of one log."""

    __slots__ = ("_directory", "_entries", "_flush_lock", "_fs", "_is_dirty", "_name", "_schedule_flush")

    def __init__(self, fs: FileSystem, path: str, *, is_new: bool = False) -> None:
        """Read the file, unless the log is new."""
        self._directory, self._name = shared_parts(path)
        self._fs = fs
        # Replaced whole under the log's lock; two tuples. Why not annotated as a pair: compiled, it would be two
        # fields, and another thread could read them half replaced.
        self._entries: tuple[tuple[int, ...], ...] = ((), ())
        self._flush_lock = threading.Lock()  # one write at a time; no other lock is taken while it is held
        self._is_dirty = False  # set after a change of _entries, cleared by `flush` before it reads them
        self._schedule_flush: Callable[[], object] | None = None  # set once by the log
        for epoch, start_offset in () if is_new else read_epochs(fs, path):
            self._assign(epoch, start_offset)

    @property
    def path(self) -> str:
        """The path of the file; replaced by renames, under the log's lock."""
        return f"{self._directory}/{self._name}"

    @path.setter
    def path(self, path: str) -> None:
        """Set the path."""
        self._directory, self._name = shared_parts(path)

    def flush_by(self, schedule: Callable[[], object]) -> None:
        """Call `schedule` whenever there is something to flush; it arranges for a `flush`."""
        self._schedule_flush = schedule
        if self._is_dirty:
            schedule()

    def flush_no_more(self) -> None:
        """Forget what `flush_by` was given: it refers back to this cache."""
        self._schedule_flush = None

    def flush(self) -> None:
        """Write the entries durably if they changed; raises OSError."""
        with self._flush_lock:
            if self._is_dirty:
                self._is_dirty = False
                self._write()

    @property
    def entries(self) -> list[tuple[int, int]]:
        """All (epoch, start offset) pairs, oldest first."""
        return list(zip(*self._entries, strict=True))

    @property
    def latest_epoch(self) -> int:
        """The newest epoch; -1 if there is none."""
        epochs = self._entries[0]
        return epochs[-1] if epochs else NO_EPOCH

    @property
    def earliest(self) -> tuple[int, int] | None:
        """The oldest (epoch, start offset)."""
        epochs, starts = self._entries
        return (epochs[0], starts[0]) if epochs else None

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`; does nothing if it is the latest epoch already."""
        if self._entries[0] and self._entries[0][-1] == epoch:
            return
        if self._assign(epoch, start_offset):
            self._changed()

    def _assign(self, epoch: int, start_offset: int) -> bool:
        """Add an entry and drop those that contradict it; returns whether anything changed."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} at offset {start_offset}")
        epochs, starts = self._entries
        if epochs and epochs[-1] == epoch:
            return False
        keep = min(bisect_left(epochs, epoch), bisect_left(starts, start_offset))
        if any(start != start_offset for start in starts[keep:]):  # otherwise the dropped epoch wrote nothing
            log.warning(
                "%s: epoch %d at offset %d contradicts the epochs %s, which are dropped",
                self.path, epoch, start_offset, list(zip(epochs[keep:], starts[keep:], strict=True)),
            )  # fmt: skip
        self._entries = ((*epochs[:keep], epoch), (*starts[:keep], start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch not above `epoch` and where it ends (exclusive); (-1, -1) if unknown."""
        epochs, starts = self._entries
        if epoch == NO_EPOCH or not epochs:
            return NO_EPOCH, NO_OFFSET
        if epoch == epochs[-1]:
            return epoch, log_end_offset
        above = bisect_right(epochs, epoch)
        if above == len(epochs):
            return NO_EPOCH, NO_OFFSET
        if above == 0:
            # Why: for an epoch older than all known ones, Kafka returns the start of the oldest.
            return epoch, starts[0]
        return epochs[above - 1], starts[above]

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that wrote `offset`; -1 if unknown."""
        epochs, starts = self._entries
        found = bisect_right(starts, offset)
        return epochs[found - 1] if found else NO_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that start at or above `end_offset`."""
        epochs, starts = self._entries
        keep = bisect_left(starts, end_offset)
        if end_offset >= 0 and keep < len(epochs):
            self._entries = (epochs[:keep], starts[:keep])
            self._changed()

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that end before `start_offset`; the one that contains it now begins there."""
        epochs, starts = self._entries
        found = bisect_right(starts, start_offset)
        if start_offset < 0 or found == 0 or (found == 1 and starts[0] == start_offset):
            return
        # Why nothing is written: a start repeats this from the log start offset.
        self._entries = (epochs[found - 1 :], (start_offset, *starts[found:]))

    def clear(self) -> None:
        """Drop everything, durably: the log begins again, and no batch could correct an old entry. Raises OSError."""
        if self._entries[0]:
            self._entries = ((), ())
            self._is_dirty = True
            self.flush()

    def _changed(self) -> None:
        was_dirty, self._is_dirty = self._is_dirty, True
        if not was_dirty and self._schedule_flush is not None:
            self._schedule_flush()

    def _write(self) -> None:
        try:
            write_epochs(self._fs, self.path, self.entries)
        except OSError:
            self._is_dirty = True
            raise
