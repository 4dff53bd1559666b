"""Stray logs: a log that metadata does not know is kept, listed, and can be restored by one command.

A log that the controller does not name is not deleted. The broker closes it, writes a note into its directory, and
renames that to `topic-N.<32 hex digits>-stray`, as Kafka does. A start ignores such directories. They are deleted when
barnabas.stray.retention.ms has passed since they were set aside, or by `barnabas stray delete`.

Crashes
1. Between note and rename: the log still has its name, and is set aside again. A note in a log's directory has no
   effect.
2. While a stray is restored or deleted: each step leaves the stray, or the log, whole. The command can be repeated.

Format of the note, `stray.json`: a line of JSON with topic, partition, topic_id (null if unknown), set_aside_ms
(milliseconds since the epoch), log_start_offset, reason. A directory without a note comes from Kafka or was damaged:
its name gives the partition, and its retention begins when it is first seen.

Threads: none of its own; a running broker calls `expire` and `list_strays` from its scheduler.
Source: Kafka's UnifiedLog.logStrayDirName, LogManager.asyncDelete(isStray) (4.3), which keeps strays forever.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.broker.storage.directories.checkpoints import (
    CorruptCheckpointError,
    MirroredCheckpoint,
    OffsetCheckpoint,
    read_partition_metadata,
)
from barnabas.broker.storage.directories.names import (
    CLEAN_SHUTDOWN_FILE,
    CLEANER_OFFSET_FILE,
    LOCK_FILE,
    LOG_START_OFFSET_COPY,
    LOG_START_OFFSET_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    STRAY_NOTE_FILE,
    base_name,
    delete_dir_name,
    is_stray_dir,
    parse_dir_name,
    partition_dir_name,
)
from barnabas.common.disk.files import FileSystem
from barnabas.common.ids import uuid_from_string, uuid_to_string
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.storage.strays")

WITHOUT_NOTE: Final = "it was found without a note"


class StrayError(Exception):
    """A stray cannot be restored or deleted; the message is one line for a person."""


class Note(NamedTuple):
    """The facts about a log when it was set aside."""

    tp: TopicPartition
    topic_id: bytes | None
    set_aside_ms: int
    log_start_offset: int
    reason: str

    def to_bytes(self) -> bytes:
        """Return the content of `stray.json`."""
        fields = {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "topic_id": None if self.topic_id is None else uuid_to_string(self.topic_id),
            "set_aside_ms": self.set_aside_ms,
            "log_start_offset": self.log_start_offset,
            "reason": self.reason,
        }
        return json.dumps(fields).encode() + b"\n"


class Stray(NamedTuple):
    """A stray directory."""

    path: str
    tp: TopicPartition
    size_bytes: int
    note: Note | None


def list_strays(fs: FileSystem, log_dir: str) -> list[Stray]:
    """Return the strays of a log directory; raises OSError. One that is deleted meanwhile is left out."""
    strays = []
    for entry in fs.listdir(log_dir):
        tp = parse_dir_name(entry.name)
        if entry.is_dir and is_stray_dir(entry.name) and tp is not None:
            path = f"{log_dir}/{entry.name}"
            try:
                note = read_note(fs, path)
                strays.append(Stray(path, tp if note is None else note.tp, _size_bytes(fs, path), note))
            except FileNotFoundError:
                continue  # `barnabas stray delete` removed it
            except PermissionError as error:
                log.warning("%s is ignored: %s", path, error)
    return strays


def read_note(fs: FileSystem, path: str) -> Note | None:
    """Return the note in a stray directory; None if there is none or it cannot be read."""
    try:
        fields = json.loads(fs.read_bytes(f"{path}/{STRAY_NOTE_FILE}"))
        topic_id = fields["topic_id"]
        if "/" in fields["topic"]:
            raise ValueError("the topic's name contains a slash")
        return Note(
            TopicPartition(str(fields["topic"]), int(fields["partition"])),
            None if topic_id is None else uuid_from_string(topic_id),
            int(fields["set_aside_ms"]),
            int(fields["log_start_offset"]),
            str(fields["reason"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        log.warning("%s/%s cannot be read: %s", path, STRAY_NOTE_FILE, error)
        return None


def write_note(fs: FileSystem, path: str, note: Note) -> None:
    """Write a note into a directory."""
    fs.atomic_write(f"{path}/{STRAY_NOTE_FILE}", note.to_bytes())


def expire(fs: FileSystem, strays: Iterable[Stray], now_ms: int, retention_ms: int) -> None:
    """Delete the strays that are older than `retention_ms`; -1 keeps them forever. Raises OSError.

    `barnabas stray delete` may remove one meanwhile, which is no failure of the disk.
    """
    for stray in strays:
        try:
            if stray.note is None:
                write_note(fs, stray.path, Note(stray.tp, None, now_ms, 0, WITHOUT_NOTE))
            elif 0 <= retention_ms <= now_ms - stray.note.set_aside_ms:
                log.info("Deleting %s, which was set aside for longer than barnabas.stray.retention.ms", stray.path)
                delete(fs, stray)
        except FileNotFoundError:
            if fs.is_dir(stray.path):
                raise


def delete(fs: FileSystem, stray: Stray) -> None:
    """Delete a stray; after a crash the next start of the broker finishes it. Raises OSError."""
    doomed = f"{_parent(stray.path)}/{delete_dir_name(stray.tp)}"
    fs.rename(stray.path, doomed)
    fs.fsync_dir(_parent(stray.path))
    fs.remove_tree(doomed)


def find(fs: FileSystem, path: str) -> Stray:
    """Return the stray at a path; raises StrayError if there is none."""
    found = list_strays(fs, _parent(path)) if fs.is_dir(_parent(path)) else []
    stray = next((stray for stray in found if stray.path == path), None)
    if stray is None:
        raise StrayError(f"{path} is not a stray directory (topic-N.<32 hex digits>-stray)")
    return stray


def restore(fs: FileSystem, stray: Stray) -> str:
    """Make a stray its partition's log again, while its broker is stopped; returns the path of the log.

    Raises StrayError, and changes nothing, if a broker uses the directory, or if the partition has a log with records
    or of another topic id. Raises OSError.
    """
    log_dir = _parent(stray.path)
    if stray.note is None and stray.tp.topic + f"-{stray.tp.partition}." not in base_name(stray.path):
        raise StrayError(f"the name of {stray.path} does not contain its topic's whole name")
    try:
        lock = fs.lock(f"{log_dir}/{LOCK_FILE}")
    except BlockingIOError:
        raise StrayError(f"a broker uses {log_dir}: stop it first") from None
    try:
        return _restore_locked(fs, stray, log_dir)
    finally:
        lock.release()


def _restore_locked(fs: FileSystem, stray: Stray, log_dir: str) -> str:
    target = f"{log_dir}/{partition_dir_name(stray.tp)}"
    if fs.is_dir(target):
        _check_is_spare(fs, stray, target)
        fs.rename(target, f"{log_dir}/{delete_dir_name(stray.tp)}")  # the next start removes it
    starts = MirroredCheckpoint(fs, f"{log_dir}/{LOG_START_OFFSET_FILE}", f"{log_dir}/{LOG_START_OFFSET_COPY}")
    start_offset = 0 if stray.note is None else stray.note.log_start_offset
    _set_offset(starts, stray.tp, start_offset)
    _set_offset(OffsetCheckpoint(fs, f"{log_dir}/{RECOVERY_POINT_FILE}"), stray.tp, 0)
    # Why: it may have gaps of the cleaner. Without an entry, recovery takes a gap for a loss of power, and drops what
    # follows it (recovery.py).
    _set_clean_offset(fs, log_dir, stray.tp, start_offset)
    if stray.note is None or stray.note.reason == WITHOUT_NOTE:  # it may not have been closed: everything is checked
        fs.unlink(f"{log_dir}/{CLEAN_SHUTDOWN_FILE}")
    fs.rename(stray.path, target)
    fs.fsync_dir(log_dir)
    fs.unlink(f"{target}/{STRAY_NOTE_FILE}")
    return target


def _check_is_spare(fs: FileSystem, stray: Stray, target: str) -> None:
    """Raise StrayError unless the log in the stray's place is empty and of the same topic id."""
    if any(entry.name.endswith(LOG_SUFFIX) and entry.size for entry in fs.listdir(target)):
        raise StrayError(f"{target} has records of its own: move it away first if they are not needed")
    here, ours = _topic_id(fs, target), _topic_id(fs, stray.path)
    if here is not None and here != ours:
        raise StrayError(
            f"{target} is of topic id {uuid_to_string(here)}, and the stray is of "
            f"{'an unknown one' if ours is None else uuid_to_string(ours)}: the broker would set it aside again"
        )


