"""Damaged transaction indexes (wrong, cut short or missing) beside whole and damaged batches.

Logs are random: interleaved transactions over several segments, some of them compacted, some without their beginning. A
read_committed reader never gets an aborted record. If only an index was damaged, it is afterwards what it was, byte for
byte. Tests `storage/segments/txn_checksums.py`, `storage/segments/txn_index.py` and `storage/log/recovery.py`.
"""

from __future__ import annotations

import contextlib
import logging
import random
import struct
from collections.abc import Callable, Iterator
from functools import cache

import pytest

from barnabas.broker.storage.directories.names import TXN_INDEX_FILE
from barnabas.broker.storage.log.log import AppendOrigin, FetchIsolation, Log
from barnabas.broker.storage.segments.txn_index import ENTRY_SIZE, AbortedTxn, TransactionIndex
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.protocol.errors import ApiError, ErrorCode, MalformedMessageError
from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker, iter_headers
from tests.support.broker.compaction import compact, keyed_contents
from tests.support.broker.storage_bench import Bench, consumed
from tests.support.sample import sample

SETTINGS = {"segment_bytes": 900, "index_interval_bytes": 150, "compact": True, "delete": False}
SEEDS = pytest.mark.parametrize("seed", sample(range(4), 3))  # one even, one odd
DAY_MS = 86_400_000
COMMITTED = FetchIsolation.TXN_COMMITTED
Records = list[tuple[int, str]]


class Writer:
    """Writes at random as four producers, each of which may have an open transaction."""

    def __init__(self, bench: Bench, target: Log, seed: int, first_producer: int = 1) -> None:
        self._bench = bench
        self._target = target
        self._chance = random.Random(seed)
        self._open: dict[int, Records] = {}
        self._sequences = dict.fromkeys(range(first_producer, first_producer + 4), 0)
        self.committed: Records = []

    def write(self, count: int) -> None:
        for _ in range(count):
            producer = self._chance.choice(list(self._sequences))
            if producer in self._open and self._chance.random() < 0.3:
                self.end(producer, self._chance.choice([ControlType.ABORT, ControlType.ABORT, ControlType.COMMIT]))
            else:
                self._data(producer)
        self._target.update_high_watermark(self._target.log_end_offset)

    def end(self, producer: int, kind: ControlType) -> None:
        records = self._open.pop(producer)
        self.committed += records if kind is ControlType.COMMIT else []
        append_marker(self._bench, self._target, producer, kind)

    def end_all(self) -> None:
        for producer in list(self._open):
            self.end(producer, ControlType.ABORT)
        self._target.update_high_watermark(self._target.log_end_offset)

    def _data(self, producer: int) -> None:
        self._bench.clock.advance_ms(1000)
        sequence, self._sequences[producer] = self._sequences[producer], self._sequences[producer] + 1
        value = f"{producer}-{sequence}"
        batch = build_batch(
            [SimpleRecord(self._bench.clock.wall_ms(), b"k%d" % self._chance.randrange(12), value.encode())],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        info = self._target.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0)
        self._open.setdefault(producer, []).append((info.first_offset, value))


def append_marker(bench: Bench, target: Log, producer: int, kind: ControlType) -> None:
    now_ms = bench.clock.wall_ms()
    marker = end_txn_marker(kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=now_ms)
    target.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, origin=AppendOrigin.COORDINATOR)


class Stopped:
    """A disk after a clean stop, and the facts about its log."""

    def __init__(self, bench: Bench, target: Log) -> None:
        self.start, self.end, self.last_base = (
            target.log_start_offset,
            target.log_end_offset,
            target.segments.active.base_offset,
        )
        self.views = views(target)
        self._now_ms = bench.clock.wall_ms()
        target.flush()
        target.close()
        assert isinstance(bench.fs, MemoryFileSystem)
        self.fs = bench.fs
        self._directory = bench.directory
        paths = [f"{self._directory}/{entry.name}" for entry in self.fs.listdir(self._directory)]
        self.indexes = {path: self.fs.read_bytes(path) for path in paths if path.endswith(".txnindex")}
        self.indexes = {path: content for path, content in self.indexes.items() if content}
        self.logs = [path for path in paths if path.endswith(".log") and self.fs.size(path)]

    def disk(self, *, has_checksums: bool = True) -> MemoryFileSystem:
        copy = self.fs.kill()
        if not has_checksums:
            copy.unlink(f"{self._directory}/{TXN_INDEX_FILE}")
        return copy

    def bench(self, fs: MemoryFileSystem) -> Bench:
        bench = Bench(fs)
        bench.clock.advance_ms(self._now_ms - bench.clock.wall_ms())
        return bench

    def opened(self, fs: MemoryFileSystem, *, clean: bool = True) -> Log:
        """Open the log; after a crash only the last segment needs recovery."""
        bench, recovery_point = self.bench(fs), self.end if clean else self.last_base
        target = bench.open(clean=clean, recovery_point=recovery_point, log_start_offset=self.start, **SETTINGS)
        target.update_high_watermark(target.log_end_offset)
        return target


