"""`barnabas dump-log`: what is in a log segment or an index, without a JVM."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from barnabas.cli.errors import UserError
from barnabas.cli.output import json_option, show
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import iter_headers, iter_records, verify_crc

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
    "size",
    "compression",
    "crc",
)


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--records", is_flag=True, help="The records inside the batches too.")
@json_option
def dump_log(files: tuple[Path, ...], records: bool, as_json: bool) -> None:
    """Print the batches of .log files and the entries of .index and .timeindex files, checking every CRC."""
    for file in files:
        reader, columns = _reader(file, records)
        try:
            rows = list(reader(file))
        except MalformedMessageError as error:
            raise UserError(f"{file}: {error}") from error
        show(rows, columns, as_json=as_json, title=str(file))


def _reader(file: Path, records: bool) -> tuple[Callable[[Path], Iterator[dict[str, Any]]], tuple[str, ...]]:
    match file.suffix:
        case ".log" if records:
            return _records, ("offset", "timestamp", "key", "value", "headers")
        case ".log":
            return _batches, BATCH_COLUMNS
        case ".index":
            return _offset_index, ("offset", "position")
        case ".timeindex":
            return _time_index, ("timestamp", "offset")
    raise UserError(f"{file}: a .log, .index or .timeindex file is expected")


def _content(file: Path) -> bytes | mmap.mmap:
    """The bytes of the file, mapped: a segment may be larger than memory."""
    if file.stat().st_size == 0:
        return b""
    with file.open("rb") as opened:
        return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)


def _batches(file: Path) -> Iterator[dict[str, Any]]:
    content = memoryview(_content(file))
    for position, header in iter_headers(content):
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
            "size": header.size_in_bytes,
            "compression": header.compression_type.name.lower(),
            "crc": header.crc,
        }


def _records(file: Path) -> Iterator[dict[str, Any]]:
    content = memoryview(_content(file))
    for position, header in iter_headers(content):
        verify_crc(content, position, header)
        for record in iter_records(content, position):
            yield {
                "offset": record.offset,
                "timestamp": record.timestamp,
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [f"{_text(name)}={_text(value)}" for name, value in record.headers],
            }


def _offset_index(file: Path) -> Iterator[dict[str, Any]]:
    base_offset = int(file.stem)
    for relative, position in _entries(file, OFFSET_ENTRY):
        if relative or position:  # an index that was not trimmed ends in zeros
            yield {"offset": base_offset + relative, "position": position}


def _time_index(file: Path) -> Iterator[dict[str, Any]]:
    base_offset = int(file.stem)
    for timestamp, relative in _entries(file, TIME_ENTRY):
        if timestamp or relative:
            yield {"timestamp": timestamp, "offset": base_offset + relative}


def _entries(file: Path, entry: struct.Struct) -> Iterator[tuple[int, ...]]:
    content = file.read_bytes()
    return entry.iter_unpack(content[: len(content) - len(content) % entry.size])


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", errors="backslashreplace") if isinstance(value, bytes) else value
