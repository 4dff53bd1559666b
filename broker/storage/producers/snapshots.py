"""Producer snapshots: the state of a log's producers as of an offset, in a file beside the segments.

Format of `<offset>.snapshot` (state as of all records below that offset; big-endian): int16 version (1), uint32
crc32c of the rest, int32 count, and for each producer 50 bytes: int64 producer id, int16 epoch, int32 last
sequence, int64 last offset, int32 offset delta of the last batch, int64 timestamp, int32 coordinator epoch, int64
first offset of the open transaction (-1: none).

Threads: all methods under the log's lock; `sync_snapshot` without it.
Source: Kafka's ProducerStateManager and its snapshot format, 4.3.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import insort
from collections.abc import Iterable, Iterator
from typing import Final

from barnabas.broker.storage.directories.names import DELETED_SUFFIX, SNAPSHOT_SUFFIX, offset_of_file, segment_file
from barnabas.broker.storage.producers.producer_entry import BatchMetadata, ProducerEntry
from barnabas.common.disk.files import FileSystem
from barnabas.protocol.records.crc import crc32c

SNAPSHOT_VERSION: Final = 1

_HEADER: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_START: Final = 6


class CorruptSnapshotError(Exception):
    """A snapshot that cannot be trusted; an older one or the log itself is used."""


class SnapshotFiles:
    """The snapshot files of one log."""

    __slots__ = ("_fs", "_offsets", "directory")

    def __init__(self, fs: FileSystem, directory: str, *, is_new: bool = False) -> None:
        """Find the files, unless the log is new."""
        self.directory = directory  # replaced by renames
        self._fs = fs
        self._offsets = [] if is_new else self._list()  # ascending

    def _list(self) -> list[int]:
        try:
            names = [entry.name for entry in self._fs.listdir(self.directory) if not entry.is_dir]
        except FileNotFoundError:
            return []
        offsets = [offset_of_file(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        return sorted(offset for offset in offsets if offset is not None)

    def path(self, offset: int) -> str:
        """Return the path of the snapshot at `offset`."""
        return segment_file(self.directory, offset, SNAPSHOT_SUFFIX)

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets that have a snapshot, ascending."""
        return tuple(self._offsets)

    @property
    def newest(self) -> int | None:
        """The highest offset that has a snapshot."""
        return self._offsets[-1] if self._offsets else None

    def read(self, offset: int) -> list[ProducerEntry]:
        """Read one snapshot; raises CorruptSnapshotError or FileNotFoundError."""
        return read_snapshot(self._fs.read_bytes(self.path(offset)))

    def write(self, offset: int, entries: Iterable[ProducerEntry], *, sync: bool) -> None:
        """Write the snapshot at `offset`; with `sync` it survives a power cut."""
        self._fs.write_bytes(self.path(offset), format_snapshot(entries), sync=sync)
        if offset not in self._offsets:
            insort(self._offsets, offset)

    def delete(self, offset: int) -> None:
        """Remove one snapshot, if it is there."""
        if offset in self._offsets:
            self._offsets.remove(offset)
        self._fs.unlink(self.path(offset))

    def mark_deleted(self, offset: int) -> str | None:
        """Rename one snapshot for deletion and return its new path; None if there was none."""
        if offset not in self._offsets:
            return None
        self._offsets.remove(offset)
        path = self.path(offset)
        try:
            self._fs.rename(path, path + DELETED_SUFFIX)
        except FileNotFoundError:
            return None
        return path + DELETED_SUFFIX

    def ignore_above(self, offset: int) -> None:
        """Ignore the snapshots above `offset` and keep their files."""
        self._offsets = [found for found in self._offsets if found <= offset]

    def remove_stray(self, segment_base_offsets: Iterable[int]) -> None:
        """Keep the snapshots that belong to a segment, and the newest one if it is above all segments."""
        bases = set(segment_base_offsets)
        newest_base = max(bases, default=-1)
        stray = [offset for offset in self._offsets if offset not in bases]
        keep = stray[-1] if stray and stray[-1] >= newest_base else None
        for offset in stray:
            if offset != keep:
                self.delete(offset)


def sync_snapshot(fs: FileSystem, directory: str, offset: int) -> None:
    """Make a snapshot durable, unless it was deleted meanwhile. Takes no lock; raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        handle = fs.open(segment_file(directory, offset, SNAPSHOT_SUFFIX))
        try:
            handle.fsync()
        finally:
            handle.close()


def format_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return a snapshot's bytes."""
    rows = [
        _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
        for entry in entries
    ]
    body = struct.pack(">i", len(rows)) + b"".join(rows)
    return struct.pack(">hI", SNAPSHOT_VERSION, crc32c(body)) + body


def read_snapshot(data: bytes) -> list[ProducerEntry]:
    """Read a snapshot's bytes; raises CorruptSnapshotError."""
    return list(_read_entries(data))


def _read_entries(data: bytes) -> Iterator[ProducerEntry]:
    if len(data) < _HEADER.size:
        raise CorruptSnapshotError(f"a snapshot of {len(data)} bytes")
    version, crc, count = _HEADER.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"a snapshot of version {version}")
    if crc32c(data[_CRC_START:]) != crc:
        raise CorruptSnapshotError("the CRC of a snapshot is wrong")
    if count < 0 or len(data) != _HEADER.size + count * _ENTRY.size:
        raise CorruptSnapshotError(f"a snapshot of {count} producers in {len(data)} bytes")
    for fields in _ENTRY.iter_unpack(data[_HEADER.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first_offset = fields
        entry = ProducerEntry(producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset)
        if offset >= 0:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        yield entry