Made = Callable[[int], Stopped]


def views(target: Log) -> list[Records]:
    """Return the records of read_committed readers that begin at every third offset."""
    starts = range(target.log_start_offset, target.log_end_offset, 3)
    return [list(consumed(target, COMMITTED, start)) for start in starts]


def written(seed: int) -> tuple[Bench, Log, Writer]:
    bench = Bench()
    target = bench.open(**SETTINGS)
    writer = Writer(bench, target, seed)
    writer.write(70)
    return bench, target, writer


@cache
def plain(seed: int) -> Stopped:
    bench, target, writer = written(seed)
    if seed % 2:
        writer.end_all()
    stopped = Stopped(bench, target)
    stable = target.last_stable_offset
    assert stopped.views[0] == sorted(record for record in writer.committed if record[0] < stable)
    assert len(stopped.indexes) >= 3
    return stopped


@cache
def compacted(seed: int) -> Stopped:
    """Compact once or twice, then write more: some transactions have lost markers, entries and first batches."""
    bench, target, writer = written(seed)
    end = compact(target, bench)
    if seed % 2:
        writer.write(40)
        bench.clock.advance_ms(2 * DAY_MS)
        compact(target, bench, first_dirty=end)
    writer.write(40)
    return Stopped(bench, target)


@cache
def without_beginning(seed: int) -> Stopped:
    """Delete the first segment by retention, and half of the next by DeleteRecords."""
    bench, target, _ = written(seed)
    target.delete_segments([target.segments.first], "retention")
    target.maybe_increment_log_start_offset(target.segments.first.base_offset + 4, "DeleteRecords")
    return Stopped(bench, target)


def batches_of_producers(stopped: Stopped) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for path in stopped.logs:
        for _, header in iter_headers(stopped.fs.read_bytes(path)):
            if not header.is_control:
                found.setdefault(header.producer_id, []).append(header.base_offset)
    return found


def damages(stopped: Stopped, path: str) -> Iterator[bytes]:
    """Yield damaged contents: entries lost at either end, first offsets of the producer's other batches, bit flips."""
    whole = stopped.indexes[path]
    for end in range(0, len(whole), ENTRY_SIZE):
        yield whole[:end]
        yield whole[end + ENTRY_SIZE :]
    batches = batches_of_producers(stopped)
    for at in range(0, len(whole), ENTRY_SIZE):
        producer, first = struct.unpack_from(">qq", whole, at + 2)
        for other in batches.get(producer, []):
            if other != first:
                yield whole[: at + 10] + struct.pack(">q", other) + whole[at + 18 :]
    chance = random.Random(len(whole))
    for _ in range(20):
        flipped = bytearray(whole)
        flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        yield bytes(flipped)


def each_damage(stopped: Stopped, *, has_checksums: bool) -> Iterator[tuple[MemoryFileSystem, str]]:
    for path in stopped.indexes:
        for content in damages(stopped, path):
            if content or has_checksums:  # otherwise: an index of Apache Kafka is lost whole, which goes unnoticed
                fs = stopped.disk(has_checksums=has_checksums)
                fs.write_bytes(path, content, sync=True)
                yield fs, path


@SEEDS
@pytest.mark.parametrize("has_checksums", [True, False])
@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_index_is_rebuilt(seed: int, has_checksums: bool, clean: bool) -> None:
    stopped = plain(seed)
    found = list(each_damage(stopped, has_checksums=has_checksums))
    for fs, path in random.Random(seed).sample(found, min(len(found), 40)):
        target = stopped.opened(fs, clean=clean)
        assert fs.read_bytes(path) == stopped.indexes[path]
        assert list(consumed(target, COMMITTED)) == stopped.views[0]


