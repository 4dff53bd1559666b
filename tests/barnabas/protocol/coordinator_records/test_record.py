from __future__ import annotations

import pytest

from barnabas.protocol.coordinator_records.offsets import GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.coordinator_records.record import (
    CoordinatorKey,
    CoordinatorValue,
    decode_versioned,
    encode_versioned,
    read_prefix,
)
from barnabas.protocol.errors import EncodeError, MalformedMessageError
from tests.support import messages as facts

CLASSES = [found for found in facts.other_classes() if issubclass(found, (CoordinatorKey, CoordinatorValue))]


def test_keys_are_prefixed_with_their_type() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    wire = b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert encode_versioned(key) == encode_versioned(key, 1) == wire
    assert read_prefix(wire) == OffsetCommitKey.RECORD_TYPE
    assert decode_versioned(OffsetCommitKey, wire) == key
    with pytest.raises(EncodeError, match="OffsetCommitKey is of type 1, not 2"):
        encode_versioned(key, 2)


def test_values_are_prefixed_with_their_version() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert encode_versioned(value, 3) == (
        b"\x00\x03\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x02\x00\x01m\x00\x00\x00\x00\x00\x00\x00\x09"
    )
    assert read_prefix(encode_versioned(value)) == OffsetCommitValue.MAX_VERSION
    assert decode_versioned(OffsetCommitValue, encode_versioned(value, 3)) == value


@pytest.mark.parametrize("record_class", CLASSES, ids=lambda found: found.__name__)
def test_every_record_and_version(record_class: type[CoordinatorKey] | type[CoordinatorValue]) -> None:
    for version in facts.versions(record_class):
        for record in facts.samples(record_class, version, 5):
            prefix = record_class.RECORD_TYPE if issubclass(record_class, CoordinatorKey) else version
            assert decode_versioned(record_class, encode_versioned(record, prefix)) == record


def test_types_are_unique_within_a_topic() -> None:
    for module in {found.__module__ for found in CLASSES}:
        keys = [found for found in CLASSES if found.__module__ == module and issubclass(found, CoordinatorKey)]
        assert len({found.RECORD_TYPE for found in keys}) == len(keys)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x63", b"\xff\xff\x00", b"\x00\x03\x00"])
def test_what_is_not_a_value(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_versioned(GroupMetadataValue, data)
