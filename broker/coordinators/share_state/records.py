"""Encodes and decodes the records of __share_group_state.

A share partition has a snapshot and updates after it. A snapshot holds the whole state, an update what changed.

Source: Kafka's ShareCoordinatorRecordHelpers, ShareCoordinatorRecordSerde (4.3).
"""

from __future__ import annotations

from typing import Final, TypeAlias

from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateBatch
from barnabas.protocol.coordinator_records import share_state as wire
from barnabas.protocol.coordinator_records.record import decode_versioned, encode_versioned, read_prefix
from barnabas.protocol.coordinator_records.share_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from barnabas.protocol.errors import MalformedMessageError

#: The value of a record; None removes the share partition (the key is a snapshot's then).
StateRecord: TypeAlias = ShareSnapshotValue | ShareUpdateValue | None

_Classes: TypeAlias = tuple[type[ShareSnapshotKey | ShareUpdateKey], type[ShareSnapshotValue | ShareUpdateValue]]
_CLASSES: Final[dict[int, _Classes]] = {
    ShareSnapshotKey.RECORD_TYPE: (ShareSnapshotKey, ShareSnapshotValue),
    ShareUpdateKey.RECORD_TYPE: (ShareUpdateKey, ShareUpdateValue),
}


def encode(key: SharePartitionKey, record: StateRecord) -> tuple[bytes, bytes | None]:
    """Encode a record to its key and value."""
    of_type = ShareUpdateKey if isinstance(record, ShareUpdateValue) else ShareSnapshotKey
    encoded = encode_versioned(of_type(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition))
    return encoded, None if record is None else encode_versioned(record)


def read(key_bytes: bytes, value_bytes: bytes | None) -> tuple[SharePartitionKey, StateRecord] | None:
    """Decode a record; None for a record of another type. Raises MalformedMessageError."""
    classes = _CLASSES.get(read_prefix(key_bytes))
    if classes is None:
        return None
    key_class, value_class = classes
    wire_key = decode_versioned(key_class, key_bytes)
    key = SharePartitionKey(wire_key.group_id, wire_key.topic_id, wire_key.partition)
    if value_bytes is None:
        return key, None
    value = decode_versioned(value_class, value_bytes)
    if any(batch.last_offset < batch.first_offset for batch in value.state_batches):
        raise MalformedMessageError(f"{key.coordinator_key!r} has a batch that ends before it begins")
    return key, value


def wire_batches(batches: tuple[StateBatch, ...]) -> list[wire.StateBatch]:
    """Return the batches as a record has them."""
    return [
        wire.StateBatch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.delivery_state,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]
