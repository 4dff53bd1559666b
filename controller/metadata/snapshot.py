"""Snapshots: the whole image as records in one file, so that the log before it can be deleted.

Format (Kafka's): `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint` beside the segments. It holds record batches,
with offsets from 0: a control batch with a SnapshotHeader, batches of metadata records, and a control batch with a
SnapshotFooter. The end offset is exclusive: the replay continues with the log at that offset.

Rules
1. A snapshot is written whole (temporary file, fsync, rename) before any part of the log is deleted.
2. A file without its footer is incomplete and is ignored. The snapshot before it still exists.

Threads: main reads one at start; the event thread writes them.

Source: RecordsSnapshotWriter, SnapshotPath, Snapshots (Kafka 4.3); KIP-630.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from barnabas.broker.storage.directories.names import CHECKPOINT_SUFFIX, LOG_SUFFIX
from barnabas.common.disk.files import FileSystem
from barnabas.controller.image import Broker, Image
from barnabas.controller.image_editor import ImageEditor
from barnabas.controller.metadata.metadata_directory import REBUILD, DirectoryError
from barnabas.controller.metadata.record_batches import checked_batches, decode_values
from barnabas.protocol.data.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_record,
)
from barnabas.protocol.records.batch import (
    ControlType,
    Record,
    SimpleRecord,
    build_batch,
    control_key,
    iter_records,
    parse_control_type,
)

RECORDS_PER_BATCH: Final = 1_000
_NAME: Final = re.compile(r"(\d{20})-(\d{10})" + re.escape(CHECKPOINT_SUFFIX))


class SnapshotWriteError(OSError):
    """The disk refused a snapshot. Nothing is lost: no part of the log has been deleted for it (rule 1)."""


class SnapshotId(NamedTuple):
    """The extent of a snapshot: everything below `end_offset`; `epoch` is that of the last batch."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """The name of the snapshot's file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{CHECKPOINT_SUFFIX}"


def write_snapshot(
    fs: FileSystem,
    directory: str,
    snapshot: SnapshotId,
    records: Iterable[MetadataRecord],
    now_ms: int,
    control: Sequence[SimpleRecord] = (),
) -> int:
    """Write a snapshot that holds these records, and `control` after its header; return its size in bytes.

    It survives a power cut on return. Its name may be gone already: another thread may replace it by a newer one.
    Raises SnapshotWriteError.
    """
    content = encode_snapshot(snapshot.epoch, records, now_ms, control)
    path = f"{directory}/{snapshot.file_name}"
    try:
        fs.atomic_write(path, content)
    except OSError as error:
        raise SnapshotWriteError(f"{path} could not be written: {error.strerror or error}") from error
    return len(content)


def encode_snapshot(
    epoch: int, records: Iterable[MetadataRecord], now_ms: int, control: Sequence[SimpleRecord] = ()
) -> bytes:
    """Return the content of a snapshot that holds these records, and `control` after its header."""
    offset, parts = 0, []
    for chunk, is_control in _batches(iter(records), now_ms, control):
        parts.append(build_batch(chunk, base_offset=offset, leader_epoch=epoch, is_control=is_control))
        offset += len(chunk)
    return b"".join(parts)


def newest_snapshot(fs: FileSystem, directory: str) -> tuple[SnapshotId, Image] | None:
    """Return the newest complete snapshot of a directory and its image, or None.

    Raises DirectoryError if a record cannot be read although its checksum is right.
    """
    for snapshot in sorted(list_snapshots(fs, directory), reverse=True):
        path = f"{directory}/{snapshot.file_name}"
        image = _read(path, fs.read_bytes(path), snapshot)
        if image is not None:
            return snapshot, image
    return None


def list_snapshots(fs: FileSystem, directory: str) -> list[SnapshotId]:
    """Return the snapshots of a directory, complete or not, in the order of the file names."""
    names = (_NAME.fullmatch(entry.name) for entry in fs.listdir(directory))
    return [SnapshotId(int(match[1]), int(match[2])) for match in names if match is not None]


def _batches(
    records: Iterator[MetadataRecord], now_ms: int, control: Sequence[SimpleRecord]
) -> Iterator[tuple[Sequence[SimpleRecord], bool]]:
    header = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=now_ms)
    yield [SimpleRecord(now_ms, control_key(ControlType.SNAPSHOT_HEADER), header.encode(0)), *control], True
    while chunk := list(islice(records, RECORDS_PER_BATCH)):
        yield [SimpleRecord(now_ms, None, encode_record(record)) for record in chunk], False
    footer = SnapshotFooterRecord(version=0)
    yield [SimpleRecord(now_ms, control_key(ControlType.SNAPSHOT_FOOTER), footer.encode(0))], True


def check_log_begins(fs: FileSystem, directory: str, snapshot: SnapshotId) -> None:
    """Raise DirectoryError unless there is a log, which is needed because this snapshot cannot be read."""
    if not any(entry.name.endswith(LOG_SUFFIX) for entry in fs.listdir(directory)):
        raise DirectoryError(
            f"{directory}/{snapshot.file_name} is damaged, and there is no log: restore it from a copy, or {REBUILD}"
        )


def unreadable(path: str, offset: int, error: Exception) -> str:
    """Return the error text for a record that cannot be read although its checksum is right."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return (
        f"{path} cannot be understood at offset {offset} ({reason}): was it written by another version? Start that "
        "version, or restore the directory from a copy"
    )


def _read(path: str, data: bytes, snapshot: SnapshotId) -> Image | None:
    """Return the image in a snapshot file; None if the file is incomplete or damaged. Raises DirectoryError."""
    editor = ImageEditor(Image())
    is_complete = False
    try:
        for header, batch in checked_batches(data):
            if header.is_control:
                is_complete = is_footer(batch)
            else:
                _apply(editor, path, header.base_offset, list(iter_records(batch)))
                editor.forget_changes()
    except MalformedMessageError:
        return None
    return editor.image(snapshot.end_offset - 1) if is_complete else None


def _apply(editor: ImageEditor, path: str, base_offset: int, records: Sequence[Record]) -> None:
    try:
        editor.apply_all(decode_values(records), base_offset)
    except Exception as error:  # Why all: no record may end the controller without a clear error line
        raise DirectoryError(unreadable(path, base_offset, error)) from error


def is_footer(batch: memoryview) -> bool:
    """Return whether a control batch is the end of a snapshot."""
    return any(parse_control_type(record.key) is ControlType.SNAPSHOT_FOOTER for record in iter_records(batch))


def image_records(image: Image) -> Iterator[MetadataRecord]:
    """Yield the records that turn an empty image into this one."""
    for name, level in image.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield _registration(broker, may_cordon=image.can_cordon)
    for controller in image.controllers.values():
        yield controller.to_record()
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.id)
        for index, partition in topic.partitions.items():
            yield partition.to_record(topic.id, index)
    for resource, entries in image.configs.items():
        for key, value in entries.items():
            yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=key, value=value)
    yield from image.security.records()
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for answered in image.answers:
        yield answered.record()


def _registration(broker: Broker, *, may_cordon: bool) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
            for e in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=list(broker.cordoned_log_dirs) if may_cordon else None,
    )
