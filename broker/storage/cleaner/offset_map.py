"""The cleaner's map: the latest record of each key, in a fixed amount of memory.

The map is a table of fixed size with open addressing and linear probing. A slot has 20 bytes: a 128-bit keyed hash of
a key (never the key itself) and the number of the key's latest record. Records of the dirty section are numbered in
the order of `put`. One byte for each number (`DEAD`, `VALUE`, `TOMBSTONE`) holds the record's present state. So no key
is hashed again when the dirty section is copied, and a batch with equal states is kept or dropped without being read.
Records before the dirty section are looked up by key (`flags_of_older`).

Why a keyed hash
    Two keys with one hash are one key to the map: the later record drops the earlier one. Producers choose their keys,
    and a second preimage of a hash without a secret can be computed (of murmur3 at once: each of its steps can be
    undone, with any seed). The hash here is SipHash-1-3, which is CPython's `hash(bytes)` (PEP 456), twice:
        high = hash(16 random bytes of this round + key)        low = hash(key)
    Without its key, which CPython draws at start, SipHash cannot be distinguished from a random function. Neither half
    leaves the process. The random prefix makes the halves independent, and keeps the high half secret even if
    PYTHONHASHSEED fixes the key. So the chance that any two of n keys collide is n * n / 2 ** 129, however they were
    chosen: for 10 ** 9 keys less than one in 10 ** 20. The slot is taken from the high half, so keys cannot be chosen
    to share a slot, and probes stay short.
    A Python built with another hash (`sys.hash_info.algorithm`) uses BLAKE2b with the random bytes as its key, at four
    times the cost.

Rules
1. Table and numbers together never exceed the memory given; other records wait for the next round.
2. A batch is put in whole or not at all: the caller checks `has_room_for` first.
3. The memory belongs to a round: `begin` allocates it (no more than the round can need), `end` frees it.

The two walks are the cleaner's hot path. The source is written for mypyc (machine words once compiled, ordinary ints
otherwise), hence loops where pure Python would call functions.

Threads: one cleaner thread owns a map.
Source: Kafka's SkimpyOffsetMap (which hashes with MD5, keeps offsets, and hashes every key twice), 4.3;
J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF".
"""

from __future__ import annotations

import os
import sys
from array import array
from typing import TYPE_CHECKING, Final

from barnabas.protocol.errors import MalformedMessageError

if TYPE_CHECKING:
    from mypy_extensions import i64

DEAD: Final = 0
VALUE: Final = 1
TOMBSTONE: Final = 2

BYTES_PER_SLOT: Final = 20
BYTES_PER_RECORD: Final = 1
SLOTS_MIN: Final = 1024
# The share of the memory that numbers records; the rest is the table.
_NUMBERS_SHARE: Final = 8
_VARINT_SHIFT_LAST: Final = 28
_SECRET_BYTES: Final = 16
_HALF_BYTES: Final = 8


class OffsetMapFullError(Exception):
    """A batch alone has more keys than the map has slots."""


