"""The log: appending, reading, high watermark and last stable offset, truncating, rolling, failing.

Tests `storage/log/log.py` and its components: `storage/log/log_state.py`, `storage/log/appender.py`,
`storage/log/flusher.py`, `storage/log/segment_keeper.py`, `storage/log/reader.py`; and `storage/log/log_types.py`.
"""

from __future__ import annotations

import pytest

from barnabas.broker.storage.log.log import (
    AppendOrigin,
    FetchIsolation,
    Log,
    LogOffsetMetadata,
    UnexpectedAppendOffsetError,
)
from barnabas.broker.storage.log.log_types import AbortedTransaction, TimestampOffset
from barnabas.common.disk.faulty_files import DiskFaultError, FaultyFileSystem, MemoryFile, MemoryFileSystem
from barnabas.common.disk.files import OsFileSystem
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.records.batch import (
    ControlType,
    end_txn_marker,
    iter_headers,
    iter_records,
    read_header,
    verify_crc,
)
from tests.support.broker.storage_bench import Bench, contents


def refused(code: ErrorCode, job, *args, **kwargs) -> ApiError:
    with pytest.raises(ApiError) as caught:
        job(*args, **kwargs)
    assert caught.value.code is code, caught.value
    return caught.value


def read(target: Log, offset: int, size: int = 1 << 20, isolation=FetchIsolation.LOG_END, least=True):
    return target.read(offset, size, isolation=isolation, min_one_message=least)


def test_offsets_and_epoch_are_assigned_in_place(bench: Bench) -> None:
    target = bench.open()
    bench.append(target, "a", "b")
    records = bench.batch("c", "d", "e")
    info = target.append_as_leader(records, leader_epoch=4)
    assert (info.first_offset, info.last_offset, info.record_count, info.leader_epoch) == (2, 4, 3, 4)
    assert (info.log_append_time_ms, info.log_start_offset, info.is_duplicate) == (-1, 0, False)
    header = read_header(records)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 4)
    verify_crc(records, 0, header)
    assert target.leader_epoch_cache.entries == [(0, 0), (4, 2)]
    assert contents(target) == [(0, "a"), (1, "b"), (2, "c"), (3, "d"), (4, "e")]
    target.invariants()


def test_a_read_only_buffer_is_copied(bench: Bench) -> None:
    target = bench.open()
    bench.append(target, "a")
    frozen = bytes(bench.batch("b"))
    assert target.append_as_leader(memoryview(frozen), leader_epoch=0).first_offset == 1
    assert read_header(frozen).base_offset == 0


def test_reads_begin_at_a_batch_and_honour_sizes(bench: Bench) -> None:
    target = bench.open()
    for value in ("a", "b", "c"):
        bench.append(target, value, value)
    size = len(bench.batch("a", "a"))
    assert read(target, 3, size).slice.read() == read(target, 2, size).slice.read()
    assert read(target, 0, 2 * size + 5).size == 2 * size + 5
    assert read(target, 2).size == 2 * size
    assert read(target, 0, 1).size == size
    for less in (0, 1, size - 1):  # bytes without a whole batch are of no use
        assert read(target, 0, less, least=False).slice is None
        assert read(target, 2, less, least=False).slice is None
    assert read(target, 0, size, least=False).size == size
    assert read(target, 0, size + 1, least=False).size == size + 1
    assert read(target, 6).slice is None
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, read, target, 7)
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, read, target, -1)


def test_reads_after_a_restart_find_batches_by_the_index(bench: Bench) -> None:
    target = bench.open(index_interval_bytes=100)
    for number in range(300):
        bench.append(target, f"v{number}", "w")
    target.close()
    again = bench.open(clean=True, index_interval_bytes=100)
    for offset in (0, 1, 299, 300, 598, 599):
        slice_ = read(again, offset, 1).slice
        header = read_header(slice_.read())
        assert header.base_offset <= offset <= header.last_offset
    assert len(contents(again)) == 600


