"""The offset map compared with a dict; its bounds; damaged records."""

from __future__ import annotations

import random

import mmh3
import pytest

from barnabas.broker.storage.cleaner.offset_map import (
    DEAD,
    SLOTS_MIN,
    TOMBSTONE,
    VALUE,
    OffsetMap,
    OffsetMapFullError,
    key_of_record,
)
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import SimpleRecord, encode_record

MEMORY = 1 << 20


def payload(*pairs: tuple[bytes | None, bytes | None]) -> bytes:
    return b"".join(
        encode_record(SimpleRecord(0, key, value, [("h", b"1")] if index % 3 else ()), index * 70, index)
        for index, (key, value) in enumerate(pairs)
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_map_agrees_with_a_dict(seed: int) -> None:
    chance = random.Random(seed)
    offset_map = OffsetMap(MEMORY, 0.9)
    offset_map.begin(10_000)
    latest: dict[bytes, int] = {}
    values: list[bytes | None] = []
    keys: list[bytes | None] = []
    for _ in range(60):
        pairs = []
        for _ in range(chance.randint(1, 30)):
            key = None if chance.random() < 0.05 else chance.randbytes(chance.choice([0, 1, 1, 2, 200]))
            value = None if chance.random() < 0.2 else chance.randbytes(chance.choice([0, 3, 100]))
            if key is not None:
                latest[key] = len(keys)
            keys.append(key)
            values.append(value)
            pairs.append((key, value))
        offset_map.put(payload(*pairs), len(pairs))
    assert offset_map.size == len(latest)
    assert offset_map.record_count == len(keys)
    expected = [
        DEAD if key is None or latest[key] != number else TOMBSTONE if values[number] is None else VALUE
        for number, key in enumerate(keys)
    ]
    assert list(offset_map.flags) == expected
    older = [chance.randbytes(chance.choice([0, 1, 2, 3])) for _ in range(200)]
    found = offset_map.flags_of_older(payload(*((key, None) for key in older)), len(older))
    assert list(found) == [DEAD if key in latest else TOMBSTONE for key in older]


def test_skipped_records_are_numbered_and_dead() -> None:
    offset_map = OffsetMap(MEMORY, 0.9)
    offset_map.begin(10)
    offset_map.put(payload((b"a", b"1")), 1)
    offset_map.skip(2)
    offset_map.put(payload((b"b", b"1")), 1)
    assert list(offset_map.flags) == [VALUE, DEAD, DEAD, VALUE]


def test_the_map_takes_neither_more_memory_than_given_nor_than_needed() -> None:
    offset_map = OffsetMap(8000, 0.5)
    assert offset_map.slots == 350
    assert offset_map.slots * 20 + 1000 <= 8000
    offset_map.begin(10**9)
    assert offset_map.has_room_for(10**6), "an empty map accepts any batch, so that rounds make progress"
    for number in range(17):
        assert offset_map.has_room_for(10)
        offset_map.put(payload(*((b"%d" % (number * 10 + n), b"") for n in range(10))), 10)
    assert not offset_map.has_room_for(10), "half of the slots"
    assert offset_map.utilization == 170 / 350
    small = OffsetMap(1 << 30, 0.9)
    small.begin(10)
    assert len(small._latest) < 2 * SLOTS_MIN
    small.end()
    assert (len(small._latest), len(small._hashes), small.record_count) == (0, 0, 0)


def test_the_number_of_records_is_bounded_too() -> None:
    offset_map = OffsetMap(8000, 0.9)
    offset_map.begin(10**9)
    batch = payload(*((b"one", b"") for _ in range(100)))
    for _ in range(10):
        assert offset_map.has_room_for(100)
        offset_map.put(batch, 100)
    assert not offset_map.has_room_for(1)
    assert offset_map.size == 1


def test_a_batch_with_too_many_keys_raises() -> None:
    offset_map = OffsetMap(2000, 0.9)
    offset_map.begin(10**9)
    with pytest.raises(OffsetMapFullError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        offset_map.put(payload(*((b"%d" % n, b"") for n in range(200))), 200)


def test_damaged_records_raise_one_error() -> None:
    sound = payload((b"key", b"value"), (b"k2", None))
    for cut in range(len(sound)):
        offset_map = OffsetMap(MEMORY, 0.9)
        offset_map.begin(10)
        with pytest.raises(MalformedMessageError):
            offset_map.put(sound[:cut], 2)
        with pytest.raises(MalformedMessageError):
            offset_map.flags_of_older(sound[:cut], 2)
    offset_map = OffsetMap(MEMORY, 0.9)
    offset_map.begin(10)
    for damaged in (sound + b"\0", b"\xff" * 20, b"\x01" + sound[1:], b"\x03" * 9):
        with pytest.raises(MalformedMessageError):
            offset_map.put(damaged, 2)


@pytest.mark.parametrize("seed", range(300))
def test_random_bytes_are_read_or_refused(seed: int) -> None:
    noise = random.Random(seed).randbytes(60)
    try:
        start, end, record_end = key_of_record(noise, 0, len(noise))
    except MalformedMessageError:
        return
    assert 0 < record_end <= len(noise)
    assert end == -1 or 0 < start <= end < record_end


# Keys that a producer chose

_MASK = 2**64 - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F
_ADDED = (0x52DCE729, 0x38495AB5)


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _state_after(block: bytes) -> tuple[int, int]:
    """Return murmur3's two halves after one block, from seed 0."""
    one, two = int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")
    high = _rotated((one * _C1) & _MASK, 31) * _C2 & _MASK
    high = (_rotated(high, 27) * 5 + _ADDED[0]) & _MASK
    low = _rotated((two * _C2) & _MASK, 33) * _C1 & _MASK
    low = ((_rotated(low, 31) + high) * 5 + _ADDED[1]) & _MASK
    return high, low


def _block_between(before: tuple[int, int], after: tuple[int, int]) -> bytes:
    """Return the block that takes murmur3 from one state to another: each of its steps can be undone."""
    fifth = pow(5, -1, 2**64)
    high = _rotated(((after[0] - _ADDED[0]) * fifth - before[1]) & _MASK, 64 - 27) ^ before[0]
    low = _rotated(((after[1] - _ADDED[1]) * fifth - after[0]) & _MASK, 64 - 31) ^ before[1]
    one = _rotated(high * pow(_C2, -1, 2**64) & _MASK, 64 - 31) * pow(_C1, -1, 2**64) & _MASK
    two = _rotated(low * pow(_C1, -1, 2**64) & _MASK, 64 - 33) * pow(_C2, -1, 2**64) & _MASK
    return one.to_bytes(8, "little") + two.to_bytes(8, "little")


def colliding_keys(count: int) -> list[bytes]:
    """Return different keys with one 128-bit murmur3 hash."""
    blocks = [b"%016d" % number for number in range(count)]
    target = (1234, 5678)
    return [block + _block_between(_state_after(block), target) for block in blocks]


@pytest.mark.parametrize("is_sip_hash", [True, False], ids=["siphash", "blake2b"])
def test_keys_chosen_to_collide_are_different_keys(is_sip_hash: bool) -> None:
    keys = colliding_keys(50)
    assert len(set(keys)) == 50
    assert len({mmh3.hash128(key) for key in keys}) == 1, "a map with murmur3 would merge them"
    offset_map = OffsetMap(MEMORY, 0.9)
    offset_map._is_sip_hash = is_sip_hash
    offset_map.begin(100)
    for key in keys:
        offset_map.put(payload((key, b"v")), 1)
    assert list(offset_map.flags) == [VALUE] * 50
    assert list(offset_map.flags_of_older(payload((keys[7], b"v"), (b"other", b"v")), 2)) == [DEAD, VALUE]


@pytest.mark.parametrize("is_sip_hash", [True, False], ids=["siphash", "blake2b"])
def test_each_round_hashes_differently_so_that_keys_cannot_be_chosen_for_one_slot(is_sip_hash: bool) -> None:
    """A key's slot cannot be predicted, nor known from an earlier round, even with a fixed PYTHONHASHSEED."""
    offset_map = OffsetMap(MEMORY, 0.9)
    offset_map._is_sip_hash = is_sip_hash
    places = []
    for _ in range(2):
        offset_map.begin(10_000)
        places.append([offset_map._slot_of(b"%d" % number, is_new=False) for number in range(100)])
    assert places[0] != places[1]
    assert len(set(places[0])) > 95
