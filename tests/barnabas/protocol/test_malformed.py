"""Fuzzing: whatever arrives, a decoder returns a message or raises MalformedMessageError, and stays small doing so."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from barnabas.protocol import metadata_records
from barnabas.protocol.api_keys import ROWS
from barnabas.protocol.coordinator_records.offsets import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.coordinator_records.record import decode_versioned, encode_versioned
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.headers import decode_request_header, decode_response_header
from barnabas.protocol.messages.k03_metadata import MetadataRequest
from barnabas.protocol.schema import Message
from tests.support import messages as facts

CLASSES = facts.all_classes()
TRUNCATIONS_MAX = 150
MUTATIONS = 40
SPECIAL_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFF)


def decode_leniently(message_class: type[Message], data: bytes, version: int) -> Message | None:
    """Decode, allowing the one error; a decoded message must be whole enough to be shown and encoded."""
    try:
        message, end = message_class.decode_prefix(data, version)
    except MalformedMessageError:
        return None
    assert end <= len(data)
    return message


def mutate(rng: random.Random, wire: bytes) -> bytes:
    """Change some bytes, drop some, or put some in."""
    data = bytearray(wire)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(3)
        if kind == 0 and at < len(data):
            data[at] = rng.choice((*SPECIAL_BYTES, rng.randrange(256)))
        elif kind == 1:
            del data[at : at + rng.randint(1, 4)]
        else:
            data[at:at] = bytes(rng.choice(SPECIAL_BYTES) for _ in range(rng.randint(1, 5)))
    return bytes(data)


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_truncated(message_class: type[Message]) -> None:
    """A message without its last bytes is never whole."""
    for version in facts.versions(message_class):
        wire = facts.samples(message_class, version, 2)[-1].encode(version)
        step = max(1, len(wire) // TRUNCATIONS_MAX)
        for size in range(0, len(wire), step):
            with pytest.raises(MalformedMessageError):
                message_class.decode(wire[:size], version)


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_mutated(message_class: type[Message]) -> None:
    """What still decodes is a message: it encodes, and decodes to itself."""
    rng = random.Random(message_class.__name__)
    for version in facts.versions(message_class):
        wire = facts.samples(message_class, version, 1)[-1].encode(version)
        for _ in range(MUTATIONS):
            message = decode_leniently(message_class, mutate(rng, wire), version)
            if message is not None:
                assert message_class.decode(message.encode(version), version) is not None


@pytest.mark.parametrize("message_class", CLASSES, ids=lambda found: found.__name__)
def test_garbage(message_class: type[Message]) -> None:
    rng = random.Random(message_class.__name__)
    for version in facts.versions(message_class):
        for _ in range(10):
            decode_leniently(message_class, rng.randbytes(rng.randrange(80)), version)


@pytest.mark.parametrize("byte", SPECIAL_BYTES)
def test_one_byte_repeated(byte: int) -> None:
    for message_class in CLASSES:
        for version in facts.versions(message_class):
            decode_leniently(message_class, bytes([byte]) * 64, version)


def test_a_small_frame_cannot_take_much_memory() -> None:
    """Counts are checked against the bytes that are left before anything is built."""
    wire = b"\xff\xff\xff\xff\x07" + b"\x00" * 1000
    tracemalloc.start()
    try:
        with pytest.raises(MalformedMessageError):
            MetadataRequest.decode(wire, 12)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_headers() -> None:
    rng = random.Random(7)
    for _ in range(20_000):
        data = rng.randbytes(rng.randrange(24))
        if len(data) >= 2 and rng.random() < 0.8:
            data = rng.choice(list(ROWS)).to_bytes(2, "big") + data[2:]
        for decode in (decode_request_header, lambda data: decode_response_header(data, 3, 12)):
            try:
                _, position = decode(data)
            except MalformedMessageError:
                continue
            assert position <= len(data)


def test_records_of_the_logs() -> None:
    rng = random.Random(8)
    topic = metadata_records.encode_record(metadata_records.TopicRecord(name="topic", topic_id=bytes(16)))
    key = encode_versioned(OffsetCommitKey(group="g", topic="t"))
    for _ in range(5_000):
        for decode, wire in (
            (metadata_records.decode_record, topic),
            (lambda data: decode_versioned(OffsetCommitKey, data), key),
            (lambda data: decode_versioned(OffsetCommitValue, data), key),
        ):
            try:
                decode(mutate(rng, wire))
            except MalformedMessageError:
                continue
