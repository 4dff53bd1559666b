"""Record batches as the raft core sees them: offsets, epoch and control records; the other bytes are opaque.

Source: KRaftControlRecordStateMachine (Kafka 4.3), KIP-853.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

from barnabas.protocol.data.control_records import KRaftVersionRecord, LeaderChangeMessage, VotersRecord
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    ControlType,
    SimpleRecord,
    build_batch,
    control_key,
    iter_headers,
    iter_records,
    parse_control_type,
    verify_crc,
)
from barnabas.protocol.records.compression import Buffer

ControlRecord: TypeAlias = LeaderChangeMessage | KRaftVersionRecord | VotersRecord

_TYPES: Final = {
    LeaderChangeMessage: ControlType.LEADER_CHANGE,
    KRaftVersionRecord: ControlType.KRAFT_VERSION,
    VotersRecord: ControlType.KRAFT_VOTERS,
}


class Batch(NamedTuple):
    """One record batch: its offsets (inclusive), its epoch, and what it holds."""

    base_offset: int
    last_offset: int
    epoch: int
    #: The control records that matter to the quorum; empty for a batch of data.
    control: tuple[ControlRecord, ...]
    #: The encoded batch; opaque to the core. None for control records that are not encoded yet.
    data: Any


def decode_batches(records: Buffer) -> list[Batch]:
    """Return the whole batches of a Fetch response; raises MalformedMessageError for damaged ones."""
    view = memoryview(records)
    found = []
    for position, header in iter_headers(view):
        verify_crc(view, position, header)
        data = view[position : position + header.size_in_bytes]
        control = control_records(data) if header.is_control else ()
        if header.last_offset_delta < 0:
            raise MalformedMessageError(f"a batch ends {-header.last_offset_delta} before its base offset")
        found.append(Batch(header.base_offset, header.last_offset, header.partition_leader_epoch, control, data))
    return found


def encode_control(batch: Batch, now_ms: int) -> bytes:
    """Return the bytes of a batch of control records."""
    records = [control_record(record, now_ms) for record in batch.control]
    return build_batch(records, base_offset=batch.base_offset, leader_epoch=batch.epoch, is_control=True)


def control_record(record: ControlRecord, now_ms: int) -> SimpleRecord:
    """Return a control record with its key."""
    version = record.version if isinstance(record, LeaderChangeMessage) else 0
    return SimpleRecord(now_ms, control_key(_TYPES[type(record)]), record.encode(version))


def control_records(data: memoryview) -> tuple[ControlRecord, ...]:
    """Return the control records of a control batch that matter to the quorum; raises MalformedMessageError."""
    found: list[ControlRecord] = []
    for record in iter_records(data):
        kind = parse_control_type(record.key)
        value = record.value
        if value is None:
            raise MalformedMessageError("a control record has no value")
        if kind is ControlType.LEADER_CHANGE:
            found.append(LeaderChangeMessage.decode(value, int.from_bytes(value[:2], "big")))
        elif kind is ControlType.KRAFT_VERSION:
            found.append(KRaftVersionRecord.decode(value, 0))
        elif kind is ControlType.KRAFT_VOTERS:
            found.append(VotersRecord.decode(value, 0))
    return tuple(found)
