"""How far the metadata log was durable, so that a start can tell a torn tail from damage.

A torn tail was never acknowledged and is cut. But whatever else is lost of the log takes topics with it, and the
brokers would take their logs for strays: so a start that does not find, whole and in order, what was once durable,
refuses.

Format: `recovery-point-offset-checkpoint` in the controller's directory, Kafka's name and format, sealed
(storage/seals.py). It is written after every commit, without an fsync of its own: it never says more than is durable,
and a power cut may leave it behind, or torn, which is then as if there were none.

Threads: the event thread (and main before it starts).
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Final

from barnabas.broker.storage.checkpoints import CorruptCheckpointError, OffsetCheckpoint, format_checkpoint
from barnabas.broker.storage.names import LOG_SUFFIX, RECOVERY_POINT_FILE, offset_of_file
from barnabas.common.files import FileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.controller.metadata_directory import REBUILD, DirectoryError
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import iter_headers, verify_crc

TOPIC_PARTITION: Final = TopicPartition("__cluster_metadata", 0)


class DurableEnd:
    """The offset below which the metadata log is known to have been durable."""

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs  # fixed before start
        self._path = f"{directory}/{RECOVERY_POINT_FILE}"  # fixed before start

    def read(self) -> int:
        """Return what the file says; 0 if that is nothing."""
        try:
            return OffsetCheckpoint(self._fs, self._path).read().get(TOPIC_PARTITION, 0)
        except CorruptCheckpointError:
            return 0

    def write(self, offset: int) -> None:
        """Note that everything below `offset` has been flushed."""
        line = f"{TOPIC_PARTITION.topic} {TOPIC_PARTITION.partition} {offset}"
        self._fs.write_bytes(self._path, format_checkpoint([line]), sync=False)

    def check(self, log_directory: str, start: int) -> None:
        """Read the log from `start`, where the snapshot ends; raises DirectoryError if it lacks what was durable."""
        bases = sorted(_segments(self._fs, log_directory))
        if bases and bases[0] > start:
            raise DirectoryError(
                f"{log_directory} is damaged: it begins at offset {bases[0]}, but its last whole snapshot ends at "
                f"{start}: restore its .checkpoint file from a copy, or {REBUILD}"
            )
        end, reason = _end_of(self._fs, log_directory, bases, start)
        durable = self.read()
        if end < durable:
            raise DirectoryError(
                f"{log_directory} is damaged at offset {end} ({reason}), and all up to offset {durable} was in use: "
                f"restore it from a copy, or {REBUILD}"
            )


def _segments(fs: FileSystem, directory: str) -> list[int]:
    names = [entry.name for entry in fs.listdir(directory) if entry.name.endswith(LOG_SUFFIX)]
    return [offset for offset in map(offset_of_file, names) if offset is not None]


def _end_of(fs: FileSystem, directory: str, bases: list[int], start: int) -> tuple[int, str]:
    """Return the offset up to which the batches are whole and follow each other, and what is wrong there."""
    end, epoch = start, -1
    for base, after in zip_longest(bases, bases[1:]):
        if after is not None and after <= start:
            continue  # the snapshot has it
        expected = base
        data = memoryview(fs.read_bytes(f"{directory}/{base:020d}{LOG_SUFFIX}"))
        try:
            for position, header in iter_headers(data):
                verify_crc(data, position, header)
                if header.base_offset != expected or header.partition_leader_epoch < epoch:
                    return max(end, expected), f"a batch says offset {header.base_offset}"
                expected, epoch = header.next_offset, header.partition_leader_epoch
        except MalformedMessageError as error:
            return max(end, expected), str(error)
        end = max(end, expected)
        if after is not None and expected != after:
            return end, "batches are missing"
    return end, "batches are missing"
