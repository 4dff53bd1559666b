"""The frame of a record in the metadata log.

Format of a record's value, as Kafka's: three unsigned varints (frame version, which is 1; record type; version), then
the record.

Source: KIP-631, Kafka's MetadataRecordSerde and AbstractApiMessageSerde (4.3.1).
"""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar

from barnabas.protocol.errors import MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.primitives import encode_uvarint, read_uvarint
from barnabas.protocol.schema import Message

FRAME_VERSION = 1

MODULES = ("brokers", "topics", "configs", "security", "log_control")


class MetadataRecord(Message):
    """A record of the metadata log; RECORD_TYPE is its type."""

    __slots__ = ()
    RECORD_TYPE: ClassVar[int] = -1


def encode_record(record: MetadataRecord, version: int | None = None) -> bytes:
    """Return a record in its frame, by default in its newest version."""
    if version is None:
        version = record.MAX_VERSION
    head = encode_uvarint(FRAME_VERSION) + encode_uvarint(record.RECORD_TYPE) + encode_uvarint(version)
    return head + record.encode(version)


def decode_record(data: bytes | memoryview) -> MetadataRecord:
    """Read a record from its frame; raises MalformedMessageError unless the bytes are exactly one record."""
    try:
        frame_version, position = read_uvarint(data, 0)
        record_type, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except IndexError:
        raise MalformedMessageError("metadata record is cut short in its frame") from None
    if frame_version != FRAME_VERSION:
        raise MalformedMessageError(f"metadata record has frame version {frame_version}")
    record_class = record_classes().get(record_type)
    if record_class is None:
        raise MalformedMessageError(f"metadata record has unknown type {record_type}")
    try:
        record, end = record_class.decode_prefix(data, version, position)
    except UnsupportedVersionError as error:
        raise MalformedMessageError(str(error)) from None
    if end != len(data):
        raise MalformedMessageError(f"{len(data) - end} bytes follow the {record_class.__name__}")
    return record


_classes: dict[int, type[MetadataRecord]] = {}  # replaced whole once, on first use


def record_classes() -> dict[int, type[MetadataRecord]]:
    """Return the class of each record type, imported on first use."""
    global _classes
    if not _classes:
        found: dict[int, type[MetadataRecord]] = {}
        for module in MODULES:
            for value in vars(import_module(f"barnabas.protocol.metadata_records.{module}")).values():
                if isinstance(value, type) and issubclass(value, MetadataRecord) and value is not MetadataRecord:
                    found[value.RECORD_TYPE] = value
        _classes = found
    return _classes
