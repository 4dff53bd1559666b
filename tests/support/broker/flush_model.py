"""A model of one log whose flushes are interrupted by other work on the log, on a disk that loses power.

The disk is the only place of interruption: before and after each open and fsync, and each fsync of a directory, it
calls the model. Why not single lines of the code: compiled modules have none. Why not threads: one thread with a seed
repeats a failure exactly.

The model knows each record that is in the log, and below which offset the log promised that records are durable. A
power cut does not change the disk itself: the model copies the disk, opens the log from the copy and compares. So one
run has many power cuts, also in the middle of a flush.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.segments.scan import scan_batches
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.common.disk.faulty_files import MemoryFile, MemoryFileSystem
from barnabas.common.disk.files import FileHandle
from tests.support.broker.storage_bench import Bench, contents

DELETE_DELAY_MS: Final = 10
EPOCH_FLUSH_DELAY_MS: Final = 1_000
TRUNCATED_MAX: Final = 12
"""Records that one truncation may cut; more would leave nothing for retention."""

INTERRUPTIONS_MAX: Final = 10
"""Interruptions of one flush. Without a bound, interruptions that roll would schedule flushes without end."""

Interrupt = Callable[[str], None]
"""Called with the path of the file or directory that is about to be used, or was used just now."""


class InterruptibleDisk(MemoryFileSystem):
    """A disk in memory that reports each open and fsync before and after."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupt: Interrupt = _ignore

    def open(self, path: str, *, create: bool = False) -> FileHandle:
        """See FileSystem."""
        self.interrupt(path)
        with self._lock:
            handle = _InterruptibleFile(path, self._inode(path, create=create), self._lock)
        handle.disk = self
        self.interrupt(path)
        return handle

    def fsync_dir(self, path: str) -> None:
        """See FileSystem."""
        self.interrupt(path)
        super().fsync_dir(path)
        self.interrupt(path)


class _InterruptibleFile(MemoryFile):
    """A handle that reports its fsyncs to its disk."""

    disk: InterruptibleDisk

    def fsync(self) -> None:
        """See FileHandle."""
        self.disk.interrupt(self.path)
        super().fsync()
        self.disk.interrupt(self.path)


def _ignore(path: str) -> None:
    """Take in an operation that interrupts nothing."""


