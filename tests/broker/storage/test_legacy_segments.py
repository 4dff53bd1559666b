"""Segments with messages of formats v0 and v1, from before Kafka 0.11: kept, recovered, read, searched, compacted."""

from __future__ import annotations

import logging
import struct

import pytest

from barnabas.broker.storage.log.log import FetchIsolation, Log
from barnabas.protocol.errors import ApiError
from barnabas.protocol.records.batch import SimpleRecord as Record
from barnabas.protocol.records.batch import build_batch, iter_records
from barnabas.protocol.records.compression import CompressionType
from barnabas.protocol.records.message_set import MAGIC_V0, MAGIC_V1, encode_message, encode_wrapper
from barnabas.protocol.records.stored_messages import iter_batches
from tests.support.broker.compaction import compact, segment_bytes
from tests.support.broker.storage_bench import Bench

PATH = "/data/flights-0/00000000000000000000.log"
SETTINGS = {"index_interval_bytes": 60}
BATCH = build_batch([Record(1300, b"k", b"new")], base_offset=10)


def plain(magic: int, first: int = 0, end: int = 10) -> bytes:
    return b"".join(encode_message(magic, at, 1000 + at, b"k%d" % at, b"v%d" % at) for at in range(first, end))


def wrapped(magic: int, kind: CompressionType) -> bytes:
    """Two wrappers of five messages each; offsets in them are relative in v1."""
    parts = []
    for first in (0, 5):
        shift = 0 if magic == MAGIC_V0 else first
        inner = b"".join(
            encode_message(magic, at - shift, 1000 + at, b"k%d" % at, b"v%d" % at) for at in range(first, first + 5)
        )
        parts.append(encode_wrapper(kind, magic, first + 4, 1004 + first, inner))
    return b"".join(parts)


SETS = {
    "v0": plain(MAGIC_V0),
    "v1": plain(MAGIC_V1),
    "mixed": b"".join(plain(at % 2, at, at + 1) for at in range(10)),
    "wrapped v0": wrapped(MAGIC_V0, CompressionType.GZIP),
    "lz4 of v0": wrapped(MAGIC_V0, CompressionType.LZ4),
    "wrapped v1": wrapped(MAGIC_V1, CompressionType.SNAPPY),
}


def write(bench: Bench, data: bytes, path: str = PATH) -> None:
    bench.fs.write_bytes(path, data, sync=True)


def content(target: Log) -> bytes:
    return b"".join(segment_bytes(target))


def records_from(target: Log, offset: int) -> list[tuple[int, str]]:
    """The records from an offset on, as a consumer reads them."""
    found: list[tuple[int, str]] = []
    while True:
        data = target.read(offset, 100, isolation=FetchIsolation.LOG_END, min_one_message=True)
        if data.slice is None:
            return found
        for header, batch in iter_batches(data.slice.read()):
            found += [
                (each.offset, (each.value or b"").decode()) for each in iter_records(batch) if each.offset >= offset
            ]
            offset = header.next_offset


def expected(first: int = 0) -> list[tuple[int, str]]:
    return [(at, f"v{at}") for at in range(first, 10)] + [(10, "new")]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("messages", SETS.values(), ids=SETS.keys())
def test_a_start_keeps_every_byte_and_reads_find_every_record(bench: Bench, messages: bytes, clean: bool) -> None:
    write(bench, messages + BATCH)
    target = bench.open(clean=clean, **SETTINGS)
    target.update_high_watermark(target.log_end_offset)
    assert content(target) == messages + BATCH
    assert (target.log_start_offset, target.log_end_offset) == (0, 11)
    for offset in range(11):
        assert records_from(target, offset) == expected(offset)
    assert bench.append(target, "later") == 11
    target.invariants()
    target.close()
    assert content(bench.open(clean=True, **SETTINGS)).startswith(messages + BATCH)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("messages", SETS.values(), ids=SETS.keys())
def test_a_log_of_messages_alone_ends_after_the_last(bench: Bench, messages: bytes, clean: bool) -> None:
    write(bench, messages)
    target = bench.open(clean=clean, **SETTINGS)
    assert (content(target), target.log_end_offset) == (messages, 10)
    assert bench.append(target, "later") == 10


@pytest.mark.parametrize("clean", [True, False])
def test_an_old_segment_amid_others_stays(bench: Bench, clean: bool) -> None:
    write(bench, build_batch([Record(900, b"a", b"first")]))
    write(bench, plain(MAGIC_V1, 1), PATH.replace("0.log", "1.log"))
    write(bench, BATCH, PATH.replace("00.log", "10.log"))
    target = bench.open(clean=clean, **SETTINGS)
    assert content(target) == build_batch([Record(900, b"a", b"first")]) + plain(MAGIC_V1, 1) + BATCH
    target.update_high_watermark(11)
    assert records_from(target, 0) == [(0, "first"), *expected(1)]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("messages", SETS.values(), ids=SETS.keys())
