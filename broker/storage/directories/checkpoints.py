"""The small text files of a log directory, each replaced atomically.

Formats
- Offset checkpoints (`recovery-point-…`, `log-start-…`, `replication-offset-checkpoint`, `cleaner-offset-checkpoint`):
      0                   version
      2                   number of lines that follow
      flights 0 1041      topic, partition, offset
      flights 1 998
- `leader-epoch-checkpoint`, in a partition's directory: version 0, count, then `epoch start_offset` lines.
- `txn-index-checkpoint`, also there (ours): likewise, with `base_offset crc32c` lines (`txn_checksums.py`).
- `partition.metadata`: `version: 0` and `topic_id: <22 characters>`.
- `meta.properties`: `version=1`, `cluster.id`, `node.id`, `directory.id`.
- `.kafka_cleanshutdown`: a line of JSON, `{"version":0,"brokerEpoch":"7"}`, present only between a clean stop and the
  next start. Only its presence counts.

All but the last have a checksum (`checksums.py`). A file that does not match it raises CorruptCheckpointError; the
caller continues without the file, or refuses. A file without a checksum is accepted if it follows its format.

Source: Kafka's CheckpointFile, OffsetCheckpointFile, LeaderEpochCheckpointFile, PartitionMetadataFile, MetaProperties,
CleanShutdownFileHandler, 4.3.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

from barnabas.broker.storage.directories import checksums
from barnabas.broker.storage.directories.names import OFFSET_MAX, PARTITION_MAX, shared
from barnabas.common.disk.files import FileSystem
from barnabas.common.ids import ZERO_UUID, uuid_from_string, uuid_to_string
from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.storage")

CHECKPOINT_VERSION = 0
META_PROPERTIES_VERSION = 1
PARTITION_METADATA_VERSION = 0
CLEAN_SHUTDOWN_VERSION = 0
UNKNOWN_BROKER_EPOCH = -1
EPOCH_MAX = 2**31 - 1


class CorruptCheckpointError(OSError):
    """A checkpoint file that does not follow its format or does not match its checksum."""


def format_checkpoint(lines: Iterable[str]) -> bytes:
    """Return the bytes of a checkpoint: version, count, lines, checksum."""
    listed = list(lines)
    text = "".join(f"{line}\n" for line in (str(CHECKPOINT_VERSION), str(len(listed)), *listed)).encode("utf-8")
    return checksums.add_to_entries(text) if listed else text


def parse_checkpoint(data: bytes, path: str) -> list[list[str]]:
    """Return the fields of each line; raises CorruptCheckpointError."""
    try:
        lines = _without_checksum(checksums.strip_from_entries, data, path).decode("utf-8").split("\n")
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError) as error:
        raise CorruptCheckpointError(f"{path} is malformed: {error}") from None
    if version != CHECKPOINT_VERSION:
        raise CorruptCheckpointError(f"{path} has version {version}, expected {CHECKPOINT_VERSION}")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(rows) != count:
        raise CorruptCheckpointError(f"{path} declares {count} entries and has {len(rows)}")
    return rows


def _without_checksum(strip: Callable[[bytes], bytes], data: bytes, path: str) -> bytes:
    try:
        return strip(data)
    except checksums.ChecksumError as error:
        raise CorruptCheckpointError(f"{path} is damaged: {error}") from None


class OffsetCheckpoint:
    """A map from partition to offset in a file; one per log directory and purpose."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path  # fixed before start
        self._fs = fs
        self._lock = threading.Lock()  # serialises writers
        self._written: dict[TopicPartition, int] | None = None  # guarded by: _lock

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; empty if there is no file. Raises CorruptCheckpointError."""
        if not self._fs.exists(self.path):
            return {}
        offsets: dict[TopicPartition, int] = {}
        for row in parse_checkpoint(self._fs.read_bytes(self.path), self.path):
            try:
                topic, partition, offset = row
                tp = TopicPartition(shared(topic), _number(partition, PARTITION_MAX))
                offsets[tp] = _number(offset, OFFSET_MAX)
            except ValueError:
                raise CorruptCheckpointError(f"{self.path} is malformed at {' '.join(row)!r}") from None
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the content; writes nothing if nothing changed."""
        with self._lock:
            if self._written == offsets:
                return
            lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items()]
            self._fs.atomic_write(self.path, format_checkpoint(lines))
            self._written = dict(offsets)


class MirroredCheckpoint(OffsetCheckpoint):
    """An offset checkpoint with a copy, for offsets that cannot be found elsewhere.

    Both files are written whenever the offsets change; without offsets there is no copy. The copy is read only if the
    first file is damaged. If that is whole, or missing, the copy may be older: Apache Kafka does not write it.
    """

    def __init__(self, fs: FileSystem, path: str, copy_path: str) -> None:
        super().__init__(fs, path)
        self._copy = OffsetCheckpoint(fs, copy_path)

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; raises CorruptCheckpointError if both files are damaged, or the only one."""
        try:
            return super().read()
        except CorruptCheckpointError as error:
            if not self._fs.exists(self._copy.path):
                raise
            log.warning("%s; reading %s instead", error, self._copy.path)
            return self._copy.read()

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace the content of both files."""
        super().write(offsets)
        if offsets or self._fs.exists(self._copy.path):
            self._copy.write(offsets)


def _number(text: str, highest: int) -> int:
    """Parse a number from 0 to `highest`; raises ValueError."""
    value = int(text)
    if not 0 <= value <= highest:
        raise ValueError(f"{value} is not between 0 and {highest}")
    return value