@SEEDS
@pytest.mark.parametrize("made", [compacted, without_beginning])
@pytest.mark.parametrize("has_checksums", [True, False])
def test_readers_see_no_difference_if_batches_are_gone(seed: int, made: Made, has_checksums: bool) -> None:
    stopped = made(seed)
    assert stopped.indexes
    found = list(each_damage(stopped, has_checksums=has_checksums))
    for fs, _ in random.Random(seed).sample(found, min(len(found), 8)):
        assert views(stopped.opened(fs)) == stopped.views


@SEEDS
@pytest.mark.parametrize("has_checksums", [True, False])
def test_a_cleaner_sees_no_difference_either(seed: int, has_checksums: bool) -> None:
    stopped = compacted(seed)
    disk = stopped.disk()
    control = stopped.opened(disk)
    compact(control, stopped.bench(disk), first_dirty=0)
    found = list(each_damage(stopped, has_checksums=has_checksums))
    for fs, _ in random.Random(seed).sample(found, 5):
        target = stopped.opened(fs)
        compact(target, stopped.bench(fs), first_dirty=0)
        assert keyed_contents(target) == keyed_contents(control)
        assert views(target) == views(control)


@SEEDS
@pytest.mark.parametrize("made", [plain, compacted, without_beginning])
def test_whole_indexes_are_accepted(seed: int, made: Made, caplog: pytest.LogCaptureFixture) -> None:
    stopped = made(seed)
    fs = stopped.disk()
    with caplog.at_level(logging.WARNING):
        target = stopped.opened(fs)
    assert not caplog.records
    assert {path: fs.read_bytes(path) for path in stopped.indexes} == stopped.indexes
    assert views(target) == stopped.views


@SEEDS
@pytest.mark.parametrize("made", [plain, compacted, without_beginning])
def test_whole_indexes_are_kept_when_others_are_rebuilt(seed: int, made: Made) -> None:
    stopped = made(seed)
    fs = stopped.disk()
    for path in stopped.logs:
        fs.unlink(path.replace(".log", ".index"))
    assert views(stopped.opened(fs)) == stopped.views
    assert {path: fs.read_bytes(path) for path in stopped.indexes} == stopped.indexes


