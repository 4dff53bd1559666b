"""The walk agrees with full iteration on good batches and finds what it promises on bad ones.

`RUNS`: this source, interpreted, and, where it was compiled, the extension too: both must behave alike.
"""

from __future__ import annotations

import importlib.util
import random
import struct
from pathlib import Path
from types import ModuleType

import pytest

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records import walk as imported
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    SimpleRecord,
    build_batch,
    iter_records,
    read_header,
    records_payload,
)
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.varint import write_varint, write_varlong


def interpreted() -> ModuleType:
    """Load the module from its source, whether or not it was compiled."""
    source = Path(imported.__file__).with_name("walk.py")
    spec = importlib.util.spec_from_file_location("walk_interpreted", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RUNS = [interpreted()] if imported.__file__.endswith(".py") else [interpreted(), imported]


@pytest.fixture(params=RUNS, ids=lambda module: Path(module.__file__).suffix)
def walk(request: pytest.FixtureRequest) -> ModuleType:
    """Each build of the module."""
    return request.param


def made(count: int, seed: int = 1) -> bytes:
    chance = random.Random(seed)
    return build_batch(
        [
            SimpleRecord(
                1000 + chance.randint(-50, 300),
                chance.choice([None, b"", b"key", b"k" * 100]),
                chance.choice([None, b"", b"v" * chance.randint(0, 20_000)]),
                (("h", None), ("name", b"value" * 30))[: chance.randint(0, 2)],
            )
            for _ in range(count)
        ]
    )


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 300])
def test_good_batches_pass(walk: ModuleType, count: int) -> None:
    batch = made(count)
    header = read_header(batch)
    payload = bytes(records_payload(batch, 0, header))
    summary = walk.walk_records(payload, count)
    records = list(iter_records(batch))
    assert header.base_timestamp + summary.timestamp_delta_max == max(r.timestamp for r in records)
    assert header.base_timestamp + summary.timestamp_delta_min == min(r.timestamp for r in records)
    assert summary.offsets_are_contiguous
    assert summary.keyless == [i for i, r in enumerate(records) if r.key is None][:16]


def test_spans_are_where_the_fields_lie(walk: ModuleType) -> None:
    batch = made(100, seed=4)
    payload = batch[HEADER_SIZE:]
    spans = walk.record_spans(memoryview(payload), 100)
    records = list(iter_records(batch))
    assert spans[0][walk.START] == 0
    assert [s[walk.END] for s in spans] == [s[walk.START] for s in spans[1:]] + [len(payload)]
    for span, record in zip(spans, records, strict=True):
        assert span[walk.OFFSET_DELTA] == record.offset
        assert records[0].timestamp + span[walk.TIMESTAMP_DELTA] == record.timestamp
        for start, end, field in (
            (span[walk.KEY_START], span[walk.KEY_END], record.key),
            (span[walk.VALUE_START], span[walk.VALUE_END], record.value),
        ):
            assert (None if end < 0 else payload[start:end]) == field


@pytest.mark.parametrize("wrong", [-1, 0, 9, 11, 2**31 - 1])
def test_wrong_counts_are_found(walk: ModuleType, wrong: int) -> None:
    payload = made(10)[HEADER_SIZE:]
    for look in (walk.walk_records, walk.record_spans):
        with pytest.raises(MalformedMessageError):
            look(payload, wrong)


def test_a_cut_payload_is_found(walk: ModuleType) -> None:
    payload = made(5, seed=3)[HEADER_SIZE:]
    for cut in range(0, len(payload), 7):
        with pytest.raises(MalformedMessageError):
            walk.walk_records(payload[:cut], 5)


def test_the_walk_refuses_exactly_what_iteration_refuses(walk: ModuleType) -> None:
    batch = build_batch([SimpleRecord(5, b"key", b"value", (("h", b"x"),)), SimpleRecord(6, None, b"y" * 70)])
    for index in range(HEADER_SIZE, len(batch)):
        for value in range(256):
            damaged = bytearray(batch)
            damaged[index] = value
            payload = bytes(damaged[HEADER_SIZE:])
            expected = refused(lambda data=damaged: list(iter_records(data)))
            assert refused(lambda data=payload: walk.walk_records(data, 2)) == expected, (index, value)
            assert refused(lambda data=payload: walk.record_spans(data, 2)) == expected, (index, value)


def refused(job) -> bool:
    try:
        job()
    except MalformedMessageError:
        return True
    return False