class FlushModel:
    """One random life of a log: work, flushes interrupted by work, power cuts. The seed decides everything."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = InterruptibleDisk()
        self.bench = Bench(self.disk)
        batch_bytes = len(self.bench.batch(_value(0)))
        self.settings: dict[str, Any] = {
            "segment_bytes": batch_bytes * self.chance.choice([2, 3, 5, 8]),
            "index_interval_bytes": self.chance.choice([1, batch_bytes, 4096]),
            "file_delete_delay_ms": DELETE_DELAY_MS,
        }
        self.log = self.bench.open(**self.settings)
        self.is_compacted = self.chance.random() < 0.3
        if self.is_compacted:
            self.log.note_gaps()
        self.records: dict[int, str] = {}  # what the log must hold: offset -> value
        self.appended = 0
        self.leader_epoch = 1
        self.checkpoint = 0  # the recovery point that survives a power cut
        self.durable = 0  # flushes that returned promised every record below this offset
        self.flush_end: int | None = None  # what the flush in progress promises; lower after a truncation
        self.interrupt_rate = 0.0
        self.interruptions_left = 0
        self.steps: list[str] = []  # for the report of a failure
        self.disk.interrupt = self._interrupt

    def run(self, steps: int) -> None:
        """Take random steps, then close the log; raises AssertionError if a promise was broken."""
        for _ in range(steps):
            self._step()
            assert not self.log.is_offline, "the log went offline"
            self.log.invariants()
        self._check_power_cuts()
        self._check_close()

    def _step(self) -> None:
        draw = self.chance.random()
        if draw < 0.45:
            self._work()
        elif draw < 0.75:
            self._flush()
        elif draw < 0.86:
            self._run_due_tasks()
        elif draw < 0.9:
            self._rebuild_indexes()
        else:
            self._check_power_cuts()

    # Interruptions

    @contextmanager
    def _interruptions(self) -> Iterator[None]:
        """Have random file operations of the block interrupted by work."""
        self.interrupt_rate = self.chance.choice([0.0, 0.05, 0.2, 0.5])
        self.interruptions_left = INTERRUPTIONS_MAX
        try:
            yield
        finally:
            self.interrupt_rate = 0.0

    def _interrupt(self, path: str) -> None:
        """Do some work here if another thread could: the log's lock is free, and so is that of its epochs' file."""
        rate = self.interrupt_rate
        if not rate or not self.interruptions_left or self._has_locked() or self.chance.random() >= rate:
            return
        self.interruptions_left -= 1
        self.interrupt_rate = 0.0  # work is not interrupted itself
        try:
            self.steps.append(f"interrupted at {path}")
            self._work()
        finally:
            self.interrupt_rate = rate

    def _has_locked(self) -> bool:
        state = self.log._state
        return state.lock.locked() or state.leader_epochs._flush_lock.locked()

    # Work that may come in the middle of a flush

    def _work(self) -> None:
        draw = self.chance.random()
        if draw < 0.5:
            self._append(self.chance.randint(1, 6))
        elif draw < 0.73:
            self._truncate()
        elif draw < 0.75:
            self._restart()
        elif draw < 0.8:
            self._roll()
        elif draw < 0.84:
            self._delete_old_segments()
        elif draw < 0.88:
            self._move_start()
        elif draw < 0.92:
            self._write_checkpoint()
        elif draw < 0.96:
            self._swap_segments()
        else:
            self._check_power_cuts()

    def _append(self, count: int) -> None:
        for _ in range(count):
            value = _value(self.appended)
            self.appended += 1
            offset = self.log.append_as_leader(self.bench.batch(value), leader_epoch=self.leader_epoch).first_offset
            self.records[offset] = value
            self.steps.append(f"append {offset}")
            if self.chance.random() < 0.8:
                self.log.update_high_watermark(self.log.log_end_offset)

    def _offset_to_cut_at(self) -> int | None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        return self.chance.randrange(max(start, end - TRUNCATED_MAX), end) if start < end else None

    def _truncate(self) -> None:
        if (offset := self._offset_to_cut_at()) is not None:
            self.steps.append(f"truncate to {offset}")
            self.log.truncate_to(offset)
            self.records = {each: value for each, value in self.records.items() if each < offset}
            self._note_cut(offset)

    def _restart(self) -> None:
        """Drop everything and begin again, as a follower does that is too far behind."""
        if (offset := self._offset_to_cut_at()) is not None:
            self.steps.append(f"restart at {offset}")
            self.log.truncate_fully_and_start_at(offset)
            self.records = {}
            self._note_cut(offset)

    def _note_cut(self, offset: int) -> None:
        """Take back promises above `offset`; what follows there is new and is of a new leader."""
        self.durable = min(self.durable, offset)
        if self.flush_end is not None:
            self.flush_end = min(self.flush_end, offset)
        self.leader_epoch += 1

    def _roll(self) -> None:
        self.steps.append("roll")
        self.log.roll()

    def _delete_old_segments(self) -> None:
        old = self.log.deletable_segments(_is_not_last)
        if old:
            gone = old[: self.chance.randint(1, len(old))]
            self.steps.append(f"delete segments {_bases(gone)}")
            self.log.delete_segments(gone, "the test")
            self._forget_below_start()

    def _move_start(self) -> None:
        start, high_watermark = self.log.log_start_offset, self.log.high_watermark
        if start < high_watermark:
            offset = self.chance.randint(start, high_watermark)
            self.steps.append(f"move the start to {offset}")
            self.log.maybe_increment_log_start_offset(offset, "the test")
            self._forget_below_start()

    def _forget_below_start(self) -> None:
        start = self.log.log_start_offset
        self.records = {offset: value for offset, value in self.records.items() if offset >= start}

    def _write_checkpoint(self) -> None:
        self.checkpoint = self.log.point_to_checkpoint()
        self.steps.append(f"checkpoint {self.checkpoint}")
        if self.chance.random() < 0.9:
            self.log.note_checkpointed(self.checkpoint)

    def _swap_segments(self) -> None:
        """Replace one or two flushed segments as the cleaner does; the new one has the same records."""
        if not self.is_compacted:
            return
        segments = self.log.segments
        flushed = [
            segment
            for segment, next_base in zip(segments.all, segments.bases[1:], strict=False)
            if next_base <= self.log.recovery_point
        ]
        if flushed:
            first = self.chance.randrange(len(flushed))
            replaced = flushed[first : first + self.chance.randint(1, 2)]
            self.steps.append(f"swap segments {_bases(replaced)}")
            truncations = self.log.truncation_count
            merged = self._merged(replaced)
            with self._second_flush_lock():
                self.log.replace_segments(merged, replaced, truncations)

    def _merged(self, segments: Sequence[LogSegment]) -> LogSegment:
        base_offset = segments[0].base_offset
        config = self.log.config
        merged = LogSegment(self.disk, self.log.directory, base_offset, config, self.bench.clock, suffix=".cleaned")
        for segment in segments:
            for _, header, batch in scan_batches(segment.file, 0, segment.size):
                merged.append(bytes(batch), [(len(batch), header.last_offset, header.max_timestamp)])
        merged.become_inactive()
        merged.flush()
        return merged

    @contextmanager
    def _second_flush_lock(self) -> Iterator[None]:
        """Let a swap end in the middle of a flush.

        Its last action waits for the flush and writes the checksums of aborted transactions, of which there are none
        here. This thread cannot wait, since it is the thread that flushes.
        """
        state = self.log._state
        flush_lock = state.flush_lock
        state.flush_lock = threading.Lock()  # for the block only
        try:
            yield
        finally:
            state.flush_lock = flush_lock

    # Steps that are no part of a flush's interruptions

    def _flush(self) -> None:
        """Flush everything, or what is below the active segment. Afterwards that is promised."""
        is_whole = self.chance.random() < 0.5
        self.flush_end = self.log.log_end_offset if is_whole else self.log.active_segment.base_offset
        self.steps.append(f"flush to {self.flush_end}")
        with self._interruptions():
            if is_whole:
                self.log.flush()
            else:
                self.log.flush_rolled()
        self.durable = max(self.durable, self.flush_end)
        self.flush_end = None
        self.steps.append(f"flushed; recovery point {self.log.recovery_point}")

    def _run_due_tasks(self) -> None:
        """Flush what was rolled earlier, perhaps before a truncation; remove deleted segments; write the epochs."""
        self.steps.append("run the due tasks")
        self.bench.clock.advance_ms(self.chance.choice([0, DELETE_DELAY_MS, EPOCH_FLUSH_DELAY_MS]))
        with self._interruptions():
            self.bench.scheduler.run_due()

    def _rebuild_indexes(self) -> None:
        segment = self.chance.choice(self.log.segments.all)
        self.steps.append(f"rebuild the indexes of {segment.base_offset}")
        segment._lookup.has_damaged_index = True  # as a lookup notes
        self.log.rebuild_damaged_indexes()

    # Power cuts

    def _check_power_cuts(self) -> None:
        """Open the log as after two power cuts and after kill -9."""
        self.steps.append("power cuts")
        promised = max(self.durable, self.log.recovery_point)
        for _ in range(2):
            is_torn, names_survive = self.chance.random() < 0.7, self.chance.random() < 0.5
            left = self.disk.crash(self.chance if is_torn else None, names_survive=names_survive)
            self._check_found(self._reopen(left, may_have_holes=not self.is_compacted), promised)
        self._check_found(self._reopen(self.disk.kill()), self.log.log_end_offset)

    def _check_close(self) -> None:
        """Close the log. Then a power cut loses nothing, whether the start knows of the shutdown or not."""
        self.log.flush()
        self.log.close()
        for names_survive in (True, False):
            for clean in (True, False):
                point = self.log.recovery_point if clean else self.checkpoint
                left = self.disk.crash(self.chance, names_survive=names_survive)
                again = self._reopen(left, recovery_point=point, clean=clean, may_have_holes=not self.is_compacted)
                self._check_found(again, self.log.log_end_offset)

    def _reopen(self, disk: MemoryFileSystem, **options: Any) -> Log:
        options.setdefault("recovery_point", self.checkpoint)
        return Bench(disk).open(log_start_offset=self.log.log_start_offset, **options, **self.settings)

    def _check_found(self, again: Log, promised: int) -> None:
        """Compare a reopened log with the model: the records below `promised` are there, and no other ones follow."""
        found = contents(again)
        records = sorted(self.records.items())
        durable = [record for record in records if record[0] < promised]
        assert found[: len(durable)] == durable, f"promised records below {promised} are lost"
        assert found == records[: len(found)], "records are there that were cut, or others are missing between"
        for offset, value in self.chance.choices(found, k=3) if found else ():
            assert contents(again, start=offset)[0] == (offset, value), f"a lookup of {offset} found another record"
        assert not any(segment.has_damaged_index for segment in again.segments), "an index points at no batch"


def _value(number: int) -> str:
    return f"v{number:06d}"  # each batch has the same size


def _is_not_last(segment: LogSegment, next_base: int | None) -> bool:
    return next_base is not None


def _bases(segments: Sequence[LogSegment]) -> list[int]:
    return [segment.base_offset for segment in segments]