@SEEDS
def test_a_rebuilt_index_is_confirmed_at_the_next_start(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    stopped = plain(seed)
    fs = stopped.disk(has_checksums=False)
    stopped.opened(fs).close()
    assert len(caplog.records) == len(stopped.indexes)
    caplog.clear()
    stopped.opened(fs)
    assert not caplog.records


@SEEDS
@pytest.mark.parametrize("has_checksums", [True, False])
def test_damaged_batches_remove_no_entry(seed: int, has_checksums: bool) -> None:
    """For example a marker with a flipped producer id: its transaction's records must not be served."""
    stopped = plain(seed)
    chance = random.Random(seed)
    for path in stopped.logs:
        whole = stopped.fs.read_bytes(path)
        bare = {at + byte for at, _ in iter_headers(whole) for byte in (*range(8), *range(12, 16))}
        for index in chance.sample(sorted(set(range(len(whole))) - bare), 20):
            fs = stopped.disk(has_checksums=has_checksums)
            fs.open(path).pwrite(bytes([whole[index] ^ 1 << chance.randrange(8)]), index)
            assert_beginning(stopped.opened(fs), stopped.views[0])


@SEEDS
def test_an_index_that_cannot_be_rebuilt_is_refused(seed: int) -> None:
    stopped = plain(seed)
    chance = random.Random(seed)
    for path in stopped.indexes:
        log_path = path.replace(".txnindex", ".log")
        for content in damages(stopped, path):
            fs = stopped.disk()
            fs.write_bytes(path, content, sync=True)
            at = fs.size(log_path) - chance.randrange(1, 60)
            fs.open(log_path).pwrite(bytes([fs.open(log_path).pread(1, at)[0] ^ 4]), at)
            assert_beginning(stopped.opened(fs), stopped.views[0])


def assert_beginning(target: Log, whole: Records) -> None:
    """Assert that a reader gets a prefix of the committed records, and is then perhaps refused."""
    given: Records = []
    with contextlib.suppress(ApiError, MalformedMessageError):
        for record in consumed(target, COMMITTED):
            given.append(record)
    assert given == whole[: len(given)]


# While the broker runs


def aborted_once(bench: Bench, **settings: object) -> Log:
    target = bench.open(**{**SETTINGS, **settings})
    writer = Writer(bench, target, 0)
    writer.write(12)
    writer.end_all()
    assert not target.segments.active.txn_index.is_empty
    return target


def test_an_index_that_changes_under_a_running_broker_is_refused(bench: Bench) -> None:
    target = aborted_once(bench)
    expected = views(target)
    path = target.segments.active.txn_index.path
    whole = bench.fs.read_bytes(path)
    bench.fs.write_bytes(path, whole[:-ENTRY_SIZE], sync=True)
    with pytest.raises(ApiError) as refused:
        views(target)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    target.close()
    assert views(reopened(bench, target)) == expected
    assert bench.fs.read_bytes(path) == whole


def test_a_log_whose_index_changed_can_be_truncated_and_appended_to(bench: Bench) -> None:
    target = aborted_once(bench, segment_bytes=1 << 20)
    index = target.segments.active.txn_index
    (*_, last) = index.entries()
    bench.fs.write_bytes(index.path, b"", sync=True)
    target.truncate_to(last.first_offset)
    for entry in target.active_producers():
        append_marker(bench, target, entry.producer_id, ControlType.ABORT)
    writer = Writer(bench, target, 1, first_producer=5)
    writer.write(12)
    writer.end_all()
    with pytest.raises(ApiError, match="does not have the content that was written"):
        views(target)
    target.close()
    assert list(consumed(reopened(bench, target), COMMITTED, last.first_offset)) == sorted(writer.committed)


def reopened(bench: Bench, target: Log) -> Log:
    again = bench.open(clean=True, recovery_point=target.log_end_offset, **SETTINGS)
    again.update_high_watermark(again.log_end_offset)
    return again


@pytest.mark.parametrize("names_survive", [True, False])
def test_a_recovery_point_at_a_segments_end_does_not_skip_its_index(bench: Bench, names_survive: bool) -> None:
    """A power cut after a roll, before the segment is flushed again: recovery begins after it."""
    target = aborted_once(bench, segment_bytes=1 << 20)
    target.flush()
    expected, point = views(target), target.recovery_point
    assert point == target.log_end_offset
    target.roll()
    assert isinstance(bench.fs, MemoryFileSystem)
    after = Bench(bench.fs.crash(names_survive=names_survive))
    again = after.open(clean=False, recovery_point=point, **SETTINGS)
    again.update_high_watermark(again.log_end_offset)
    assert views(again) == expected


def test_a_log_without_aborted_transactions_has_no_checksum_file(bench: Bench) -> None:
    target = bench.open(**SETTINGS)
    for number in range(30):
        bench.append(target, f"v{number}")
    target.flush()
    target.close()
    assert not bench.fs.exists(f"{bench.directory}/{TXN_INDEX_FILE}")


def test_segments_that_were_flushed_need_no_clean_stop(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    target = bench.open(**SETTINGS)
    Writer(bench, target, 1).write(70)
    target.flush()
    assert isinstance(bench.fs, MemoryFileSystem)
    with caplog.at_level(logging.WARNING):
        Bench(bench.fs.crash()).open(clean=False, recovery_point=target.recovery_point, **SETTINGS)
    assert "no checksum confirms" not in caplog.text


class Moving(MemoryFileSystem):
    """Renames an index between a reader's look-up of its path and the read."""

    index: TransactionIndex | None = None

    def read_bytes(self, path: str) -> bytes:
        if self.index is not None and path == "/d/old":
            self.index.rename("/d/new")
        return super().read_bytes(path)


def test_a_reader_follows_an_index_to_its_new_name() -> None:
    fs = Moving()
    fs.mkdir("/d")
    index = TransactionIndex(fs, "/d/old", 0)
    index.append(AbortedTxn(7, 0, 5, 6))
    fs.index = index
    assert list(index.entries()) == [AbortedTxn(7, 0, 5, 6)]
    assert index.path == "/d/new"