def _topic_id(fs: FileSystem, path: str) -> bytes | None:
    """Return the topic id in a partition's directory; None if it is unknown."""
    try:
        return read_partition_metadata(fs, f"{path}/{PARTITION_METADATA_FILE}")
    except CorruptCheckpointError:
        return None


def _set_offset(checkpoint: OffsetCheckpoint, tp: TopicPartition, offset: int) -> None:
    """Set a partition's offset in a checkpoint; raises StrayError if the checkpoint is damaged."""
    try:
        offsets = checkpoint.read()
    except CorruptCheckpointError as error:
        raise StrayError(f"{error}; start and stop the broker once to write it again") from None
    if offsets.get(tp) != offset:
        offsets[tp] = offset
        checkpoint.write(offsets)


def _set_clean_offset(fs: FileSystem, log_dir: str, tp: TopicPartition, offset: int) -> None:
    checkpoint = OffsetCheckpoint(fs, f"{log_dir}/{CLEANER_OFFSET_FILE}")
    if fs.exists(f"{log_dir}/{CLEAN_SHUTDOWN_FILE}"):
        try:
            checkpoint.read()
        except CorruptCheckpointError as error:
            # Why not refused: no start writes this file again. After a clean stop nothing is checked for holes.
            log.warning("%s; it is replaced", error)
            checkpoint.write({tp: offset})
            return
    _set_offset(checkpoint, tp, offset)


def _size_bytes(fs: FileSystem, path: str) -> int:
    return sum(entry.size for entry in fs.listdir(path) if not entry.is_dir)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
