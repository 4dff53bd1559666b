"""Decodes records of internal topics for `barnabas dump-log`, and control records of any topic.

A record that cannot be decoded is shown raw, with the reason: people dump logs to find what is broken.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.broker.storage.directories.names import CHECKPOINT_SUFFIX, parse_dir_name
from barnabas.cli.text import shown
from barnabas.protocol.errors import MalformedMessageError, UnsupportedVersionError
from barnabas.protocol.records.batch import Record, parse_control_type, parse_end_txn_marker

if TYPE_CHECKING:
    from barnabas.protocol.metadata_records import MetadataRecord

Shown = tuple[str | None, str | None]  # key and value
Decode = Callable[[bytes | None, bytes | None], Shown]

_MODULES = {
    "__consumer_offsets": ("offsets", "consumer_groups", "share_groups", "streams_groups"),
    "__transaction_state": ("transactions",),
    "__share_group_state": ("share_state",),
}
_PACKAGE = "barnabas.protocol.coordinator_records"
_METADATA_TOPIC = "__cluster_metadata"
#: Fields of UserScramCredentialRecord with which a password can be guessed, or a login forged.
_SECRET_FIELDS = frozenset({"salt", "stored_key", "server_key"})


def decoder_for(segment: Path) -> Decode:
    """The decoder for the records of a segment, by the topic in its directory's name, or of a metadata snapshot."""
    tp = parse_dir_name(segment.absolute().parent.name)
    topic = "" if tp is None else tp.topic
    if topic == _METADATA_TOPIC or segment.suffix == CHECKPOINT_SUFFIX:
        return _metadata
    if topic in _MODULES:
        return functools.partial(_coordinator, _classes(topic))
    return _plain


def show_control(record: Record) -> Shown:
    """A control record by name; COMMIT and ABORT with the epoch of the coordinator that wrote them."""
    try:
        kind, marker = parse_control_type(record.key), parse_end_txn_marker(record)
    except MalformedMessageError as error:
        return f"{shown(record.key)} ({error})", shown(record.value)
    if kind is None:
        return _plain(record.key, record.value)
    return kind.name, shown(record.value) if marker is None else f"coordinator epoch {marker.coordinator_epoch}"


def _plain(key: bytes | None, value: bytes | None) -> Shown:
    return shown(key), shown(value)


def _metadata(key: bytes | None, value: bytes | None) -> Shown:
    from barnabas.protocol.metadata_records import decode_record

    return shown(key), _decoded(lambda data: repr(_without_secrets(decode_record(data))), value)


def _without_secrets(record: MetadataRecord) -> MetadataRecord:
    """A record of the metadata log with its secrets hidden, as Kafka's RecordRedactor has them."""
    from barnabas.config.secrets.sensitive import HIDDEN, is_sensitive
    from barnabas.protocol.metadata_records.configs import ConfigRecord

    if isinstance(record, ConfigRecord):
        if record.value is not None and is_sensitive(record.resource_type, record.name):
            record.value = HIDDEN
        return record
    for field in type(record).FIELDS:
        if field.name in _SECRET_FIELDS:
            setattr(record, field.name, HIDDEN)
    return record


def _coordinator(classes: dict[int, tuple[type, type]], key: bytes | None, value: bytes | None) -> Shown:
    from barnabas.protocol.coordinator_records.record import decode_versioned, read_prefix

    found = classes.get(read_prefix(key)) if key is not None and len(key) > 1 else None
    if found is None:
        return _plain(key, value)
    key_class, value_class = found
    return (
        _decoded(lambda data: repr(decode_versioned(key_class, data)), key),
        _decoded(lambda data: repr(decode_versioned(value_class, data)), value),
    )


def _decoded(decode: Callable[[bytes], str], data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return decode(data)
    except (MalformedMessageError, UnsupportedVersionError) as error:
        return f"{shown(data)} (cannot be decoded: {error})"


def _classes(topic: str) -> dict[int, tuple[type, type]]:
    """The classes of keys and values of a topic, by record type."""
    from barnabas.protocol.coordinator_records.record import CoordinatorKey, CoordinatorValue

    keys: dict[int, type] = {}
    values: dict[int, type] = {}
    for name in _MODULES[topic]:
        for made in vars(importlib.import_module(f"{_PACKAGE}.{name}")).values():
            if isinstance(made, type) and issubclass(made, CoordinatorKey) and made.RECORD_TYPE >= 0:
                keys[made.RECORD_TYPE] = made
            elif isinstance(made, type) and issubclass(made, CoordinatorValue) and made.RECORD_TYPE >= 0:
                values[made.RECORD_TYPE] = made
    return {number: (keys[number], values[number]) for number in keys}
