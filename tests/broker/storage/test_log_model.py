"""The log compared with a list: random appends, reads, truncations, rolls, retention, restarts and crashes, by seed.

A failure names its seed: `SEED=n pytest tests/broker/storage/test_log_model.py` runs only that one,
`SEEDS=n` the first n.
"""

from __future__ import annotations

import os
import random

import pytest

from barnabas.broker.storage.log.log import FetchIsolation, Log
from barnabas.broker.storage.log.retention import delete_old_segments
from barnabas.common.disk.faulty_files import MemoryFileSystem
from tests.support.broker.storage_bench import Bench, contents

SEEDS = [int(os.environ["SEED"])] if "SEED" in os.environ else list(range(int(os.environ.get("SEEDS", "60"))))
STEPS = 60
SETTINGS = {"segment_bytes": 700, "index_interval_bytes": 90, "retention_ms": 40_000, "retention_bytes": 5_000}


class Model:
    """Applies the same operations to a log and to a list of (offset, value)."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.bench = Bench()
        self.log: Log = self.bench.open(**SETTINGS)
        self.records: list[tuple[int, str]] = []
        self.end = 0
        self.epoch = 0
        self.sequence = 0
        self.serial = 0

    def append(self) -> None:
        values = []
        for _ in range(self.chance.randint(1, 4)):
            self.serial += 1
            values.append(f"v{self.serial}" * self.chance.randint(1, 6))
        options = {}
        if self.chance.random() < 0.5:
            options = {"producer_id": 1, "producer_epoch": 0, "base_sequence": self.sequence}
            self.sequence += len(values)
        first = self.bench.append(self.log, *values, leader_epoch=self.epoch, **options)
        assert first == self.end
        self.records += [(first + i, value) for i, value in enumerate(values)]
        self.end += len(values)

    def new_leader(self) -> None:
        self.epoch += self.chance.randint(0, 2)

    def read(self) -> None:
        start = self.chance.randint(self.log.log_start_offset, self.end)
        assert contents(self.log, start) == [record for record in self.records if record[0] >= start]
        limited = contents(self.log, isolation=FetchIsolation.HIGH_WATERMARK)
        assert limited == [record for record in self.visible() if record[0] < self.log.high_watermark]

    def truncate(self) -> None:
        target = self.chance.randint(max(0, self.log.log_start_offset), self.end)
        self.log.truncate_to(target)
        if target < self.end:
            # A batch that reaches the target is dropped whole, so the log shows which records are left.
            kept = {offset for offset, _ in contents(self.log)}
            whole = [record for record in self.records if record[0] < target]
            assert kept <= {offset for offset, _ in whole}
            assert len([r for r in whole if r[0] >= self.log.log_start_offset]) - len(kept) < 4
            self.records = [record for record in self.records if record[0] in kept]
            self.end = target
            state = self.log.producer_state.entry(1)
            self.sequence = 0 if state is None else state.last_sequence + 1

    def roll(self) -> None:
        self.log.roll()

    def delete_records(self) -> None:
        self.log.maybe_increment_log_start_offset(
            self.chance.randint(self.log.log_start_offset, self.log.high_watermark), "model"
        )

    def retention(self) -> None:
        self.bench.clock.advance_ms(self.chance.randint(0, 15_000))
        delete_old_segments(self.log, self.bench.clock.wall_ms())
        assert self.log.log_start_offset <= self.end

    def background(self) -> None:
        self.bench.clock.advance_ms(self.chance.choice([0, 60_000]))
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
        point, start = self.log.recovery_point, self.log.log_start_offset
        high_watermark = self.log.high_watermark
        epochs = self.log.leader_epoch_cache.entries
        self.bench.scheduler.shutdown()
        self.log = self.bench.open(recovery_point=point, log_start_offset=start, clean=clean, **SETTINGS)
        if self.log.log_end_offset < self.end:
            # Offsets after the last batch are known only if a segment begins there.
            last = max((offset + 1 for offset, _ in self.records), default=0)
            assert self.log.log_end_offset in (start, last, self.log.active_segment.base_offset)
            assert self.log.log_end_offset >= last
            self.end = self.log.log_end_offset
        assert self.log.log_end_offset == self.end
        assert self.with_records(self.log.leader_epoch_cache.entries) == self.with_records(epochs)
        self.log.update_high_watermark(high_watermark)
        state = self.log.producer_state.entry(1)
        self.sequence = 0 if state is None else state.last_sequence + 1

    def with_records(self, epochs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """The epochs that wrote records, and their first records: the log knows no more without the checkpoint.

        An epoch may begin before its first record: a truncation into a batch, which goes whole, leaves a gap there.
        """
        ends = [start for _, start in epochs[1:]] + [self.end]
        found = []
        for (epoch, start), end in zip(epochs, ends, strict=False):
            offsets = [offset for offset, _ in self.visible() if start <= offset < end]
            if offsets:
                found.append((epoch, offsets[0]))
        return found

    def visible(self) -> list[tuple[int, str]]:
        return [record for record in self.records if record[0] >= self.log.log_start_offset]

    def check(self) -> None:
        self.log.invariants()
        assert contents(self.log) == self.visible()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_log_behaves_like_a_list(seed: int) -> None:
    model = Model(seed)
    operations = [model.append] * 12 + [
        model.new_leader,
        model.read,
        model.truncate,
        model.roll,
        model.delete_records,
        model.retention,
        model.background,
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
