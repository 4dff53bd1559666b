"""Dropping records: every subset of a batch, and timestamp deltas to a new base."""

from __future__ import annotations

import itertools

import pytest

from barnabas.broker.storage.cleaner.record_filter import rebased, retained_records
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import SimpleRecord, encode_record

DELTAS = (0, -70_000, 5, 2**40)
RECORDS = [
    encode_record(SimpleRecord(0, b"k" * (index * 40), None if index == 2 else b"v" * 50, [("h", None)]), delta, index)
    for index, delta in enumerate(DELTAS)
]


@pytest.mark.parametrize("flags", list(itertools.product((0, 1, 2), repeat=4)))
def test_every_subset(flags: tuple[int, ...]) -> None:
    pieces, delta_max = retained_records(b"".join(RECORDS), bytearray(flags))
    kept = [index for index, flag in enumerate(flags) if flag]
    assert b"".join(pieces) == b"".join(RECORDS[index] for index in kept)
    if kept:
        assert delta_max == max(DELTAS[index] for index in kept)
    assert len(pieces) == sum(1 for key, _ in itertools.groupby(flags, key=bool) if key)


@pytest.mark.parametrize("shift", [0, 1, -5, 86_400_000, -(2**41)])
def test_rebased(shift: int) -> None:
    expected = [
        encode_record(
            SimpleRecord(0, b"k" * (index * 40), None if index == 2 else b"v" * 50, [("h", None)]), delta + shift, index
        )
        for index, delta in enumerate(DELTAS)
    ]
    assert rebased([RECORDS[0] + RECORDS[1], RECORDS[2] + RECORDS[3]], shift) == expected


def test_damage_raises() -> None:
    data = b"".join(RECORDS)
    for cut in (1, 30, len(data) - 1):
        with pytest.raises(MalformedMessageError):
            retained_records(data[:cut], bytearray(b"\1\1\1\1"))
    with pytest.raises(MalformedMessageError):
        retained_records(data + b"x", bytearray(b"\1\1\1\1"))
    with pytest.raises(MalformedMessageError):
        retained_records(b"\x01" + data, bytearray(b"\1"))