@pytest.mark.parametrize("seed", range(20))
def test_random_damage(walk: ModuleType, seed: int) -> None:
    """Several bytes at once, cut and doubled: whatever the walk lets pass, iteration can read, to the same effect."""
    chance = random.Random(seed)
    for _ in range(200):
        count = chance.randint(1, 6)
        payload = bytearray(made_small(chance, count))
        for _ in range(chance.randint(1, 4)):
            damage(chance, payload)
        batch = resized(build_batch([SimpleRecord(5, b"", b"")]), bytes(payload), count)
        expected = None
        if not refused(lambda data=batch: list(iter_records(data))):
            expected = [(r.offset, r.timestamp, r.key, r.value) for r in iter_records(batch)]
        try:
            spans = walk.record_spans(bytes(payload), count)
            found = [
                (
                    span[walk.OFFSET_DELTA],
                    5 + span[walk.TIMESTAMP_DELTA],
                    None if span[walk.KEY_END] < 0 else bytes(payload[span[walk.KEY_START] : span[walk.KEY_END]]),
                    None if span[walk.VALUE_END] < 0 else bytes(payload[span[walk.VALUE_START] : span[walk.VALUE_END]]),
                )
                for span in spans
            ]
        except MalformedMessageError:
            found = None
        assert found == expected


def made_small(chance: random.Random, count: int) -> bytes:
    records = [
        SimpleRecord(5 + chance.randint(0, 200), chance.choice([None, b"k"]), chance.randbytes(chance.randint(0, 90)))
        for _ in range(count)
    ]
    return build_batch([SimpleRecord(5, b"", b""), *records][:count])[HEADER_SIZE:]


def damage(chance: random.Random, payload: bytearray) -> None:
    index = chance.randrange(len(payload)) if payload else 0
    match chance.randrange(4):
        case 0 if payload:
            payload[index] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        case 1:
            payload[index:index] = b"\xff" * chance.randint(1, 9)
        case 2:
            del payload[index : index + chance.randint(1, 3)]
        case _:
            payload += payload[index:]


def resized(batch: bytes, payload: bytes, count: int) -> bytes:
    """The header of `batch` before other records; its CRC is left wrong."""
    header = bytearray(batch[:HEADER_SIZE])
    struct.pack_into(">i", header, 8, HEADER_SIZE - 12 + len(payload))
    struct.pack_into(">i", header, 57, count)
    return bytes(header) + payload


@pytest.mark.parametrize("delta", [0, -1, 63, -64, 64, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63)])
def test_every_timestamp_delta_is_read(walk: ModuleType, delta: int) -> None:
    body = bytearray(1)
    write_varlong(body, delta)
    body += b"\x00\x01\x01\x00"
    payload = bytearray()
    write_varint(payload, len(body))
    assert walk.walk_records(bytes(payload + body), 1).timestamp_delta_max == delta


@pytest.mark.parametrize(
    "varlong", [b"\xff" * 9 + b"\x02", b"\xff" * 10, b"\x80" * 12 + b"\x00", b"\xff" * 9], ids=lambda raw: raw.hex()
)
def test_varints_beyond_their_type_are_refused(walk: ModuleType, varlong: bytes) -> None:
    body = b"\x00" + varlong + b"\x00\x01\x01\x00"
    payload = bytes([len(body) << 1]) + body
    with pytest.raises(MalformedMessageError):
        walk.walk_records(payload, 1)


def test_gaps_in_offsets_are_seen(walk: ModuleType) -> None:
    batch = bytearray(build_batch([SimpleRecord(5, b"k", b"v")] * 2))
    second = HEADER_SIZE + (len(batch) - HEADER_SIZE) // 2
    batch[second + 3] = 2 << 1  # the second record's offset delta
    assert not walk.walk_records(bytes(batch[HEADER_SIZE:]), 2).offsets_are_contiguous


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compressed_batches_are_walked(kind: CompressionType) -> None:
    batch = build_batch([SimpleRecord(5, None, b"v" * 100)] * 40, compression=kind)
    assert imported.validate_records(batch, read_header(batch)).offsets_are_contiguous


def test_names_of_headers_that_are_no_text_are_replaced() -> None:
    batch = bytearray(build_batch([SimpleRecord(5, None, b"", (("h", b"x"),))]))
    batch[batch.rindex(b"h")] = 0xFF
    assert [record.headers for record in iter_records(batch)] == [(("\ufffd", b"x"),)]
