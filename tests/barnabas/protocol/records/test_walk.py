"""The two walks agree with full iteration on good batches and find what they promise on bad ones."""

from __future__ import annotations

import random

import pytest

from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    SimpleRecord,
    build_batch,
    iter_records,
    read_header,
    records_payload,
)
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.walk import count_records, validate_records, walk_records


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
def test_good_batches_pass(count: int) -> None:
    batch = made(count)
    header = read_header(batch)
    payload = records_payload(batch, 0, header)
    count_records(payload, count)
    summary = walk_records(payload, count)
    records = list(iter_records(batch))
    assert header.base_timestamp + summary.timestamp_delta_max == max(r.timestamp for r in records)
    assert header.base_timestamp + summary.timestamp_delta_min == min(r.timestamp for r in records)
    assert summary.offsets_are_contiguous
    assert summary.keyless == [i for i, r in enumerate(records) if r.key is None][:16]


@pytest.mark.parametrize("wrong", [-1, 0, 9, 11, 2**31 - 1])
def test_wrong_counts_are_found(wrong: int) -> None:
    payload = made(10)[HEADER_SIZE:]
    for walk in (count_records, walk_records):
        with pytest.raises(MalformedMessageError):
            walk(payload, wrong)


def test_a_cut_payload_is_found() -> None:
    payload = made(5, seed=3)[HEADER_SIZE:]
    for cut in range(0, len(payload), 7):
        for walk in (count_records, walk_records):
            with pytest.raises(MalformedMessageError):
                walk(payload[:cut], 5)


def test_the_full_walk_refuses_exactly_what_iteration_refuses() -> None:
    batch = build_batch([SimpleRecord(5, b"key", b"value", (("h", b"x"),)), SimpleRecord(6, None, b"y" * 70)])
    for index in range(HEADER_SIZE, len(batch)):
        for value in range(256):
            damaged = bytearray(batch)
            damaged[index] = value
            assert refused(lambda data=damaged: validate_records(data, read_header(data))) == refused(
                lambda data=damaged: list(iter_records(data))
            ), (index, value)


def refused(job) -> bool:
    try:
        job()
    except MalformedMessageError as error:
        return "utf-8" not in str(error)  # names of headers are text only to a consumer
    return False


def test_gaps_in_offsets_are_seen() -> None:
    batch = bytearray(build_batch([SimpleRecord(5, b"k", b"v")] * 2))
    second = HEADER_SIZE + (len(batch) - HEADER_SIZE) // 2
    batch[second + 3] = 2 << 1  # the second record's offset delta
    assert not validate_records(batch, read_header(batch)).offsets_are_contiguous


@pytest.mark.parametrize("kind", list(CompressionType))
def test_compressed_batches_are_walked(kind: CompressionType) -> None:
    batch = build_batch([SimpleRecord(5, None, b"v" * 100)] * 40, compression=kind)
    assert validate_records(batch, read_header(batch)).offsets_are_contiguous