def test_consumers_stop_at_the_high_watermark(bench: Bench) -> None:
    target = bench.open()
    for value in ("a", "b", "c"):
        target.append_as_leader(bench.batch(value), leader_epoch=0)
    limited = FetchIsolation.HIGH_WATERMARK
    assert read(target, 0, isolation=limited).slice is None
    assert target.update_high_watermark(2)
    assert not target.update_high_watermark(2)
    assert contents(target, isolation=limited) == [(0, "a"), (1, "b")]
    assert read(target, 2, isolation=limited).slice is None
    assert target.update_high_watermark(99)
    assert target.high_watermark == 3
    assert contents(target, isolation=limited) == [(0, "a"), (1, "b"), (2, "c")]
    target.invariants()


def test_a_high_watermark_without_a_position_is_looked_up(bench: Bench) -> None:
    target = bench.open()
    for value in "abcdef":
        bench.append(target, value)
    target.close()
    again = bench.open(clean=True)
    again.update_high_watermark(4)
    assert contents(again, isolation=FetchIsolation.HIGH_WATERMARK) == [(i, "abcdef"[i]) for i in range(4)]
    assert again.high_watermark_metadata.position > 0


def test_rolling_by_size_keeps_reads_whole(bench: Bench) -> None:
    target = bench.open(segment_bytes=500, index_interval_bytes=50)
    for number in range(40):
        bench.append(target, f"v{number}")
    assert target.num_segments > 5
    assert contents(target) == [(i, f"v{i}") for i in range(40)]
    assert all(segment.size <= 500 for segment in target.segments)
    target.invariants()


def test_rolling_by_time(bench: Bench) -> None:
    target = bench.open(max_segment_ms=1000)
    bench.append(target, "a")
    bench.clock.advance_ms(1000)
    bench.append(target, "b")
    assert target.num_segments == 1
    bench.clock.advance_ms(1)
    bench.append(target, "c")
    assert [segment.base_offset for segment in target.segments] == [0, 2]


def test_rolling_when_an_index_is_full(bench: Bench) -> None:
    target = bench.open(segment_index_bytes=8 * 3, index_interval_bytes=1)
    for number in range(20):
        bench.append(target, f"v{number}")
        bench.clock.advance_ms(1)
    assert target.num_segments > 3
    assert contents(target) == [(i, f"v{i}") for i in range(20)]


def test_a_batch_larger_than_a_segment(bench: Bench) -> None:
    target = bench.open(segment_bytes=100)
    refused(ErrorCode.RECORD_LIST_TOO_LARGE, bench.append, target, "x" * 200)
    assert target.log_end_offset == 0


def test_log_append_time(bench: Bench) -> None:
    target = bench.open(message_timestamp_type="LogAppendTime")
    records = bench.batch("a", timestamp=5)
    info = target.append_as_leader(records, leader_epoch=0)
    assert info.log_append_time_ms == info.max_timestamp == bench.clock.wall_ms()
    verify_crc(records, 0, read_header(records))
    assert [record.timestamp for record in iter_records(records)] == [bench.clock.wall_ms()]


# Producers


def idempotent(bench: Bench, value: str, sequence: int, epoch: int = 0, producer_id: int = 7, **options):
    return bench.batch(value, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def test_a_retry_is_recognised_among_the_last_five(bench: Bench) -> None:
    target = bench.open()
    for sequence in range(6):
        target.append_as_leader(idempotent(bench, "v", sequence), leader_epoch=0)
    info = target.append_as_leader(idempotent(bench, "v", 1), leader_epoch=0)
    assert (info.is_duplicate, info.first_offset, info.last_offset) == (True, 1, 1)
    assert target.log_end_offset == 6
    refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, target.append_as_leader, idempotent(bench, "v", 0), leader_epoch=0)