class OffsetMap:
    """The latest record of each key; see the module's header. `memory_bytes` bounds its size."""

    __slots__ = (
        "_hashes",
        "_is_sip_hash",
        "_latest",
        "_limit",
        "_load_factor",
        "_numbers_max",
        "_secret",
        "_slots",
        "_slots_max",
        "flags",
        "size",
    )

    def __init__(self, memory_bytes: int, load_factor: float) -> None:
        self._numbers_max: int = memory_bytes // _NUMBERS_SHARE // BYTES_PER_RECORD
        self._slots_max: int = (memory_bytes - self._numbers_max * BYTES_PER_RECORD) // BYTES_PER_SLOT
        self._load_factor = load_factor
        self._secret = b""  # of this round
        self._is_sip_hash: bool = sys.hash_info.algorithm.startswith("siphash")
        self._slots: i64 = 0
        self._limit: i64 = 0
        self._hashes: array[int] = array("q")  # two signed halves a slot
        self._latest: array[int] = array("I")  # number of the latest record, plus 1; 0: the slot is free
        self.flags = bytearray()  # what each numbered record is now
        self.size: i64 = 0  # keys

    @property
    def slots(self) -> int:
        """How many slots the memory allows."""
        return self._slots_max

    @property
    def utilization(self) -> float:
        """The share of these slots in use, from 0 to 1."""
        return self.size / self._slots_max

    @property
    def record_count(self) -> int:
        """How many records have a number."""
        return len(self.flags)

    def begin(self, records_max: int) -> None:
        """Allocate the memory for a round of at most `records_max` records."""
        wanted = int(min(records_max, self._slots_max) / self._load_factor) + SLOTS_MIN
        slots = min(wanted, self._slots_max)
        self._secret = os.urandom(_SECRET_BYTES)
        self._slots = slots
        self._limit = int(slots * self._load_factor)
        self._hashes = array("q", bytes(16)) * slots
        self._latest = array("I", bytes(4)) * slots
        self.flags = bytearray()
        self.size = 0

    def end(self) -> None:
        """Free the memory."""
        self._hashes = array("q")
        self._latest = array("I")
        self.flags = bytearray()
        self._slots = 0

    def has_room_for(self, count: int) -> bool:
        """Return whether a batch of `count` records fits with any keys; an empty map accepts any batch."""
        if not self.flags:
            return True
        return self.size + count <= self._limit and len(self.flags) + count <= self._numbers_max

    def skip(self, count: int) -> None:
        """Number records that are dead: those of an aborted transaction."""
        self.flags.extend(bytes(count))

    def put(self, data: bytes, count: int) -> None:
        """Put in the `count` uncompressed records of a batch; records without a key are dead at once.

        Raises MalformedMessageError, OffsetMapFullError.
        """
        latest = self._latest
        flags = self.flags
        size: i64 = len(data)
        number: i64 = len(flags)
        end: i64 = number + count
        cursor: i64 = 0
        key_start: i64 = 0
        key_end: i64 = 0
        flags.extend(bytes(count))
        while number < end:
            key_start, key_end, cursor = key_of_record(data, cursor, size)
            if key_end >= 0:
                slot: i64 = self._slot_of(data[key_start:key_end])
                known: i64 = latest[slot]
                if known:
                    flags[known - 1] = DEAD
                else:
                    self._count_key()
                latest[slot] = number + 1
                # A null value's length is -1, which is the byte 1.
                flags[number] = TOMBSTONE if data[key_end] == 1 else VALUE
            number += 1
        _check_all_read(cursor, size)

    def flags_of_older(self, data: bytes, count: int) -> bytearray:
        """Return the state of each of the `count` records of a batch before the dirty section, by the keys in the map.

        Raises MalformedMessageError.
        """
        latest = self._latest
        found = bytearray(count)
        size: i64 = len(data)
        number: i64 = 0
        end: i64 = count
        cursor: i64 = 0
        key_start: i64 = 0
        key_end: i64 = 0
        while number < end:
            key_start, key_end, cursor = key_of_record(data, cursor, size)
            if key_end >= 0 and not latest[self._slot_of(data[key_start:key_end], is_new=False)]:
                found[number] = TOMBSTONE if data[key_end] == 1 else VALUE
            number += 1
        _check_all_read(cursor, size)
        return found

    def _slot_of(self, key: bytes, is_new: bool = True) -> i64:
        """Return the slot with a key's hash, or else the free slot for it; `is_new` writes the hash there."""
        hashes = self._hashes
        latest = self._latest
        slots: i64 = self._slots
        high: i64 = 0
        low: i64 = 0
        if self._is_sip_hash:
            high = hash(self._secret + key)
            low = hash(key)
        else:
            from hashlib import blake2b  # Why here: it loads OpenSSL, and few interpreters come here

            digest = blake2b(key, key=self._secret, digest_size=2 * _HALF_BYTES).digest()
            high = int.from_bytes(digest[:_HALF_BYTES], "big", signed=True)
            low = int.from_bytes(digest[_HALF_BYTES:], "big", signed=True)
        slot: i64 = high % slots
        while latest[slot]:
            if hashes[slot + slot] == high and hashes[slot + slot + 1] == low:
                return slot
            slot += 1
            if slot == slots:
                slot = 0
        if is_new:
            hashes[slot + slot] = high
            hashes[slot + slot + 1] = low
        return slot

    def _count_key(self) -> None:
        self.size += 1
        if self.size >= self._slots:  # one slot stays free, so that probing ends
            raise OffsetMapFullError(
                f"a batch has more keys than the cleaner's map has slots ({self._slots}): "
                "log.cleaner.dedupe.buffer.size is too small"
            )


def key_of_record(data: bytes, cursor: i64, size: i64) -> tuple[i64, i64, i64]:
    """Return where the key of the record at `cursor` begins and ends (-1: null), and where the record ends.

    Raises MalformedMessageError.
    """
    length: i64 = 0
    try:
        length, cursor = _read_length(data, cursor)
        end: i64 = cursor + length
        cursor += 1  # attributes
        while data[cursor] >= 0x80:  # timestamp delta
            cursor += 1
        cursor += 1
        while data[cursor] >= 0x80:  # offset delta
            cursor += 1
        length, cursor = _read_length(data, cursor + 1)
    except IndexError:
        raise MalformedMessageError("the records of a batch run past its end") from None
    if end > size or cursor + length >= end:
        raise MalformedMessageError("a record does not fit its batch")
    return cursor, (cursor + length if length >= 0 else -1), end


def _check_all_read(cursor: i64, size: i64) -> None:
    if cursor != size:
        raise MalformedMessageError(f"{size - cursor} bytes follow the last record of a batch")


def _read_length(data: bytes, cursor: i64) -> tuple[i64, i64]:
    """Read a length as a zigzag varint (-1 for a null); returns it and the next cursor."""
    byte: i64 = data[cursor]
    cursor += 1
    if byte < 0x80 and not byte & 1:
        return byte >> 1, cursor
    raw: i64 = byte & 0x7F
    shift: i64 = 7
    while byte >= 0x80:
        if shift > _VARINT_SHIFT_LAST:
            raise MalformedMessageError("a length of more than five bytes")
        byte = data[cursor]
        cursor += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    if raw & 1:
        if raw != 1:
            raise MalformedMessageError("a negative length in a record")
        return -1, cursor
    return raw >> 1, cursor
