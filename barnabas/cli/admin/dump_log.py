"""`barnabas dump-log`: prints the content of the files in a log directory, without a JVM."""

from __future__ import annotations

import itertools
import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click

from barnabas.broker.storage.directories import names
from barnabas.broker.storage.directories.checkpoints import (
    OffsetCheckpoint,
    read_epochs,
    read_meta_properties,
    read_partition_metadata,
    read_txn_checksums,
)
from barnabas.broker.storage.producers.snapshots import CorruptSnapshotError, read_snapshot
from barnabas.broker.storage.segments.index import CorruptIndexError
from barnabas.broker.storage.segments.txn_index import TransactionIndex
from barnabas.cli.admin.internal_records import decoder_for, show_control
from barnabas.cli.errors import UserError
from barnabas.cli.output import Row, json_option, show, show_json
from barnabas.cli.text import shown, time_shown
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.ids import uuid_to_string
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import iter_headers, iter_records, read_stored_header, verify_crc
from barnabas.protocol.records.stored_messages import iter_batches

OFFSET_ENTRY = struct.Struct(">ii")  # offset relative to the segment's base offset, position
TIME_ENTRY = struct.Struct(">qi")  # timestamp, offset relative to the base offset
BATCH_COLUMNS = (
    "base_offset",
    "last_offset",
    "count",
    "base_sequence",
    "producer_id",
    "producer_epoch",
    "leader_epoch",
    "transactional",
    "control",
    "position",
    "timestamp",
    "time",
    "size",
    "compression",
    "crc",
)
PRODUCER_COLUMNS = (
    "producer_id",
    "epoch",
    "coordinator_epoch",
    "transaction_start",
    "last_timestamp",
    "last_sequence",
    "last_offset",
    "last_time",
)
SECOND_SUFFIXES = (names.DELETED_SUFFIX, names.CLEANED_SUFFIX, names.SWAP_SUFFIX)


class Reader(NamedTuple):
    """How one kind of file is printed."""

    columns: tuple[str, ...]
    rows: Callable[[Path], Iterator[Row]]


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--records", is_flag=True, help="Print the records in the batches, not the batches.")
@json_option
def dump_log(paths: tuple[Path, ...], records: bool, as_json: bool) -> None:
    """Print files of a log directory and check every CRC. For a directory: all segments in and below it.

    Records of __consumer_offsets, __transaction_state and __cluster_metadata are decoded, and so are markers.

    The files are segments (.log), indexes (.index, .timeindex, .txnindex), producer snapshots (.snapshot), snapshots of
    the metadata (.checkpoint), checkpoints of offsets, leader epochs and checksums, partition.metadata and
    meta.properties.
    """
    files = [file for path in paths for file in _files(path)]
    readers = [(file, _reader(file, records)) for file in files]
    if as_json:
        show_json(itertools.chain.from_iterable(_checked(file, reader, named=True) for file, reader in readers))
        return
    for file, reader in readers:
        if len(files) > 1:
            click.echo(f"{file}:")
        show(_checked(file, reader), reader.columns, as_json=False)


def _files(path: Path) -> list[Path]:
    """The file itself, or the segments in and below a directory, grouped by partition."""
    if not path.is_dir():
        return [path]
    found = sorted(path.rglob(f"*{names.LOG_SUFFIX}"), key=lambda file: (str(file.parent), file.name))
    segments = [file for file in found if names.offset_of_file(file.name) is not None]
    if not segments:
        raise UserError(f"{path}: there is no segment ({names.LOG_SUFFIX}) in or below it")
    return segments


def _checked(file: Path, reader: Reader, *, named: bool = False) -> Iterator[Row]:
    """The rows of a file. Raises UserError if it is corrupt."""
    try:
        for row in reader.rows(file):
            yield {"file": str(file), **row} if named else row
    except (MalformedMessageError, CorruptSnapshotError, CorruptIndexError) as error:
        raise UserError(f"{file}: {error}") from error
    except OSError as error:
        if error.filename is not None:
            raise
        raise UserError(str(error)) from error  # a corrupt checkpoint or index: the message names the file


def _reader(file: Path, records: bool) -> Reader:
    name = file.name
    for second in SECOND_SUFFIXES:
        name = name.removesuffix(second)
    is_metadata = name.endswith(names.CHECKPOINT_SUFFIX)
    reader = _BATCHES if is_metadata else _READERS_BY_NAME.get(name) or _READERS_BY_SUFFIX.get(Path(name).suffix)
    if reader is None:
        known = ", ".join((*_READERS_BY_SUFFIX, names.CHECKPOINT_SUFFIX, *_READERS_BY_NAME))
        raise UserError(f"{file}: not a file of a log directory; those are {known}")
    if reader is _BATCHES and records:
        return _RECORDS
    if Path(name).suffix in _READERS_BY_SUFFIX and names.offset_of_file(name) is None:
        raise UserError(f"{file}: its name does not begin with an offset")
    return reader


