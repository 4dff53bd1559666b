"""DurableEnd: the offset up to which the metadata log was durable. A start needs it to tell a torn tail from damage.

A torn tail was never acknowledged and is truncated. Any other loss would drop topics, and the brokers would set their
logs aside as strays. So the start fails unless every record that was once durable is there, whole and in order.

Format: `recovery-point-offset-checkpoint` in the controller's directory: Kafka's name and format, with our checksum. It
is written after every flush without an fsync, so it never names more than is durable. After a power cut it may be old
or torn; a torn file counts as absent. A replica of a quorum lowers it, with an fsync, before it truncates its log.
If the directory is a log directory of a broker in the same process, the broker writes that file, and the controller has
one of its own in `__cluster_metadata-0/`. A node may change its roles: a start moves an entry from the other place to
the own one, so that no old entry comes back with a later change. If both have one, a process ended between the two
steps, and the lower one counts: an entry that is too low hides damage at worst, one that is too high refuses a whole
log.

Threads: the event thread (and main before it starts).
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Final

from barnabas.broker.storage.directories.checkpoints import CorruptCheckpointError, OffsetCheckpoint, format_checkpoint
from barnabas.broker.storage.directories.names import LOG_SUFFIX, RECOVERY_POINT_FILE, offset_of_file
from barnabas.common.disk.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.controller.metadata.metadata_directory import REBUILD, DirectoryError
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import iter_headers, verify_crc

TOPIC_PARTITION: Final = TopicPartition("__cluster_metadata", 0)


class DurableEnd:
    """The offset below which the metadata log is known to have been durable."""

    def __init__(self, fs: FileSystem, directory: str, *, is_shared: bool = False) -> None:
        """`is_shared`: the directory is also a log directory of a broker."""
        self._fs = fs  # fixed before start
        self._inner = f"{directory}/{TOPIC_PARTITION}/{RECOVERY_POINT_FILE}"  # fixed before start
        outer = f"{directory}/{RECOVERY_POINT_FILE}"
        self._path, self._other = (self._inner, outer) if is_shared else (outer, self._inner)  # fixed before start

    def read(self) -> int:
        """Return the offset in the file, or in the other place; 0 if there is none."""
        try:
            found = [OffsetCheckpoint(self._fs, path).read().get(TOPIC_PARTITION) for path in (self._path, self._other)]
        except CorruptCheckpointError:
            return 0
        return min((offset for offset in found if offset is not None), default=0)

    def _move_here(self, durable: int) -> None:
        """Move the entry of the other place, if it has one, to the own place."""
        other = OffsetCheckpoint(self._fs, self._other)
        try:
            entries = other.read()
        except CorruptCheckpointError:
            return  # read as no entry
        if entries.pop(TOPIC_PARTITION, None) is None:
            return
        # Why atomic: a torn file would count instead of the other one.
        self._fs.atomic_write(self._path, _content(durable))
        if self._other == self._inner:
            self._fs.unlink(self._inner)
        else:  # Why no race: the broker of this process, which writes the file, starts after the controller is built
            other.write(entries)

    def write(self, offset: int) -> None:
        """Note that everything below `offset` has been flushed."""
        self._write(offset, sync=False)

    def lower(self, offset: int) -> None:
        """Note that everything from `offset` on may go, if more was noted; it survives a power cut on return."""
        if offset < self.read():
            self._write(offset, sync=True)

    def _write(self, offset: int, *, sync: bool) -> None:
        self._fs.write_bytes(self._path, _content(offset), sync=sync)

    def check(self, log_directory: str, start: int) -> int:
        """Read the log from `start`, the end of the snapshot; return the offset up to which it has every batch.

        What follows a gap was never flushed: a power cut may lose the end of a segment, and keep the name of the next
        one. Raises DirectoryError if a durable record is missing. A start calls it once, before it writes.
        """
        bases = sorted(_segments(self._fs, log_directory))
        if bases and bases[0] > start:
            raise DirectoryError(
                f"{log_directory} is damaged: it begins at offset {bases[0]}, but its last whole snapshot ends at "
                f"{start}. Restore its .checkpoint file from a copy, or {REBUILD}"
            )
        end, reason = _end_of(self._fs, log_directory, bases, start)
        durable = self.read()
        if end < durable:
            raise DirectoryError(
                f"{log_directory} is damaged at offset {end} ({reason}), and all up to offset {durable} was in use. "
                f"Restore it from a copy, or {REBUILD}"
            )
        self._move_here(durable)
        return end


def _content(offset: int) -> bytes:
    return format_checkpoint([f"{TOPIC_PARTITION.topic} {TOPIC_PARTITION.partition} {offset}"])


def _segments(fs: FileSystem, directory: str) -> list[int]:
    names = [entry.name for entry in fs.listdir(directory) if entry.name.endswith(LOG_SUFFIX)]
    return [offset for offset in map(offset_of_file, names) if offset is not None]


def _end_of(fs: FileSystem, directory: str, bases: list[int], start: int) -> tuple[int, str]:
    """Return the offset up to which the batches are whole and consecutive, and the reason why they end there."""
    end, epoch = start, -1
    for base, after in zip_longest(bases, bases[1:]):
        if after is not None and after <= start:
            continue  # the snapshot covers this segment
        expected = base
        data = memoryview(fs.read_bytes(f"{directory}/{base:020d}{LOG_SUFFIX}"))
        try:
            for position, header in iter_headers(data):
                verify_crc(data, position, header)
                if header.base_offset != expected or header.partition_leader_epoch < epoch:
                    return max(end, expected), f"a batch has offset {header.base_offset}"
                expected, epoch = header.next_offset, header.partition_leader_epoch
        except MalformedMessageError as error:
            return max(end, expected), str(error)
        end = max(end, expected)
        if after is not None and expected != after:
            return end, "batches are missing"
    return end, "batches are missing"
