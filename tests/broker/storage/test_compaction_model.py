"""The cleaner against a plain model: random keyed appends, aborted transactions, tombstones, truncations, rolls,
retention, rounds of cleaning with maps of all sizes, restarts, kills and power cuts, by seed.

The model has exactly the records that must be there after each step. A failure names its seed: `SEED=n pytest
tests/broker/storage/test_compaction_model.py` runs only that one, `SEEDS=n` the first n.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass

import pytest

from barnabas.broker.storage.cleaner.cleaner_manager import cleanable_offsets, log_to_clean
from barnabas.broker.storage.log.log import AppendOrigin, FetchIsolation, Log
from barnabas.broker.storage.log.retention import delete_old_segments
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.protocol.records.batch import ControlType, end_txn_marker
from barnabas.protocol.records.compression import CompressionType
from tests.support.broker.compaction import append_keyed, cleaner, keyed_contents
from tests.support.broker.storage_bench import Bench
from tests.support.sample import sample

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else sample(range(int(os.environ.get("SEEDS", "60"))), 2)
STEPS = 60
DELETE_RETENTION_MS = 30_000
SETTINGS = {
    "compact": True,
    "delete": True,
    "segment_bytes": 900,
    "index_interval_bytes": 90,
    "retention_ms": 400_000,
    "delete_retention_ms": DELETE_RETENTION_MS,
}
Found = tuple[int, str | None, str | None]


@dataclass
class Batch:
    """A batch in the model."""

    base: int
    last: int
    records: list[Found]
    aborted: bool = False
    horizon_ms: int | None = None


class Model:
    """Applies the same operations to a log and to a list of batches."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench()
        self.log: Log = self.bench.open(**SETTINGS)
        self.batches: list[Batch] = []
        self.end = 0
        self.clean: int | None = None
        self.serial = 0
        self.was_truncated = False

    def pairs(self) -> list[tuple[str, str | None]]:
        found = []
        for _ in range(self.chance.randint(1, 4)):
            self.serial += 1
            key = self.chance.choice([f"k{self.chance.randint(0, 6)}", f"u{self.serial}"])
            found.append((key, None if self.chance.random() < 0.2 else f"v{self.serial}" * self.chance.randint(1, 4)))
        return found

    def append(self) -> None:
        self.place(self.pairs(), {"compression": self.chance.choice([*CompressionType, CompressionType.NONE])})

    def place(self, pairs: list[tuple[str, str | None]], options: dict[str, object], *, aborted: bool = False) -> None:
        first = append_keyed(self.log, self.bench, *pairs, **options)
        assert first == self.end
        self.end += len(pairs)
        records = [(first + index, key, value) for index, (key, value) in enumerate(pairs)]
        self.batches.append(Batch(first, self.end - 1, records, aborted))

    def transaction(self) -> None:
        """Uses a new producer each time: the batches kept for a producer's sequence have other tests."""
        self.serial += 1
        producer, aborted = 1000 + self.serial, self.chance.random() < 0.6
        options = {"producer_id": producer, "producer_epoch": 0, "is_transactional": True}
        sequence = 0
        for _ in range(self.chance.randint(1, 2)):
            pairs = self.pairs()
            self.place(pairs, {**options, "base_sequence": sequence}, aborted=aborted)
            sequence += len(pairs)
        marker = end_txn_marker(
            ControlType.ABORT if aborted else ControlType.COMMIT,
            producer_id=producer,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp_ms=self.bench.clock.wall_ms(),
        )
        self.log.append_as_leader(memoryview(bytearray(marker)), leader_epoch=0, origin=AppendOrigin.COORDINATOR)
        self.log.update_high_watermark(self.log.log_end_offset)
        self.end += 1

    def truncate(self) -> None:
        target = self.chance.randint(max(self.log.log_start_offset, self.end - 12), self.end)
        if any(batch.base < target <= batch.last for batch in self.batches):
            return  # a batch is dropped whole, as in test_log_model
        self.log.truncate_to(target)
        self.batches = [batch for batch in self.batches if batch.last < target]
        self.end = target
        self.was_truncated = True
        self.log.update_high_watermark(target)
        if self.clean is not None:
            self.clean = min(self.clean, target)

    def roll(self) -> None:
        self.log.roll()

    def compact(self) -> None:
        if self.chance.random() < 0.5:
            self.log.roll()
        now_ms = self.bench.clock.wall_ms()
        dirty, uncleanable = cleanable_offsets(self.log, self.clean, now_ms)
        work = log_to_clean(self.log, dirty, uncleanable)
        if not work.cleanable_bytes:
            return
        segments = self.log.segments
        worker = cleaner(self.bench, self.chance.choice([2000, 4000, 1 << 20]))
        self.clean, _ = worker.clean(work, lambda _wait_ms: None)
        inner = [next_base for base, next_base in zip(segments.bases, segments.bases[1:], strict=False)]
        reached = max(
            [bound for base, bound in zip(segments.bases, inner, strict=False) if base < self.clean], default=0
        )
        self.clean_model(dirty, self.clean, min(reached, work.first_uncleanable_offset), now_ms)

    def clean_model(self, dirty: int, end: int, reached: int, now_ms: int) -> None:
        """Change the batches like a round that maps [dirty, end) and copies all segments below `reached`."""
        latest: dict[str | None, int] = {}
        for batch in self.batches:
            if batch.last >= dirty and batch.base < end and not batch.aborted:
                latest.update({key: offset for offset, key, _ in batch.records})
        for batch in self.batches:
            if batch.base >= reached:
                continue
            if batch.aborted:
                batch.records = []
            elif batch.base < end:
                self.filter(batch, latest, now_ms)

    def filter(self, batch: Batch, latest: dict[str | None, int], now_ms: int) -> None:
        is_past = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
        batch.records = [
            (offset, key, value)
            for offset, key, value in batch.records
            if offset >= latest.get(key, -1) and not (value is None and is_past)
        ]
        if batch.horizon_ms is None and any(value is None for _, _, value in batch.records):
            batch.horizon_ms = now_ms + DELETE_RETENTION_MS

    def delete_records(self) -> None:
        self.log.maybe_increment_log_start_offset(
            self.chance.randint(self.log.log_start_offset, self.log.high_watermark), "model"
        )

    def retention(self) -> None:
        self.bench.clock.advance_ms(self.chance.randint(0, 60_000))
        delete_old_segments(self.log, self.bench.clock.wall_ms())
        first = self.log.segments.first.base_offset
        self.batches = [batch for batch in self.batches if batch.base >= first]

    def pass_time(self) -> None:
        self.bench.clock.advance_ms(self.chance.choice([0, 20_000, 60_000]))
        self.bench.scheduler.run_due()

    def restart(self) -> None:
        self.log.flush()
        self.log.close()
        self.reopen(clean=True)

    def kill(self) -> None:
        assert isinstance(self.bench.fs, MemoryFileSystem)
        self.bench.fs = self.bench.fs.kill()
        self.reopen(clean=False)

    def power_cut(self) -> None:
        self.log.flush()
        assert isinstance(self.bench.fs, MemoryFileSystem)
        self.bench.fs = self.bench.fs.crash(self.chance)
        self.reopen(clean=False)

    def reopen(self, *, clean: bool) -> None:
        point, start, high_watermark = self.log.recovery_point, self.log.log_start_offset, self.log.high_watermark
        self.bench.scheduler.shutdown()
        self.log = self.bench.open(recovery_point=point, log_start_offset=start, clean=clean, **SETTINGS)
        self.log.update_high_watermark(high_watermark)
        if self.was_truncated and self.log.log_end_offset < self.end:
            # The batch right before the cut was compacted away, so its offset is lost, as in Kafka.
            self.end = self.log.log_end_offset
            assert not [batch for batch in self.batches if batch.last >= self.end and batch.records]
            self.batches = [batch for batch in self.batches if batch.last < self.end]
            self.clean = None if self.clean is None else min(self.clean, self.end)
        assert self.log.log_end_offset == self.end

    def check(self) -> None:
        self.log.invariants()
        start = self.log.log_start_offset  # batches below it may be gone or not
        expected = [record for batch in self.batches for record in batch.records if record[0] >= start]
        assert [record for record in keyed_contents(self.log) if record[0] >= start] == expected
        self.check_reads()

    def check_reads(self) -> None:
        """Read from some offset, as a consumer does, and look up a timestamp."""
        start = self.chance.randint(self.log.log_start_offset, self.end)
        following = [offset for batch in self.batches for offset, _, _ in batch.records if offset >= start]
        data = self.log.read(start, 10_000, isolation=FetchIsolation.TXN_COMMITTED, min_one_message=True)
        if following and following[0] < self.log.last_stable_offset:
            assert data.slice is not None
        if data.slice is not None:
            assert len(data.slice.read()) == data.size
        newest = self.log.fetch_offset_by_timestamp(-3)
        # None if the newest batch was emptied, as in Kafka.
        assert newest is None or newest.offset < self.end


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cleaner_agrees_with_the_model(seed: int) -> None:
    model = Model(seed)
    operations = [model.append] * 10 + [model.compact] * 3 + [model.transaction] * 2
    operations += [
        model.truncate,
        model.roll,
        model.delete_records,
        model.retention,
        model.pass_time,
        model.restart,
        model.kill,
        model.power_cut,
    ]
    trace = []
    try:
        for _ in range(STEPS):
            operation = model.chance.choice(operations)
            trace.append(operation.__name__)
            operation()
            model.check()
    except BaseException as error:
        error.add_note(f"SEED={seed} failed after {' '.join(trace)}")
        raise
