"""Our tagged fields: what is written is read, what is damaged is refused, the secret is not shown."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.messages.k05_stop_replica import StopReplicaRequest
from barnabas.protocol.metadata_records import ConfigRecord, RemoveTopicRecord
from barnabas.protocol.push_tags import (
    TAG_OBEYED_OFFSET,
    TAG_OFFSET,
    TAG_RECEIVER,
    TAG_RECORDS,
    Receiver,
    offset_of,
    receiver_of,
    records_of,
    set_offset,
    set_receiver,
    set_records,
    set_tag,
)

RECEIVER = Receiver("h3zYrOmsQJqmHD2y0yjFEg", 3, b"0123456789abcdef")
RECORDS = [
    RemoveTopicRecord(topic_id=b"t" * 16),
    ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None),
]


def sent(message: StopReplicaRequest) -> StopReplicaRequest:
    """The message as it arrives."""
    return StopReplicaRequest.decoder(4)(memoryview(bytearray(message.encode(4))), 0)[0]


def test_what_is_written_is_read_in_any_order() -> None:
    message = StopReplicaRequest()
    set_receiver(message, RECEIVER)
    set_offset(message, 5)
    set_records(message, RECORDS)
    set_offset(message, 12)
    set_offset(message, -1, TAG_OBEYED_OFFSET)
    arrived = sent(message)
    assert (receiver_of(arrived), offset_of(arrived), offset_of(arrived, TAG_OBEYED_OFFSET)) == (RECEIVER, 12, -1)
    assert records_of(arrived) == RECORDS


def test_what_is_not_there_is_none() -> None:
    message = StopReplicaRequest()
    set_records(message, [])
    assert (receiver_of(message), offset_of(message), records_of(message)) == (None, None, [])
    assert message.unknown_tagged_fields == ()


@pytest.mark.parametrize(
    ("tag", "raw", "read"),
    [
        (TAG_OFFSET, b"\0" * 7, offset_of),
        (TAG_RECEIVER, b"\0" * 19, receiver_of),
        (TAG_RECEIVER, b"\0" * 20 + b"\xff", receiver_of),
        (TAG_RECORDS, b"\x05\x01", records_of),
        (TAG_RECORDS, b"\x80", records_of),
        (TAG_RECORDS, b"\x01\x01", records_of),
        (TAG_RECORDS, b"\x00", records_of),
    ],
)
def test_what_is_damaged_is_refused(tag, raw, read) -> None:
    message = StopReplicaRequest()
    set_tag(message, tag, raw)
    with pytest.raises(MalformedMessageError):
        read(message)


def test_the_incarnation_is_not_shown() -> None:
    assert "0123" not in f"{RECEIVER!r} {RECEIVER}"
