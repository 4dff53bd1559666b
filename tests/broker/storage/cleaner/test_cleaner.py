"""Compacting a log: the records that stay and go; a batch that loses none is copied byte for byte.

Tests `storage/cleaner/cleaner.py`, `storage/cleaner/cleaner_batches.py` and `storage/cleaner/cleaner_transactions.py`.
"""

from __future__ import annotations

import pytest

from barnabas.broker.storage.cleaner.cleaner import CleaningAbortedError, group_segments
from barnabas.broker.storage.cleaner.cleaner_manager import cleanable_offsets, log_to_clean
from barnabas.broker.storage.cleaner.offset_map import OffsetMapFullError
from barnabas.broker.storage.log.log import AppendOrigin, FetchIsolation, Log
from barnabas.protocol.errors import MalformedMessageError
from barnabas.protocol.records.batch import (
    HEADER_SIZE,
    BatchHeader,
    ControlType,
    SimpleRecord,
    build_batch,
    end_txn_marker,
    iter_headers,
    iter_records,
)
from barnabas.protocol.records.compression import CompressionType
from tests.support.broker.compaction import append_keyed, compact, keyed_contents, segment_bytes
from tests.support.broker.storage_bench import Bench

SETTINGS = {"compact": True, "delete": False, "index_interval_bytes": 100}
DAY_MS = 86_400_000


def headers_of(target: Log) -> list[BatchHeader]:
    return [header for data in segment_bytes(target) for _, header in iter_headers(data)]


def test_the_latest_record_of_each_key_stays(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"), ("b", "1"), ("a", "2"))
    append_keyed(target, bench, ("c", "1"), ("b", "2"))
    target.roll()
    append_keyed(target, bench, ("a", "3"))  # the active segment is not cleaned
    assert compact(target, bench) == 5
    assert keyed_contents(target) == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "a", "3")]
    target.roll()
    assert compact(target, bench, first_dirty=5) == 6
    assert keyed_contents(target) == [(3, "c", "1"), (4, "b", "2"), (5, "a", "3")]
    target.invariants()


