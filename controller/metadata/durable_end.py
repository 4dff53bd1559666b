"""DurableEnd: the offset up to which the metadata log was durable. A start needs it to tell a torn tail from damage.

A torn tail was never acknowledged and is truncated. Any other loss would drop topics, and the brokers would set their
logs aside as strays. So the start fails unless every record that was once durable is there, whole and in order.

Format: `recovery-point-offset-checkpoint` in the controller's directory: Kafka's name and format, with our checksum. It
is written after every commit without an fsync, so it never names more than is durable. After a power cut it may be old
or torn; a torn file counts as absent.

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

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs  # fixed before start
        self._path = f"{directory}/{RECOVERY_POINT_FILE}"  # fixed before start

    def read(self) -> int:
        """Return the offset in the file; 0 if there is none."""
        try:
            return OffsetCheckpoint(self._fs, self._path).read().get(TOPIC_PARTITION, 0)
        except CorruptCheckpointError:
            return 0

    def write(self, offset: int) -> None:
        """Note that everything below `offset` has been flushed."""
        line = f"{TOPIC_PARTITION.topic} {TOPIC_PARTITION.partition} {offset}"
        self._fs.write_bytes(self._path, format_checkpoint([line]), sync=False)

    def check(self, log_directory: str, start: int) -> None:
        """Read the log from `start`, the end of the snapshot; raises DirectoryError if a durable record is missing."""
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
