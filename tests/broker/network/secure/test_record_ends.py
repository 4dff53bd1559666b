"""RecordEnds: wherever a stream of records is cut."""

from __future__ import annotations

import random
from itertools import accumulate

import pytest

from barnabas.broker.network.secure.record_ends import HEADER_BYTES, RecordEnds

SIZES = (0, 1, 30, 16_384 + 17, 5, 65_535, 300)
STREAM = b"".join(b"\x17\x03\x03" + size.to_bytes(2, "big") + b"\xff" * size for size in SIZES)

ENDS = list(accumulate(HEADER_BYTES + size for size in SIZES))


def expected(position: int) -> tuple[int, int]:
    """What is missing of the record in which the stream is cut, and its size, if that is known."""
    start = 0
    for size in SIZES:
        end = start + HEADER_BYTES + size
        if position == start:
            return 0, 0
        if position < start + HEADER_BYTES:
            return start + HEADER_BYTES - position, 0
        if position < end:
            return end - position, HEADER_BYTES + size
        start = end
    return 0, 0


@pytest.mark.parametrize("size_max", [1, 2, 7, 1000, 20_000, len(STREAM)])
def test_the_record_in_which_the_stream_is_cut(size_max: int) -> None:
    rng = random.Random(size_max)
    for _ in range(50 if size_max > 2 else 1):
        ends = RecordEnds()
        at = 0
        while at < len(STREAM):
            count = min(rng.randint(1, size_max), len(STREAM) - at)
            # The buffer is larger than what was read: the rest of it has no meaning.
            found = ends.follow(memoryview(STREAM[at : at + count] + b"\xee" * 9), count)
            assert found == [end - at for end in ENDS if at < end <= at + count]
            at += count
            assert (ends.missing_bytes, ends.size_bytes) == expected(at)


def test_false_sizes_are_taken_as_they_are() -> None:
    """The session refuses them; nothing is kept for them here."""
    ends = RecordEnds()
    ends.follow(memoryview(b"\xff" * 8), 8)
    assert (ends.missing_bytes, ends.size_bytes) == (65_532, 65_540)