def test_sequences_and_epochs(bench: Bench) -> None:
    target = bench.open()
    target.append_as_leader(idempotent(bench, "a", 0), leader_epoch=0)
    for sequence in (2, 99):
        refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            target.append_as_leader,
            idempotent(bench, "x", sequence),
            leader_epoch=0,
        )
    refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        target.append_as_leader,
        idempotent(bench, "x", 1, epoch=1),
        leader_epoch=0,
    )
    target.append_as_leader(idempotent(bench, "b", 0, epoch=1), leader_epoch=0)
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, target.append_as_leader, idempotent(bench, "x", 1), leader_epoch=0)
    target.append_as_leader(idempotent(bench, "c", 500, producer_id=8), leader_epoch=0)  # unknown: any first sequence
    assert [value for _, value in contents(target)] == ["a", "b", "c"]


def test_sequences_wrap(bench: Bench) -> None:
    target = bench.open()
    target.append_as_leader(idempotent(bench, "a", 2**31 - 1), leader_epoch=0)
    target.append_as_leader(idempotent(bench, "b", 0), leader_epoch=0)
    assert target.append_as_leader(idempotent(bench, "b", 0), leader_epoch=0).is_duplicate


def test_open_transactions_bound_the_last_stable_offset(bench: Bench) -> None:
    target = bench.open(index_interval_bytes=1)
    bench.append(target, "before")
    transactional = {"is_transactional": True}
    target.append_as_leader(idempotent(bench, "aborted", 0, **transactional), leader_epoch=0)
    target.append_as_leader(idempotent(bench, "kept", 0, producer_id=8, **transactional), leader_epoch=0)
    bench.append(target, "plain")
    committed = FetchIsolation.TXN_COMMITTED
    assert (target.high_watermark, target.last_stable_offset) == (4, 1)
    assert contents(target, isolation=committed) == [(0, "before")]
    marker(bench, target, ControlType.ABORT, 7)
    assert target.last_stable_offset == 1, "the marker is not below the high watermark"
    target.update_high_watermark(5)
    assert target.last_stable_offset == 2
    marker(bench, target, ControlType.COMMIT, 8)
    target.update_high_watermark(6)
    assert target.last_stable_offset == 6
    data = read(target, 0, isolation=committed)
    assert data.aborted_transactions == [AbortedTransaction(7, 1)]
    assert read(target, 5, isolation=committed).aborted_transactions == []
    assert read(target, 0).aborted_transactions is None
    target.invariants()


def marker(bench: Bench, target: Log, kind: ControlType, producer_id: int, coordinator_epoch: int = 1) -> None:
    batch = end_txn_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=0,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=bench.clock.wall_ms(),
    )
    target.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0, origin=AppendOrigin.COORDINATOR)


def test_a_zombie_coordinator_is_fenced(bench: Bench) -> None:
    target = bench.open()
    target.append_as_leader(idempotent(bench, "a", 0, is_transactional=True), leader_epoch=0)
    marker(bench, target, ControlType.COMMIT, 7, coordinator_epoch=5)
    refused(ErrorCode.TRANSACTION_COORDINATOR_FENCED, marker, bench, target, ControlType.COMMIT, 7, 4)


def test_a_non_transactional_batch_within_a_transaction_is_refused(bench: Bench) -> None:
    target = bench.open()
    target.append_as_leader(idempotent(bench, "a", 0, is_transactional=True), leader_epoch=0)
    refused(ErrorCode.INVALID_TXN_STATE, target.append_as_leader, idempotent(bench, "b", 1), leader_epoch=0)


def test_idle_producers_expire(bench: Bench) -> None:
    target = bench.open()
    target.append_as_leader(idempotent(bench, "a", 0), leader_epoch=0)
    bench.clock.advance_ms(86_400_000 - 1)
    assert target.remove_expired_producers() == 0
    bench.clock.advance_ms(1)
    assert target.remove_expired_producers() == 1


# Followers


def copied(leader: Log) -> memoryview:
    return memoryview(read(leader, leader.log_start_offset).slice.read())