def test_a_batch_that_loses_no_record_is_copied_unchanged(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"), ("b", "1"), compression=CompressionType.ZSTD)
    append_keyed(target, bench, ("a", "2"), ("c", "1"))
    append_keyed(target, bench, ("d", "1"), ("e", "1"), compression=CompressionType.LZ4)
    before = segment_bytes(target)[0]
    target.roll()
    compact(target, bench)
    after = segment_bytes(target)[0]
    second = len(before) - next(header.size_in_bytes for _, header in iter_headers(before))
    assert after.endswith(before[-second:])
    first = headers_of(target)[0]
    assert (first.record_count, first.last_offset, first.compression_type) == (1, 1, CompressionType.ZSTD)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_every_compression(bench: Bench, kind: CompressionType) -> None:
    target = bench.open(**SETTINGS)
    for number in range(20):
        append_keyed(target, bench, *((f"k{n}", f"v{number}-{n}" * 9) for n in range(number % 7, 9)), compression=kind)
    expected = {key: (offset, value) for offset, key, value in keyed_contents(target)}
    target.roll()
    compact(target, bench)
    assert keyed_contents(target) == sorted((offset, key, value) for key, (offset, value) in expected.items())
    assert {header.compression_type for header in headers_of(target)} == {kind}


# Tombstones (KIP-534)


def test_a_tombstone_removes_its_key_and_goes_after_its_horizon(bench: Bench) -> None:
    target = bench.open(**SETTINGS, delete_retention_ms=DAY_MS)
    append_keyed(target, bench, ("a", "1"), ("b", "1"))
    append_keyed(target, bench, ("a", None), ("c", "1"))
    append_keyed(target, bench, ("d", "1"))
    target.roll()
    began_ms = bench.clock.wall_ms()
    end = compact(target, bench)
    assert keyed_contents(target) == [(1, "b", "1"), (2, "a", None), (3, "c", "1"), (4, "d", "1")]
    stamped = headers_of(target)[1]
    assert stamped.delete_horizon_ms == began_ms + DAY_MS
    bench.clock.advance_ms(DAY_MS - 1)
    compact(target, bench, first_dirty=end)
    assert headers_of(target)[1] == stamped, "a horizon is set once"
    bench.clock.advance_ms(1)
    compact(target, bench, first_dirty=end)
    assert keyed_contents(target) == [(1, "b", "1"), (3, "c", "1"), (4, "d", "1")]


def test_a_tombstone_stays_while_a_replica_may_lack_it(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"))
    append_keyed(target, bench, ("a", None))
    append_keyed(target, bench, ("b", "1"))
    target.roll()
    end = compact(target, bench, may_forget=lambda _tp: False)
    assert keyed_contents(target) == [(1, "a", None), (2, "b", "1")]
    bench.clock.advance_ms(2 * DAY_MS)
    compact(target, bench, first_dirty=end, may_forget=lambda _tp: False)
    assert keyed_contents(target) == [(1, "a", None), (2, "b", "1")]
    compact(target, bench, first_dirty=end)
    assert keyed_contents(target) == [(2, "b", "1")], "the horizon was set when it was first cleaned"


def test_a_round_without_a_tombstone_is_abandoned_if_a_replica_may_lack_it_in_the_end(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", None))
    append_keyed(target, bench, ("b", "1"))
    target.roll()
    end = compact(target, bench)
    bench.clock.advance_ms(DAY_MS)
    answers = iter([True, False])
    with pytest.raises(CleaningAbortedError, match="out of sync"):
        compact(target, bench, first_dirty=end, may_forget=lambda _tp: next(answers))
    assert keyed_contents(target) == [(0, "a", None), (1, "b", "1")]
    assert not [entry.name for entry in bench.fs.listdir(target.directory) if entry.name.endswith(".cleaned")]


@pytest.mark.parametrize("kind", [CompressionType.NONE, CompressionType.GZIP])
def test_a_horizon_does_not_change_offsets_timestamps_and_headers(bench: Bench, kind: CompressionType) -> None:
    target = bench.open(**SETTINGS)
    now_ms = bench.clock.wall_ms()
    records = [
        SimpleRecord(now_ms - 5000, b"a", b"1", [("h", b"x" * 70), ("n", None)]),
        SimpleRecord(now_ms - 10, b"b", None, [("why", b"gone")]),
        SimpleRecord(now_ms - 90_000, b"c", b"2" * 200),
    ]
    target.append_as_leader(memoryview(bytearray(build_batch(records, compression=kind))), leader_epoch=3)
    target.update_high_watermark(3)
    before = list(iter_records(segment_bytes(target)[0]))
    (old,) = headers_of(target)
    target.roll()
    compact(target, bench)
    assert list(iter_records(segment_bytes(target)[0])) == before
    (new,) = headers_of(target)
    assert new.delete_horizon_ms == now_ms + DAY_MS
    assert (new.max_timestamp, new.last_offset, new.partition_leader_epoch) == (old.max_timestamp, 2, 3)


def test_the_greatest_timestamp_is_that_of_the_remaining_records(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    now_ms = bench.clock.wall_ms()
    records = [
        SimpleRecord(now_ms - 7, b"a", b"1"),
        SimpleRecord(now_ms, b"b", b"1"),
        SimpleRecord(now_ms - 3, b"c", b""),
    ]
    target.append_as_leader(memoryview(bytearray(build_batch(records))), leader_epoch=0)
    append_keyed(target, bench, ("b", "2"), timestamp=now_ms - 100)
    target.roll()
    compact(target, bench)
    assert [header.max_timestamp for header in headers_of(target)] == [now_ms - 3, now_ms - 100]
    found = target.fetch_offset_by_timestamp(-3)
    assert found is not None
    assert (found.timestamp, found.offset) == (now_ms - 3, 2)


def test_records_without_a_key_go(bench: Bench) -> None:
    target = bench.open(compact=False)
    append_keyed(target, bench, ("a", "1"), (None, "lost"))
    append_keyed(target, bench, ("b", "1"))
    target.roll()
    target.update_config(bench.settings(**SETTINGS))
    compact(target, bench)
    assert keyed_contents(target) == [(0, "a", "1"), (2, "b", "1")]


# Transactions and producers


def transactional(target: Log, bench: Bench, producer: int, sequence: int, *pairs: tuple[str, str | None]) -> None:
    append_keyed(
        target,
        bench,
        *pairs,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=True,
    )


def end_transaction(target: Log, bench: Bench, producer: int, kind: ControlType, epoch: int = 0) -> None:
    marker = end_txn_marker(
        kind, producer_id=producer, producer_epoch=epoch, coordinator_epoch=0, timestamp_ms=bench.clock.wall_ms()
    )
    target.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
    target.update_high_watermark(target.log_end_offset)


def forget_producers(target: Log, bench: Bench) -> None:
    bench.clock.advance_ms(2 * DAY_MS)
    target.remove_expired_producers()


def test_aborted_records_go_and_do_not_supersede_anything(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"))
    transactional(target, bench, 7, 0, ("a", "aborted"), ("b", "aborted"))
    end_transaction(target, bench, 7, ControlType.ABORT)
    append_keyed(target, bench, ("c", "1"))
    target.roll()
    forget_producers(target, bench)
    end = compact(target, bench)
    assert keyed_contents(target) == [(0, "a", "1"), (4, "c", "1")]
    # The marker, and its entry in the transaction index, stay if a batch of the transaction was seen.
    assert [header.is_control for header in headers_of(target)] == [False, True, False]
    assert [entry.producer_id for entry in target.aborted_transactions_in(0, 10)] == [7]
    # Without one, the marker gets a horizon; after that it is dropped with its entry.
    compact(target, bench, first_dirty=end)
    assert [header.delete_horizon_ms is not None for header in headers_of(target)] == [False, True, False]
    assert target.aborted_transactions_in(0, 10) == []
    bench.clock.advance_ms(DAY_MS)
    compact(target, bench, first_dirty=end)
    assert [header.is_control for header in headers_of(target)] == [False, False]


def test_a_marker_stays_while_a_replica_may_lack_it(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    transactional(target, bench, 7, 0, ("a", "aborted"))
    end_transaction(target, bench, 7, ControlType.ABORT)
    append_keyed(target, bench, ("b", "1"))
    target.roll()
    forget_producers(target, bench)
    end = compact(target, bench)
    for _ in range(2):
        compact(target, bench, first_dirty=end, may_forget=lambda _tp: False)
        bench.clock.advance_ms(2 * DAY_MS)
    assert [header.is_control for header in headers_of(target)] == [True, False]
    compact(target, bench, first_dirty=end)
    assert [header.is_control for header in headers_of(target)] == [False]


def test_a_commit_marker_stays_as_long_as_its_records(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    transactional(target, bench, 7, 0, ("a", "1"))
    end_transaction(target, bench, 7, ControlType.COMMIT)
    append_keyed(target, bench, ("b", "1"))
    target.roll()
    forget_producers(target, bench)
    end = compact(target, bench)
    bench.clock.advance_ms(2 * DAY_MS)
    compact(target, bench, first_dirty=end)
    assert [header.is_control for header in headers_of(target)] == [False, True, False]
    assert headers_of(target)[1].delete_horizon_ms is None
    append_keyed(target, bench, ("a", "2"))
    target.roll()
    end = compact(target, bench, first_dirty=end)
    assert [header.is_control for header in headers_of(target)] == [True, False, False], "its batch was seen this time"
    compact(target, bench, first_dirty=end)
    bench.clock.advance_ms(DAY_MS)
    compact(target, bench, first_dirty=end)
    assert keyed_contents(target) == [(2, "b", "1"), (3, "a", "2")]
    assert [header.is_control for header in headers_of(target)] == [False, False]


def test_nothing_of_an_open_transaction_is_touched(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"))
    target.roll()
    transactional(target, bench, 7, 0, ("a", "open"))
    target.roll()
    append_keyed(target, bench, ("b", "1"))
    target.roll()
    assert compact(target, bench) == 1
    assert [value for _, _, value in keyed_contents(target)] == ["1", "open", "1"]


def test_the_last_batch_of_a_producer_stays_without_records(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    options = {"producer_id": 5, "producer_epoch": 2}
    append_keyed(target, bench, ("a", "1"), ("b", "1"), base_sequence=0, **options)
    append_keyed(target, bench, ("a", "2"), ("b", "2"), base_sequence=2, **options)
    append_keyed(target, bench, ("a", "3"), ("b", "3"))
    target.roll()
    compact(target, bench)
    empty, last = headers_of(target)
    assert (empty.record_count, empty.base_offset, empty.last_offset) == (0, 2, 3)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence, empty.last_sequence) == (5, 2, 2, 3)
    assert (empty.size_in_bytes, last.record_count) == (HEADER_SIZE, 2)
    # After a start the producer is unchanged.
    target.flush()
    target.close()
    for entry in bench.fs.listdir(bench.directory):
        if entry.name.endswith(".snapshot"):
            bench.fs.unlink(f"{bench.directory}/{entry.name}")
    again = bench.open(**SETTINGS)
    assert append_keyed(again, bench, ("c", "1"), base_sequence=4, **options) == 6
    # After the producer has expired, its batch is dropped.
    again.roll()
    forget_producers(again, bench)
    compact(again, bench)
    assert [header.record_count for header in headers_of(again)] == [2, 1]


def test_the_last_batch_of_a_round_stays_without_records(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"))
    transactional(target, bench, 7, 0, ("b", "aborted"))
    end_transaction(target, bench, 7, ControlType.ABORT)
    target.roll()
    forget_producers(target, bench)
    end = compact(target, bench)
    for _ in range(3):
        bench.clock.advance_ms(2 * DAY_MS)
        compact(target, bench, first_dirty=end)
    assert [(header.last_offset, header.record_count) for header in headers_of(target)] == [(0, 1), (2, 0)]
    target.flush()
    target.close()
    assert bench.open(clean=True, **SETTINGS).log_end_offset == 3


# The map


def test_a_round_ends_where_the_map_is_full_and_the_next_continues(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    for number in range(400):
        append_keyed(target, bench, (f"k{number % 300}", str(number)))
    expected = [(number, f"k{number % 300}", str(number)) for number in range(100, 400)]
    target.roll()
    bytes_of_map = 2500  # 109 slots
    end, rounds = 0, 0
    while end < 400:
        before = end
        end = compact(target, bench, first_dirty=end, map_bytes=bytes_of_map)
        assert end > before
        rounds += 1
        latest = {key: offset for offset, key, _ in keyed_contents(target) if offset < end}
        assert sorted(latest.values()) == [offset for offset, _, _ in keyed_contents(target) if offset < end]
    assert rounds > 2
    assert keyed_contents(target) == expected


def test_a_batch_with_more_keys_than_slots_cannot_be_cleaned(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, *((f"k{n}", "v") for n in range(200)))
    target.roll()
    before = segment_bytes(target)
    with pytest.raises(OffsetMapFullError):
        compact(target, bench, map_bytes=2500)
    assert segment_bytes(target) == before


def test_damaged_batches_get_no_new_checksum(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"), ("b", "1"))
    append_keyed(target, bench, ("a", "2"))
    target.roll()
    path = target.segments.first.path
    data = bytearray(bench.fs.read_bytes(path))
    data[HEADER_SIZE + 8] ^= 1
    bench.fs.write_bytes(path, data, sync=True)
    with pytest.raises(MalformedMessageError):
        compact(target, bench)
    assert segment_bytes(target)[0] == bytes(data)
    assert not [e.name for e in bench.fs.listdir(bench.directory) if e.name.endswith(".cleaned")]


# Segments


def test_small_segments_are_joined(bench: Bench) -> None:
    target = bench.open(**SETTINGS, segment_bytes=2000)
    for number in range(60):
        append_keyed(target, bench, (f"k{number % 5}", str(number)))
    target.roll()
    assert len(target.segments) > 2
    compact(target, bench)
    assert [value for _, _, value in keyed_contents(target)] == [str(number) for number in range(55, 60)]
    end = compact(target, bench)
    assert len(target.segments) == 2
    bench.clock.advance_ms(60_000)
    bench.scheduler.run_due()
    names = {entry.name for entry in bench.fs.listdir(bench.directory)}
    assert not [name for name in names if name.endswith((".deleted", ".cleaned", ".swap"))]
    assert sorted(name for name in names if name.endswith(".log")) == [
        "00000000000000000000.log",
        f"{end:020d}.log",
    ]


def test_groups_fit_a_segment(bench: Bench) -> None:
    target = bench.open(compact=True, segment_bytes=300)
    for number in range(12):
        append_keyed(target, bench, (f"k{number}", "v" * 40))
    segments = list(target.segments.all[:-1])
    for size_max in (100, 300, 700, 10_000):
        groups = group_segments(segments, size_max, 10_000_000, target.active_segment.base_offset)
        assert [segment for group in groups for segment in group] == segments
        assert all(sum(s.size for s in group) <= size_max or len(group) == 1 for group in groups)
    assert len(group_segments(segments, 10_000, 8, 10**6)) >= 1
    far = group_segments(segments, 10_000, 10_000_000, 2**31 + 5)
    assert len(far) == 2, "offsets of a segment reach 2**31 - 1 above its base"


def test_a_segment_that_loses_all_records_is_empty(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"))
    target.roll()
    append_keyed(target, bench, ("a", "2"))
    target.roll()
    bench.fs.set_mtime_ms(target.segments.first.path, 1234)
    target.update_config(bench.settings(**SETTINGS, segment_bytes=100))  # no room to join them
    compact(target, bench)
    assert [segment.size > 0 for segment in target.segments] == [False, True, False]
    assert target.segments.first.largest_timestamp == 1234
    assert target.read(0, 1000, isolation=FetchIsolation.LOG_END, min_one_message=True).size > 0
    target.invariants()


def test_readers_of_old_segments_continue(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"))
    append_keyed(target, bench, ("a", "2"))
    target.roll()
    data = target.read(0, 1000, isolation=FetchIsolation.LOG_END, min_one_message=True)
    before = segment_bytes(target)[0]
    compact(target, bench)
    bench.clock.advance_ms(60_000)
    bench.scheduler.run_due()
    assert data.slice is not None
    assert data.slice.read() == before


def test_the_high_watermark_at_the_end_of_a_cleaned_segment_limits_reads(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"), ("b", "1"))
    append_keyed(target, bench, ("a", "2"), ("b", "2"))
    assert target.high_watermark_metadata.position > 0
    target.roll()
    compact(target, bench)
    data = target.read(0, 10_000, isolation=FetchIsolation.HIGH_WATERMARK, min_one_message=True)
    assert data.slice is not None
    assert len(data.slice.read()) == data.size == target.segments.first.size


# What happens to the log meanwhile


def test_a_truncated_log_refuses_the_cleaned_segment(bench: Bench) -> None:
    target = bench.open(**SETTINGS, segment_bytes=300)
    for number in range(12):
        append_keyed(target, bench, (f"k{number % 3}", str(number)))
    target.roll()
    calls = 0

    def check(_wait_ms: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            target.truncate_to(2)

    with pytest.raises(CleaningAbortedError):
        compact(target, bench, check=check)
    assert keyed_contents(target) == [(0, "k0", "0"), (1, "k1", "1")]
    assert not [e.name for e in bench.fs.listdir(bench.directory) if e.name.endswith((".cleaned", ".swap"))]
    target.invariants()


def test_a_round_on_a_deleted_log_is_abandoned(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    append_keyed(target, bench, ("a", "1"), ("a", "2"))
    target.roll()
    with pytest.raises(CleaningAbortedError):
        compact(target, bench, check=lambda _wait_ms: target.rename_for_delete())


def test_a_round_is_abandoned_if_retention_deleted_its_segments(bench: Bench) -> None:
    target = bench.open(**SETTINGS, segment_bytes=300)
    for number in range(12):
        append_keyed(target, bench, (f"k{number % 3}", str(number)))
    target.roll()
    first = target.segments.all[:2]
    dirty, uncleanable = cleanable_offsets(target, None, bench.clock.wall_ms())
    work = log_to_clean(target, dirty, uncleanable)
    gone = False

    def check(_wait_ms: int) -> None:
        nonlocal gone
        if not gone:
            gone = True
            target.delete_segments(first, "test")

    with pytest.raises(CleaningAbortedError):
        compact(target, bench, check=check)
    assert work.cleanable_bytes > 0
    assert target.segments.first.base_offset == target.log_start_offset
    target.invariants()
