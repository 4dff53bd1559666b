"""The controller's extension of the push: two tagged fields on LeaderAndIsr and UpdateMetadata.

    10000   metadata records (unsigned varint length, then the record in its frame): ConfigRecord (value null = removed)
            and FeatureLevelRecord; applied before the body. In a FULL push they are all there are. In UpdateMetadata
            also RegisterBrokerRecords, of all registered brokers or of none; they belong to its body.
    10001   int64, big endian: offset of the metadata log (inclusive) up to which this push tells everything

A broker of Apache Kafka would skip them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    decode_record,
)
from barnabas.protocol.primitives import read_uvarint

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.protocol.schema import Message

TAG_RECORDS = 10000
TAG_OFFSET = 10001
TYPE_FULL = 2


def tagged_records(message: Message) -> list[Any] | None:
    """The records that a push carries; None if it carries none."""
    raw = _tag(message, TAG_RECORDS)
    if raw is None:
        return None
    records = []
    position = 0
    while position < len(raw):
        size, position = read_uvarint(raw, position)
        records.append(decode_record(raw[position : position + size]))
        position += size
    return records


def metadata_offset(message: Message) -> int | None:
    """Up to which offset the push tells everything."""
    raw = _tag(message, TAG_OFFSET)
    return None if raw is None else int.from_bytes(raw, "big", signed=True)


def apply_records(services: Services, message: Any) -> list[RegisterBrokerRecord]:
    """Apply the configs and features that a push carries; returns the registrations, none if it does not tell."""
    records = tagged_records(message)
    if records is None:
        return []
    registrations = [record for record in records if isinstance(record, RegisterBrokerRecord)]
    if len(registrations) == len(records):
        return registrations
    configs = [record for record in records if isinstance(record, ConfigRecord)]
    services.dynamic_config.apply_records(configs, is_full=message.type == TYPE_FULL)
    features = {r.name: r.feature_level for r in records if isinstance(r, FeatureLevelRecord)}
    if features:
        services.metadata_cache.note_features(features)
    return registrations


def _tag(message: Message, tag: int) -> bytes | None:
    return next((raw for number, raw in message.unknown_tagged_fields if number == tag), None)
