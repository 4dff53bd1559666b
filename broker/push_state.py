"""What this broker has obeyed: the highest controller epoch and metadata offset of each cluster, also across restarts.

Rules
1. Neither ever goes down. `note` is called before a push is carried out.
2. A higher controller epoch is on disk before the first push of that epoch is carried out; so is the offset of that
   push. Later offsets are written by `checkpoint`, every `CHECKPOINT_MS` and at the stop.
3. Each online log directory has a copy; the highest values of all count. A damaged copy is said and passed over.

Why an offset may be lost (rule 2): a late push cannot profit, since it names the incarnation of the process that it was
sent to, and that one is gone. What the offset on disk finds is a controller whose log was cut back: an old copy, a lost
disk. One that lost less than `CHECKPOINT_MS` of its log may go unnoticed if the broker lost as much by the same
accident; it still deletes nothing (a log goes only by its topic id), and leader epochs are in the logs' own files.

Format: `push-state-checkpoint`, as every checkpoint of a log directory (storage/checkpoints.py), a line a cluster:
    h3zYrOmsQJqmHD2y0yjFEg 7 20431        cluster id, controller epoch, metadata offset

Threads: `_lock` guards everything; the attributes are read by any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final, Protocol

from barnabas.broker.storage.checkpoints import CorruptCheckpointError, format_checkpoint, parse_checkpoint
from barnabas.broker.storage.names import PUSH_STATE_FILE
from barnabas.common.files import FileSystem

log = logging.getLogger("barnabas.state-change")

CHECKPOINT_MS: Final = 1_000
NOTHING: Final = -1


class Directory(Protocol):
    """What is asked of a log directory."""

    @property
    def path(self) -> str: ...
    @property
    def is_offline(self) -> bool: ...


class PushState:
    """See the module."""

    def __init__(self, fs: FileSystem, directories: Iterable[Directory], cluster_id: str) -> None:
        self.cluster_id = cluster_id  # fixed before start
        self._fs = fs  # fixed before start
        self._directories = list(directories)  # fixed before start
        self._lock = threading.Lock()
        self._others: dict[str, tuple[int, int]] = {}  # guarded by: _lock; what was obeyed in other clusters
        self.controller_epoch = NOTHING  # written under _lock
        self.metadata_offset = NOTHING  # written under _lock
        for directory in self._directories:
            if not directory.is_offline:
                self._take_in(f"{directory.path}/{PUSH_STATE_FILE}")
        self._written = (self.controller_epoch, self.metadata_offset)  # guarded by: _lock

    def note(self, controller_epoch: int, metadata_offset: int) -> None:
        """A push of this epoch and offset is about to be carried out. Raises OSError if that cannot be kept (rule 2).

        Neither is below what is known: the caller has refused such a push.
        """
        with self._lock:
            assert controller_epoch >= self.controller_epoch
            assert metadata_offset >= self.metadata_offset
            if controller_epoch > self.controller_epoch:
                self._write_locked(controller_epoch, metadata_offset)
            self.controller_epoch = controller_epoch
            self.metadata_offset = metadata_offset

    def checkpoint(self) -> None:
        """Write what was obeyed, if it is not on disk already."""
        with self._lock:
            state = (self.controller_epoch, self.metadata_offset)
            if state == self._written:
                return
            try:
                self._write_locked(*state)
            except OSError as error:
                log.warning("what the controller said last cannot be kept: %s", error)

    def _write_locked(self, controller_epoch: int, metadata_offset: int) -> None:
        """Write every copy; raises OSError if none could be written."""
        states = {**self._others, self.cluster_id: (controller_epoch, metadata_offset)}
        data = format_checkpoint(f"{cluster_id} {epoch} {offset}" for cluster_id, (epoch, offset) in states.items())
        has_copy, failure = False, OSError("no log directory is online")
        for directory in self._directories:
            if directory.is_offline:
                continue
            try:
                self._fs.atomic_write(f"{directory.path}/{PUSH_STATE_FILE}", data)
                has_copy = True
            except OSError as error:  # Why not offline: its logs may still work, and they will find out
                log.warning("cannot write %s/%s: %s", directory.path, PUSH_STATE_FILE, error)
                failure = error
        if not has_copy:
            raise failure
        self._written = (controller_epoch, metadata_offset)

    def _take_in(self, path: str) -> None:
        try:
            found = read_push_state(self._fs, path)
        except OSError as error:
            log.warning("%s; starting without it", error)
            return
        for cluster_id, (epoch, offset) in found.items():
            if cluster_id == self.cluster_id:
                self.controller_epoch = max(self.controller_epoch, epoch)
                self.metadata_offset = max(self.metadata_offset, offset)
            else:
                known = self._others.get(cluster_id, (NOTHING, NOTHING))
                self._others[cluster_id] = (max(known[0], epoch), max(known[1], offset))


def read_push_state(fs: FileSystem, path: str) -> dict[str, tuple[int, int]]:
    """Return (controller epoch, metadata offset) by cluster id; empty if there is no file.

    Raises CorruptCheckpointError if it is damaged, OSError if it cannot be read.
    """
    if not fs.exists(path):
        return {}
    states = {}
    for row in parse_checkpoint(fs.read_bytes(path), path):
        try:
            cluster_id, epoch, offset = row
            states[cluster_id] = (int(epoch), int(offset))
        except ValueError:
            raise CorruptCheckpointError(f"{path} is malformed at {' '.join(row)!r}") from None
    return states