def read_epochs(fs: FileSystem, path: str) -> list[tuple[int, int]]:
    """Return the (epoch, start offset) pairs of a leader epoch checkpoint; both ascend.

    Raises CorruptCheckpointError.
    """
    if not fs.exists(path):
        return []
    pairs: list[tuple[int, int]] = []
    for row in parse_checkpoint(fs.read_bytes(path), path):
        try:
            epoch, start_offset = row
            pairs.append((_number(epoch, EPOCH_MAX), _number(start_offset, OFFSET_MAX)))
        except ValueError:
            raise CorruptCheckpointError(f"{path} is malformed at {' '.join(row)!r}") from None
    if any(epoch >= next_epoch or start >= next_start for (epoch, start), (next_epoch, next_start) in pairwise(pairs)):
        raise CorruptCheckpointError(f"{path} is malformed: its epochs do not ascend")
    return pairs


def read_txn_checksums(fs: FileSystem, path: str) -> dict[int, int]:
    """Return the CRC-32C of each transaction index, by base offset; raises CorruptCheckpointError."""
    if not fs.exists(path):
        return {}
    try:
        return {int(base_offset): int(crc) for base_offset, crc in parse_checkpoint(fs.read_bytes(path), path)}
    except ValueError as error:
        raise CorruptCheckpointError(f"{path} is malformed: {error}") from None


def write_txn_checksums(fs: FileSystem, path: str, checksums: Mapping[int, int]) -> None:
    """Replace the checksums of transaction indexes."""
    fs.atomic_write(path, format_checkpoint(f"{base_offset} {crc}" for base_offset, crc in checksums.items()))


def write_epochs(fs: FileSystem, path: str, pairs: Iterable[tuple[int, int]]) -> None:
    """Replace a leader epoch checkpoint."""
    fs.atomic_write(path, format_checkpoint(f"{epoch} {start_offset}" for epoch, start_offset in pairs))


def read_partition_metadata(fs: FileSystem, path: str) -> bytes | None:
    """Return the topic id in a `partition.metadata`; None if there is no file. Raises CorruptCheckpointError."""
    if not fs.exists(path):
        return None
    fields = _parse_pairs(_without_checksum(checksums.strip_from_metadata, fs.read_bytes(path), path), ":", path)
    try:
        version, topic_id = int(fields["version"]), uuid_from_string(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptCheckpointError(f"{path} is malformed: {error}") from None
    if version != PARTITION_METADATA_VERSION:
        raise CorruptCheckpointError(f"{path} has version {version}, expected {PARTITION_METADATA_VERSION}")
    if topic_id == ZERO_UUID:
        raise CorruptCheckpointError(f"{path} holds no topic id")
    return topic_id


def write_partition_metadata(fs: FileSystem, path: str, topic_id: bytes) -> None:
    """Write a topic's id into its partition's directory, without an fsync."""
    fs.write_bytes(path, format_partition_metadata(topic_id), sync=False)


def format_partition_metadata(topic_id: bytes) -> bytes:
    """Return the bytes of a `partition.metadata`, with its checksum."""
    text = f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {uuid_to_string(topic_id)}\n"
    return checksums.add_to_metadata(text.encode("ascii"))


def confirms_topic_id(data: bytes, topic_id: bytes) -> bool:
    """Return whether the remains of a damaged `partition.metadata` show that it was this topic's.

    A power cut leaves the beginning of a new file, and zeros. Of any other file the id or the checksum must be left.
    """
    whole = format_partition_metadata(topic_id)
    id_line, checksum_line = whole.splitlines()[1:]
    return whole.startswith(data.rstrip(b"\0")) or id_line in data or checksum_line in data


def read_meta_properties(fs: FileSystem, path: str) -> dict[str, str] | None:
    """Return the pairs of a `meta.properties`; None if there is no file. Raises CorruptCheckpointError."""
    if not fs.exists(path):
        return None
    properties = _parse_pairs(_without_checksum(checksums.strip_from_properties, fs.read_bytes(path), path), "=", path)
    version = properties.get("version")
    if version not in ("0", "1"):
        raise CorruptCheckpointError(f"{path} has an unknown version {version}")
    for name in ("cluster.id", "node.id"):
        if version == "1" and name not in properties:
            raise CorruptCheckpointError(f"{path} is malformed: it has no {name}")
    return properties


def write_meta_properties(fs: FileSystem, path: str, *, cluster_id: str, node_id: int, directory_id: str) -> None:
    """Write which cluster and node own the directory."""
    lines = [
        f"cluster.id={cluster_id}",
        f"directory.id={directory_id}",
        f"node.id={node_id}",
        f"version={META_PROPERTIES_VERSION}",
    ]
    fs.atomic_write(path, checksums.add_to_properties("".join(f"{line}\n" for line in lines).encode("ascii")))


def _parse_pairs(data: bytes, separator: str, path: str) -> dict[str, str]:
    pairs = {}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(f"{path} is malformed: {error}") from None
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, found, value = line.partition(separator)
        if not found or not line.isprintable():
            raise CorruptCheckpointError(f"{path} is malformed at {line!r}")
        pairs[name.strip()] = value.strip().replace("\\", "")
    return pairs


def write_clean_shutdown(fs: FileSystem, path: str, broker_epoch: int) -> None:
    """Write the marker of a clean stop."""
    content = {"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": str(broker_epoch)}
    fs.atomic_write(path, json.dumps(content, separators=(",", ":")).encode("ascii"))


def read_clean_shutdown(fs: FileSystem, path: str) -> int | None:
    """Return the broker epoch at the last clean stop (-1 if unknown); None if the last stop was not clean."""
    if not fs.exists(path):
        return None
    try:
        content = json.loads(fs.read_bytes(path))
        return int(content["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return UNKNOWN_BROKER_EPOCH
