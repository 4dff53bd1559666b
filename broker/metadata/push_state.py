"""PushState: the highest controller epoch and metadata offset that this broker has obeyed, for each cluster, on disk.

Rules
1. Neither value ever goes down. `note` is called before a push is carried out.
2. The first push of a higher controller epoch is carried out only after its epoch and offset are on disk. `checkpoint`
   writes later offsets, every `CHECKPOINT_MS` and at the stop.
3. Each online log directory has a copy, and the highest values count. A damaged copy is skipped with a warning.
4. The response to a registration carries security metadata, which may be newer than all pushes so far. Its epoch and
   offset are reported and written like those of a push (`highest`). No push is compared with them: a push that was
   built before the response may arrive after it, and is not late. What a push may not have, a response may not have
   either: on the disk, an epoch out of reach would make every later push late.

Why rule 2 may lose an offset: no late push profits from the loss, since it names the incarnation of a process that is
gone. The offset on disk serves to detect a controller whose log was cut back: an old copy, or a lost disk. A loss of
less than `CHECKPOINT_MS` stays undetected if the same accident hit the broker. Even then nothing is deleted (that needs
the topic id), and leader epochs are in files of the logs.

Format: `push-state-checkpoint`, like every checkpoint of a log directory (storage/directories/checkpoints.py), with one
line for each cluster:
    h3zYrOmsQJqmHD2y0yjFEg 7 20431        cluster id, controller epoch, metadata offset

Threads: `_lock` guards everything; the attributes are read by any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Final, Protocol

from barnabas.broker.storage.directories.checkpoints import CorruptCheckpointError, format_checkpoint, parse_checkpoint
from barnabas.broker.storage.directories.names import PUSH_STATE_FILE
from barnabas.common.disk.files import FileSystem
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.push_tags import Applied

log = logging.getLogger("barnabas.state-change")

CHECKPOINT_MS: Final = 1_000
NOTHING: Final = -1
#: How many epochs of the controllers a broker can have missed: a little more than a quorum may learn at once
#: (controller/raft/handlers/epochs.py).
EPOCH_LEAP_MAX: Final = (1 << 30) + (1 << 20)


class Directory(Protocol):
    """The part of a log directory that is needed here."""

    @property
    def path(self) -> str:
        """The path of the directory."""

    @property
    def is_offline(self) -> bool:
        """Whether the directory has failed."""


class PushState:
    """See the module."""

    def __init__(self, fs: FileSystem, directories: Iterable[Directory], cluster_id: str) -> None:
        self.cluster_id = cluster_id  # fixed before start
        self._fs = fs  # fixed before start
        self._directories = list(directories)  # fixed before start
        self._lock = threading.Lock()
        self._others: dict[str, tuple[int, int]] = {}  # guarded by: _lock; (epoch, offset) of other clusters
        self.controller_epoch = NOTHING  # written under _lock
        self.metadata_offset = NOTHING  # written under _lock
        for directory in self._directories:
            if not directory.is_offline:
                self._read(f"{directory.path}/{PUSH_STATE_FILE}")
        # The highest of pushes and registrations (rule 4); replaced whole under _lock.
        self.highest = Applied(self.metadata_offset, self.controller_epoch)
        self._written = self.highest  # guarded by: _lock

    def note(self, controller_epoch: int, metadata_offset: int) -> None:
        """Note the epoch and offset of a push, before it is carried out; raises OSError if rule 2 cannot be kept.

        Neither may be below the known value: the caller refuses such a push.
        """
        with self._lock:
            assert controller_epoch >= self.controller_epoch
            assert metadata_offset >= self.metadata_offset
            highest = _higher(self.highest, Applied(metadata_offset, controller_epoch))
            if controller_epoch > self.controller_epoch:
                self._write_locked(highest)
            self.controller_epoch = controller_epoch
            self.metadata_offset = metadata_offset
            self.highest = highest

    def is_leap(self, controller_epoch: int) -> bool:
        """Return whether an epoch is too far above the one of the pushes so far, if there were any."""
        return self.controller_epoch >= 0 and controller_epoch > self.controller_epoch + EPOCH_LEAP_MAX

    def note_registration(self, applied: Applied) -> None:
        """Note the security metadata of a registration's response, before it is taken (rule 4).

        Raises MalformedMessageError for a position that no controller of this cluster can have.
        """
        with self._lock:
            is_cut_back = applied.epoch > self.highest.epoch and applied.offset < self.highest.offset
            if applied.offset < 0 or is_cut_back or self.is_leap(applied.epoch):
                raise MalformedMessageError(
                    f"controller epoch {applied.epoch} and metadata offset {applied.offset} do not follow "
                    f"{self.highest.epoch} and {self.highest.offset}"
                )
            self.highest = _higher(self.highest, applied)

    def checkpoint(self) -> None:
        """Write the epoch and the offset, if they are not on disk already."""
        with self._lock:
            if self.highest == self._written:
                return
            try:
                self._write_locked(self.highest)
            except OSError as error:
                log.warning("cannot write the metadata offset of the last push: %s", error)

    def _write_locked(self, highest: Applied) -> None:
        """Write every copy; raises OSError if none could be written."""
        states = {**self._others, self.cluster_id: (highest.epoch, highest.offset)}
        data = format_checkpoint(f"{cluster_id} {epoch} {offset}" for cluster_id, (epoch, offset) in states.items())
        has_copy, failure = False, OSError("no log directory is online")
        for directory in self._directories:
            if directory.is_offline:
                continue
            try:
                self._fs.atomic_write(f"{directory.path}/{PUSH_STATE_FILE}", data)
                has_copy = True
            except OSError as error:  # Why the directory stays online: its logs may still work, and they will notice
                log.warning("cannot write %s/%s: %s", directory.path, PUSH_STATE_FILE, error)
                failure = error
        if not has_copy:
            raise failure
        self._written = highest

    def _read(self, path: str) -> None:
        """Raise the values to those of one copy."""
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


def _higher(one: Applied, other: Applied) -> Applied:
    """Return the later of two positions: by epoch, then by offset."""
    return max(one, other, key=lambda applied: (applied.epoch, applied.offset))


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