def test_a_torn_message_is_cut_and_one_line_says_how_many_bytes(
    bench: Bench, messages: bytes, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    write(bench, messages + plain(MAGIC_V1, 10, 11)[:-3])
    with caplog.at_level(logging.WARNING):
        target = bench.open(clean=clean, **SETTINGS)
    assert (content(target), target.log_end_offset) == (messages, 10)
    cut = len(plain(MAGIC_V1, 10, 11)) - 3
    assert [line for line in caplog.messages if f"{cut} bytes cut" in line]


def test_a_damaged_message_ends_the_log_after_a_crash(bench: Bench) -> None:
    damaged = bytearray(plain(MAGIC_V1))
    damaged[-1] ^= 1
    write(bench, bytes(damaged))
    assert content(bench.open(**SETTINGS)) == plain(MAGIC_V1, 0, 9)


@pytest.mark.parametrize("name", ["v1", "wrapped v1"])
def test_a_search_by_time_finds_messages(bench: Bench, name: str) -> None:
    write(bench, SETS[name] + BATCH)
    target = bench.open(**SETTINGS)
    found = target.fetch_offset_by_timestamp(1007)
    assert found is not None
    assert (found.timestamp, found.offset) == (1007, 7)
    newest = target.fetch_offset_by_timestamp(-3)
    assert newest is not None
    assert newest.offset == 10


def test_the_newest_of_records_without_timestamps_is_the_first(bench: Bench) -> None:
    write(bench, build_batch([Record(-1, b"k", b"a")] * 2) + build_batch([Record(-1, b"k", b"b")], base_offset=2))
    found = bench.open(**SETTINGS).fetch_offset_by_timestamp(-3)
    assert found is not None
    assert (found.timestamp, found.offset) == (-1, 0)


def test_messages_without_timestamps_are_passed_over(bench: Bench) -> None:
    write(bench, SETS["v0"] + BATCH)
    found = bench.open(**SETTINGS).fetch_offset_by_timestamp(1)
    assert found is not None
    assert found.offset == 10


@pytest.mark.parametrize("messages", SETS.values(), ids=SETS.keys())
def test_the_cleaner_keeps_the_latest_of_each_key(bench: Bench, messages: bytes) -> None:
    later = build_batch([Record(1400, b"k%d" % at, b"n%d" % at) for at in (0, 1, 7)], base_offset=10)
    write(bench, messages + later)
    target = bench.open(compact=True, delete=False, **SETTINGS)
    target.update_high_watermark(13)
    target.roll()
    compact(target, bench)
    kept = [(at, f"v{at}") for at in (2, 3, 4, 5, 6, 8, 9)] + [(10, "n0"), (11, "n1"), (12, "n7")]
    assert records_from(target, 0) == kept
    target.invariants()


def test_the_cleaner_copies_messages_that_stay_as_they_are(bench: Bench) -> None:
    for_all = SETS["mixed"]
    write(bench, for_all)
    target = bench.open(compact=True, delete=False, **SETTINGS)
    target.update_high_watermark(10)
    target.roll()
    compact(target, bench)
    assert content(target) == for_all


@pytest.mark.parametrize("messages", SETS.values(), ids=SETS.keys())
def test_a_follower_copies_messages_as_they_are(bench: Bench, messages: bytes) -> None:
    target = bench.open(**SETTINGS)
    target.append_as_follower(memoryview(bytearray(messages + BATCH)), leader_epoch=3)
    assert content(target) == messages + BATCH
    assert target.log_end_offset == 11
    assert target.read(0, 1000, isolation=FetchIsolation.LOG_END, min_one_message=True).size == len(messages + BATCH)


def test_a_batch_that_damage_makes_look_like_a_message_is_cut(bench: Bench) -> None:
    three = [Record(1000, b"k", b"v")] * 3
    data = bytearray(build_batch(three) + build_batch(three, base_offset=3))
    data[len(data) // 2 + 16] = MAGIC_V0
    write(bench, bytes(data))
    target = bench.open(clean=True, **SETTINGS)
    assert target.log_end_offset == 3


def wrapper(first: int, end: int) -> bytes:
    """Return a wrapper of format v1 with the messages from `first` to below `end`."""
    inner = b"".join(
        encode_message(MAGIC_V1, at - first, 1000 + at, b"k%d" % at, b"v%d" % at) for at in range(first, end)
    )
    return encode_wrapper(CompressionType.GZIP, MAGIC_V1, end - 1, 999 + end, inner)


def compacted(bench: Bench, target: Log) -> list[tuple[int, str]]:
    target.update_high_watermark(target.log_end_offset)
    target.roll()
    compact(target, bench)
    target.flush()
    return records_from(target, target.log_start_offset)


@pytest.mark.parametrize("clean", [True, False])
def test_a_wrapper_that_begins_below_its_segment_outlives_compaction(bench: Bench, clean: bool) -> None:
    """The leader's log starts inside a wrapper (DeleteRecords), and so does its new follower's."""
    settings = {**SETTINGS, "compact": True, "delete": False, "log_start_offset": 2, "recovery_point": 2}
    target = bench.open(**settings)
    later = build_batch([Record(1400, b"k3", b"n3")], base_offset=5)
    target.append_as_follower(memoryview(bytearray(wrapper(0, 5) + later)), leader_epoch=3)
    before = compacted(bench, target)
    assert before == [(2, "v2"), (3, "v3"), (4, "v4"), (5, "n3")]
    assert records_from(bench.open(clean=clean, **settings), 2) == before


@pytest.mark.parametrize("clean", [True, False])
def test_a_wrapper_that_begins_below_the_end_of_what_precedes_it_outlives_compaction(bench: Bench, clean: bool) -> None:
    settings = {**SETTINGS, "compact": True, "delete": False}
    inner = b"".join(encode_message(MAGIC_V0, at, 0, b"k%d" % at, b"w%d" % at) for at in range(4))
    before_it = encode_message(MAGIC_V0, 2, 0, b"other", b"v")
    write(bench, before_it + encode_wrapper(CompressionType.GZIP, MAGIC_V0, 3, 0, inner))
    target = bench.open(**settings)
    bench.append(target, "n3", key=b"k3")
    before = compacted(bench, target)
    assert (before[-1], content(target).startswith(before_it)) == ((4, "n3"), True)
    assert records_from(bench.open(clean=clean, **settings), 0) == before


def test_an_index_of_first_offsets_is_right(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Old brokers indexed the first offset of an append; that of a wrapper is not in its header."""
    wrappers = [wrapper(first, first + 5) for first in range(0, 50, 5)]
    write(bench, b"".join(wrappers))
    entries = [struct.pack(">ii", at * 5, sum(map(len, wrappers[:at]))) for at in (3, 6, 9)]
    write(bench, b"".join(entries), PATH.replace(".log", ".index"))
    write(bench, struct.pack(">qi", 1049, 49), PATH.replace(".log", ".timeindex"))
    write(bench, b"", PATH.replace("00.log", "50.log"))
    target = bench.open(clean=True, **SETTINGS)
    assert [offset for offset, _ in records_from(target, 31)] == list(range(31, 50))
    assert not [line for line in caplog.messages if "damaged" in line or "segment 0 " in line]
    assert not target.segments.first.has_damaged_index
    assert target.segments.first.offset_index.last_entry[0] == 45


def test_an_index_entry_at_a_damaged_wrapper_is_wrong(bench: Bench) -> None:
    write(bench, wrapper(0, 5) + wrapper(5, 10)[:-1] + b"x" + wrapper(10, 15))
    write(bench, struct.pack(">ii", 5, len(wrapper(0, 5))), PATH.replace(".log", ".index"))
    write(bench, struct.pack(">qi", 1014, 14), PATH.replace(".log", ".timeindex"))
    write(bench, b"", PATH.replace("00.log", "15.log"))
    target = bench.open(clean=True, **SETTINGS)
    assert target.read(14, 100, isolation=FetchIsolation.LOG_END, min_one_message=True).size == len(wrapper(10, 15))


def test_a_damaged_wrapper_does_not_hide_its_neighbour(bench: Bench) -> None:
    write(bench, wrapper(0, 5) + wrapper(5, 10)[:-1] + b"x" + wrapper(10, 15))
    target = bench.open(clean=True, **SETTINGS)
    assert [offset for offset, _ in records_from(target, 10)] == list(range(10, 15))
    assert [offset for offset, _ in records_from(target, 12)] == list(range(12, 15))


def test_a_search_by_time_does_not_pass_over_a_batch_that_looks_like_a_message(bench: Bench) -> None:
    records = [[Record(1000 + at, b"k", b"v") for at in range(first, first + 5)] for first in (0, 10, 20)]
    batches = [bytearray(build_batch(each, base_offset=5 * at)) for at, each in enumerate(records)]
    batches[1][16] = MAGIC_V0
    write(bench, b"".join(batches))
    target = bench.open(clean=True, **SETTINGS)
    with pytest.raises(ApiError):
        target.fetch_offset_by_timestamp(1012)