def _content(file: Path) -> bytes | mmap.mmap:
    """The bytes of the file, mapped, since a segment may be larger than memory."""
    if file.stat().st_size == 0:
        return b""
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def _batches(file: Path) -> Iterator[Row]:
    content = memoryview(_content(file))
    for position, header in iter_headers(content, read_stored_header):
        verify_crc(content, position, header)
        yield {
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.record_count,
            "base_sequence": header.base_sequence,
            "producer_id": header.producer_id,
            "producer_epoch": header.producer_epoch,
            "leader_epoch": header.partition_leader_epoch,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "position": position,
            "timestamp": header.max_timestamp,
            "time": time_shown(header.max_timestamp),
            "size": header.size_in_bytes,
            "compression": header.compression_type.name.lower(),
            "crc": header.crc,
        }


def _records(file: Path) -> Iterator[Row]:
    content = memoryview(_content(file))
    decode = decoder_for(file)
    for header, batch in iter_batches(content):
        verify_crc(batch, 0, header)
        for record in iter_records(batch):
            key, value = show_control(record) if header.is_control else decode(record.key, record.value)
            yield {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "time": time_shown(record.timestamp),
                "key": key,
                "value": value,
                "headers": [f"{shown(name)}={shown(value)}" for name, value in record.headers],
            }


def _offset_index(file: Path) -> Iterator[Row]:
    base_offset = _base_offset(file)
    for relative, position in _entries(file, OFFSET_ENTRY):
        if relative or position:  # an untrimmed index ends in zeros
            yield {"offset": base_offset + relative, "position": position}


def _time_index(file: Path) -> Iterator[Row]:
    base_offset = _base_offset(file)
    for timestamp, relative in _entries(file, TIME_ENTRY):
        if timestamp or relative:
            yield {"timestamp": timestamp, "offset": base_offset + relative, "time": time_shown(timestamp)}


def _entries(file: Path, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
    content = file.read_bytes()
    return entry.iter_unpack(content[: len(content) - len(content) % entry.size])


def _base_offset(file: Path) -> int:
    offset = names.offset_of_file(file.name)
    assert offset is not None  # _reader has checked it
    return offset


def _aborted_transactions(file: Path) -> Iterator[Row]:
    index = TransactionIndex(OsFileSystem(), str(file), _base_offset(file))
    index.sanity_check()
    return (entry._asdict() for entry in index.entries())


def _producers(file: Path) -> Iterator[Row]:
    for entry in read_snapshot(file.read_bytes()):
        values: tuple[Any, ...] = (
            entry.producer_id,
            entry.epoch,
            entry.coordinator_epoch,
            entry.txn_first_offset,
            entry.last_timestamp,
            entry.last_sequence,
            entry.last_offset,
            time_shown(entry.last_timestamp),
        )
        yield dict(zip(PRODUCER_COLUMNS, values, strict=True))


def _offsets(file: Path) -> Iterator[Row]:
    for tp, offset in OffsetCheckpoint(OsFileSystem(), str(file)).read().items():
        yield {"topic": tp.topic, "partition": tp.partition, "offset": offset}


def _epochs(file: Path) -> Iterator[Row]:
    for epoch, start_offset in read_epochs(OsFileSystem(), str(file)):
        yield {"epoch": epoch, "start_offset": start_offset}


def _txn_checksums(file: Path) -> Iterator[Row]:
    for base_offset, checksum in read_txn_checksums(OsFileSystem(), str(file)).items():
        yield {"base_offset": base_offset, "crc": checksum}


def _topic_id(file: Path) -> Iterator[Row]:
    topic_id = read_partition_metadata(OsFileSystem(), str(file))
    if topic_id is not None:
        yield {"topic_id": uuid_to_string(topic_id)}


def _meta_properties(file: Path) -> Iterator[Row]:
    for key, value in (read_meta_properties(OsFileSystem(), str(file)) or {}).items():
        yield {"key": key, "value": value}


_BATCHES = Reader(BATCH_COLUMNS, _batches)
_RECORDS = Reader(("offset", "timestamp", "time", "key", "value", "headers"), _records)
_OFFSETS = Reader(("topic", "partition", "offset"), _offsets)
_READERS_BY_SUFFIX = {
    names.LOG_SUFFIX: _BATCHES,
    names.INDEX_SUFFIX: Reader(("offset", "position"), _offset_index),
    names.TIME_INDEX_SUFFIX: Reader(("timestamp", "offset", "time"), _time_index),
    names.TXN_INDEX_SUFFIX: Reader(
        ("producer_id", "first_offset", "last_offset", "last_stable_offset"), _aborted_transactions
    ),
    names.SNAPSHOT_SUFFIX: Reader(PRODUCER_COLUMNS, _producers),
}
_READERS_BY_NAME = {
    names.RECOVERY_POINT_FILE: _OFFSETS,
    names.LOG_START_OFFSET_FILE: _OFFSETS,
    names.LOG_START_OFFSET_COPY: _OFFSETS,
    names.HIGH_WATERMARK_FILE: _OFFSETS,
    names.CLEANER_OFFSET_FILE: _OFFSETS,
    names.LEADER_EPOCH_FILE: Reader(("epoch", "start_offset"), _epochs),
    names.TXN_INDEX_FILE: Reader(("base_offset", "crc"), _txn_checksums),
    names.PARTITION_METADATA_FILE: Reader(("topic_id",), _topic_id),
    names.META_PROPERTIES_FILE: Reader(("key", "value"), _meta_properties),
}