def test_a_follower_appends_the_leaders_batches(bench: Bench) -> None:
    leader, follower = bench.open(), Bench().open(segment_bytes=400)
    for value in "abcdefgh":
        bench.append(leader, value, value, leader_epoch=2)
    data = copied(leader)
    info = follower.append_as_follower(data[:-3])
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 13, 14)
    info = follower.append_as_follower(data[-len(bench.batch("a", "a")) :])
    assert info.last_offset == 15
    assert contents(follower) == contents(leader)
    assert follower.num_segments > 1
    assert follower.leader_epoch_cache.entries == [(2, 0)]
    follower.invariants()


def test_a_follower_refuses_decreasing_epochs(bench: Bench) -> None:
    follower = bench.open()

    def batches(*epochs: int) -> memoryview:
        first = follower.log_end_offset
        made = [bench.batch("v", base_offset=first + n, leader_epoch=epoch) for n, epoch in enumerate(epochs)]
        return memoryview(b"".join(made))

    assert follower.append_as_follower(batches(0, 2, 2, 5), leader_epoch=7).last_offset == 3
    before = follower.leader_epoch_cache.entries
    assert before == [(0, 0), (2, 1), (5, 3)]
    error = refused(ErrorCode.CORRUPT_MESSAGE, follower.append_as_follower, batches(3, 5), leader_epoch=7)
    assert "has leader epoch 3, but the records before it have 5" in str(error)
    assert (follower.log_end_offset, follower.leader_epoch_cache.entries) == (4, before)
    assert follower.append_as_follower(batches(5, 6, 5, 7), leader_epoch=7).last_offset == 5, (
        "the batches before the one with a lower epoch"
    )
    assert follower.leader_epoch_cache.entries == [*before, (6, 5)]


def test_a_former_leader_that_wrote_nothing_follows_records_of_an_earlier_epoch(bench: Bench) -> None:
    """Its epoch began at its end. The present leader has records of an older epoch at that offset."""
    log = bench.open()
    log.append_as_follower(bench.batch("a", leader_epoch=4), leader_epoch=4)
    log.leader_epoch_cache.assign(5, 1)
    log.truncate_to(1)  # by the new leader, which does not know epoch 5
    assert log.append_as_follower(bench.batch("b", base_offset=1, leader_epoch=4), leader_epoch=6).last_offset == 1
    assert log.leader_epoch_cache.entries == [(4, 0)]


def test_a_follower_refuses_batches_that_do_not_continue_its_log(bench: Bench) -> None:
    leader, follower = bench.open(), Bench().open()
    bench.append(leader, "a")
    bench.append(leader, "b")
    follower.append_as_follower(copied(leader))
    with pytest.raises(UnexpectedAppendOffsetError):
        follower.append_as_follower(copied(leader))
    damaged = bytearray(bench.batch("x", base_offset=2))
    damaged[-1] ^= 1
    refused(ErrorCode.CORRUPT_MESSAGE, follower.append_as_follower, memoryview(damaged))
    assert (
        follower.append_as_follower(bench.batch("z", base_offset=2, leader_epoch=9), leader_epoch=8).record_count == 0
    )
    assert follower.log_end_offset == 2
    assert follower.append_as_follower(bench.batch("c", base_offset=10)).last_offset == 10
    assert contents(follower) == [(0, "a"), (1, "b"), (10, "c")]


def test_a_followers_empty_log_begins_with_the_batch_that_its_leaders_start_is_in(bench: Bench) -> None:
    leader, follower = bench.open(), Bench().open()
    bench.append(leader, *"abcdefghij")
    bench.append(leader, "k")
    leader.maybe_increment_log_start_offset(5, "a test")
    follower.truncate_fully_and_start_at(5)
    info = follower.append_as_follower(copied(leader), leader_epoch=1)
    assert (info.first_offset, info.last_offset) == (0, 10)
    assert contents(follower) == [(offset, value) for offset, value in enumerate("abcdefghijk")]
    assert (follower.recovery_point, follower.high_watermark) == (0, 0)
    follower.invariants()


