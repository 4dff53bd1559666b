"""The frame of metadata records, and every record in it.

Also covers `protocol/metadata_records/brokers.py`, `protocol/metadata_records/configs.py`,
`protocol/metadata_records/log_control.py`, `protocol/metadata_records/security.py` and
`protocol/metadata_records/topics.py`.
"""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.metadata_records import (
    MetadataRecord,
    PartitionRecord,
    TopicRecord,
    decode_record,
    encode_record,
)
from barnabas.protocol.metadata_records.record import record_classes
from tests.support import messages as facts

TOPIC = b"\x01\x02\x00\x02t0123456789abcdef\x00"


def test_the_frame() -> None:
    record = TopicRecord(name="t", topic_id=b"0123456789abcdef")
    assert encode_record(record) == TOPIC
    assert decode_record(memoryview(TOPIC)) == record


@pytest.mark.parametrize("record_class", record_classes().values(), ids=lambda found: found.__name__)
def test_every_record_and_version(record_class: type[MetadataRecord]) -> None:
    for version in facts.versions(record_class):
        for record in facts.samples(record_class, version, 5):
            assert decode_record(encode_record(record, version)) == record


def test_there_are_26_types() -> None:
    assert len(record_classes()) == 26


def test_without_a_version_the_newest_is_written() -> None:
    assert encode_record(PartitionRecord(directories=[bytes(16)]))[:3] == b"\x01\x03\x02"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "cut short"),
        (b"\x01\x02", "cut short"),
        (b"\x00" + TOPIC[1:], "frame version 0"),
        (b"\x01\x63\x00", "unknown type 99"),
        (b"\x01\x02\x09" + TOPIC[3:], "versions 0-0, not 9"),
        (TOPIC + b"x", "1 bytes follow the TopicRecord"),
        (TOPIC[:-1], "TopicRecord v0"),
    ],
)
def test_what_is_not_a_record(data: bytes, reason: str) -> None:
    with pytest.raises(MalformedMessageError, match=reason):
        decode_record(data)