def test_a_followers_log_is_kept_if_the_batch_does_not_reach_beyond_its_end_or_it_has_records(bench: Bench) -> None:
    leader, empty, filled = bench.open(), Bench().open(), Bench().open()
    bench.append(leader, *"abcdefghij")
    empty.truncate_fully_and_start_at(10)
    filled.truncate_fully_and_start_at(5)
    filled.append_as_follower(bench.batch("f", base_offset=5))
    for follower in (empty, filled):
        before = (follower.log_start_offset, follower.log_end_offset)
        with pytest.raises(UnexpectedAppendOffsetError):
            follower.append_as_follower(copied(leader))
        assert (follower.log_start_offset, follower.log_end_offset) == before


def test_the_metadata_log_assigns_its_own_offsets(bench: Bench) -> None:
    target = bench.open()
    records = bench.batch("a", base_offset=0, leader_epoch=3)
    target.append_as_leader(records, leader_epoch=3, origin=AppendOrigin.RAFT_LEADER)
    wrong = bench.batch("b", base_offset=1, leader_epoch=2)
    refused(ErrorCode.INVALID_RECORD, target.append_as_leader, wrong, leader_epoch=3, origin=AppendOrigin.RAFT_LEADER)
    target.flush()
    assert target.recovery_point == 1


# Truncating, deleting


def test_truncation_across_segments(bench: Bench) -> None:
    target = bench.open(segment_bytes=300, index_interval_bytes=50)
    for number in range(30):
        bench.append(target, f"v{number}", leader_epoch=number // 10)
    assert not target.truncate_to(30)
    assert target.truncate_to(17)
    assert (target.log_end_offset, target.high_watermark) == (17, 17)
    assert contents(target) == [(i, f"v{i}") for i in range(17)]
    assert target.leader_epoch_cache.entries == [(0, 0), (1, 10)]
    bench.append(target, "again", leader_epoch=5)
    assert contents(target)[-1] == (17, "again")
    target.invariants()
    bench.clock.advance_ms(60_000)
    bench.scheduler.run_due()
    assert not [entry.name for entry in bench.fs.listdir(bench.directory) if entry.name.endswith(".deleted")]


def test_truncation_into_a_batch_drops_it_whole(bench: Bench) -> None:
    target = bench.open()
    bench.append(target, "a", "b")
    bench.append(target, "c", "d")
    target.truncate_to(3)
    assert contents(target) == [(0, "a"), (1, "b")]
    assert target.log_end_offset == 3, "as in Kafka: the follower continues at the given offset"


def test_truncation_restores_producer_state(bench: Bench) -> None:
    target = bench.open()
    for sequence in range(3):
        target.append_as_leader(idempotent(bench, "v", sequence), leader_epoch=0)
    target.append_as_leader(idempotent(bench, "t", 0, producer_id=8, is_transactional=True), leader_epoch=0)
    target.truncate_to(2)
    assert target.producer_state.entry(8) is None
    assert target.producer_state.first_unstable_offset is None
    assert target.append_as_leader(idempotent(bench, "v", 2), leader_epoch=0).first_offset == 2


def test_a_truncation_above_the_watermark_hides_no_committed_transaction(bench: Bench) -> None:
    """The transactions are rebuilt, and the watermark does not move again until something new is replicated."""
    target = bench.open()
    bench.append(target, "before")
    target.append_as_leader(idempotent(bench, "kept", 0, is_transactional=True), leader_epoch=0)
    marker(bench, target, ControlType.COMMIT, 7)
    target.update_high_watermark(3)
    target.append_as_leader(bench.batch("cut"), leader_epoch=0)
    assert target.truncate_to(3)
    assert (target.high_watermark, target.last_stable_offset) == (3, 3)
    assert contents(target, isolation=FetchIsolation.TXN_COMMITTED) == [(0, "before"), (1, "kept")]


def test_a_damaged_batch_is_told_to_readers_of_either_isolation(bench: Bench) -> None:
    target = bench.open()
    bench.append(target, "a")
    target.append_as_leader(idempotent(bench, "open", 0, is_transactional=True), leader_epoch=0)
    bench.append(target, "b")
    target.close()
    again = bench.open(clean=True, recovery_point=3)
    again.update_high_watermark(3)
    bench.fs.open(f"{bench.directory}/00000000000000000000.log").pwrite(b"\xff\xff\xff\xff", 8)  # a length
    for isolation in (FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED):
        refused(ErrorCode.CORRUPT_MESSAGE, read, again, 0, isolation=isolation)


def test_segments_that_are_deleted_during_a_flush_do_not_fail_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention does not wait for a flush; a missing file must not count as a failed disk."""
    target = bench.open(file_delete_delay_ms=0)
    for number in range(3):
        bench.append(target, f"old {number}")
        target.roll()
    bench.append(target, "new")
    fsync = MemoryFile.fsync

    def delete_meanwhile(file: MemoryFile) -> None:
        monkeypatch.setattr(MemoryFile, "fsync", fsync)
        fsync(file)
        assert target.delete_segments(list(target.segments)[:3], "retention time") == 3
        while (task := bench.scheduler._heap.pop_due()) is not None:
            if task.name == "delete-file":  # another one flushes, and would wait for this flush
                task.job()

    monkeypatch.setattr(MemoryFile, "fsync", delete_meanwhile)
    target.flush()
    assert not target.is_offline
    assert target.recovery_point == target.log_end_offset == 4
    assert isinstance(bench.fs, MemoryFileSystem)
    assert contents(Bench(bench.fs.crash()).open()) == [(3, "new")]


def test_preallocated_space_is_cut_although_the_file_was_let_go(bench: Bench) -> None:
    target = bench.open(preallocate=True, segment_bytes=10_000)
    bench.append(target, "a")
    first = target.active_segment
    assert bench.fs.size(first._files.path) == 10_000
    first._files.let_go()  # as the pool of open files does
    target.roll()
    assert bench.fs.size(first._files.path) == first.size
    bench.append(target, "b")
    target.close()
    again = bench.open(clean=True, recovery_point=2)
    assert [segment.size for segment in again.segments] == [first.size, first.size]


def test_truncating_fully(bench: Bench) -> None:
    target = bench.open(segment_bytes=200)
    for number in range(10):
        bench.append(target, f"v{number}")
    slice_ = read(target, 0).slice
    target.truncate_fully_and_start_at(100)
    assert (target.log_start_offset, target.log_end_offset, target.high_watermark) == (100, 100, 100)
    bench.append(target, "new")
    assert contents(target) == [(100, "new")]
    assert slice_.read(), "an earlier read stays valid"
    target.invariants()


def test_the_log_start_moves_forward_only(bench: Bench) -> None:
    target = bench.open()
    for value in "abc":
        bench.append(target, value)
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, target.maybe_increment_log_start_offset, 4, "test")
    assert target.maybe_increment_log_start_offset(2, "test")
    assert not target.maybe_increment_log_start_offset(1, "test")
    refused(ErrorCode.OFFSET_OUT_OF_RANGE, read, target, 1)
    assert contents(target) == [(2, "c")]
    target.invariants()


# Time


def test_searching_by_time(bench: Bench) -> None:
    target = bench.open(segment_bytes=400, index_interval_bytes=60)
    start = bench.clock.wall_ms() - 10_000
    for number in range(30):
        bench.append(target, "a", "b", timestamp=start + number * 10)
    assert target.fetch_offset_by_timestamp(start) == TimestampOffset(start, 0, 0)
    assert target.fetch_offset_by_timestamp(start + 101) == TimestampOffset(start + 110, 22, 0)
    assert target.fetch_offset_by_timestamp(start + 291) is None
    assert target.fetch_offset_by_timestamp(-3) == TimestampOffset(start + 290, 58, 0)
    assert target.fetch_offset_by_timestamp(-2) == TimestampOffset(-1, 0, 0)
    assert target.fetch_offset_by_timestamp(-1) == TimestampOffset(-1, 60, 0)
    assert target.fetch_offset_by_timestamp(-4) == TimestampOffset(-1, 0, 0), "earliest local: nothing is tiered"
    assert target.fetch_offset_by_timestamp(-5) == TimestampOffset(-1, -1, -1), "latest tiered"
    assert target.fetch_offset_by_timestamp(-6) == TimestampOffset(-1, -1, -1), "earliest pending upload"
    target.maybe_increment_log_start_offset(25, "test")
    assert target.fetch_offset_by_timestamp(start).offset == 25


# The disk fails


def test_a_failed_write_takes_the_log_offline(bench: Bench) -> None:
    inner = MemoryFileSystem()
    inner.mkdir("/data/flights-0")
    disk = FaultyFileSystem(inner, matches=lambda operation, path: operation == "write" and path.endswith(".log"))
    broken = Bench(disk)
    target = broken.open()
    broken.append(target, "kept")
    disk.fail_at = disk.operations + 1
    refused(ErrorCode.KAFKA_STORAGE_ERROR, broken.append, target, "lost")
    refused(ErrorCode.KAFKA_STORAGE_ERROR, broken.append, target, "refused")
    refused(ErrorCode.KAFKA_STORAGE_ERROR, read, target, 0)
    again = Bench(inner)
    assert contents(again.open()) == [(0, "kept")]


def test_a_closed_log_refuses_appends(bench: Bench) -> None:
    target = bench.open()
    target.close()
    target.close()
    refused(ErrorCode.KAFKA_STORAGE_ERROR, bench.append, target, "x")


def test_a_topic_id_is_kept_and_cannot_be_changed(bench: Bench) -> None:
    target = bench.open()
    target.assign_topic_id(b"\x01" * 16)
    target.assign_topic_id(b"\x01" * 16)
    refused(ErrorCode.INCONSISTENT_TOPIC_ID, target.assign_topic_id, b"\x02" * 16)
    target.close()
    assert bench.open(clean=True).topic_id == b"\x01" * 16


def test_flush_messages_flushes_before_the_append_returns(bench: Bench) -> None:
    target = bench.open(flush_messages=1)
    bench.append(target, "a")
    assert target.recovery_point == 1
    assert isinstance(bench.fs, MemoryFileSystem)
    after = Bench(bench.fs.crash())
    assert contents(after.open()) == [(0, "a")]


def test_a_flush_of_recovered_records_reports_the_error_of_the_disk(bench: Bench) -> None:
    bench.append(bench.open(), "a")
    disk = FaultyFileSystem(bench.fs, matches=lambda operation, path: operation == "fsync" and path.endswith(".log"))
    target = Bench(disk).open(flush_messages=1)
    disk.fail_at = disk.operations + 1
    with pytest.raises(DiskFaultError):
        target.flush_recovered()


def test_real_files_send_slices(tmp_path) -> None:
    bench = Bench(OsFileSystem(), str(tmp_path / "flights-0"))
    target = bench.open(preallocate=True, segment_bytes=4096)
    bench.append(target, "a")
    slice_ = read(target, 0).slice
    assert slice_.fileno() >= 0
    target.rename_for_delete()
    target.delete()
    assert [header.base_offset for _, header in iter_headers(slice_.read())] == [0]
    assert not list(tmp_path.iterdir())


def test_locating_offsets(bench: Bench) -> None:
    target = bench.open()
    size = len(bench.batch("a"))
    for value in "abc":
        bench.append(target, value)
    assert target.locate(2) == LogOffsetMetadata(2, 0, 2 * size)
    assert target.locate(3) == LogOffsetMetadata(3, 0, 3 * size)
