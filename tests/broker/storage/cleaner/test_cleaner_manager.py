"""The choice of the log to clean next, its bounds, and the checkpoint of cleaned offsets."""

from __future__ import annotations

import pytest

from barnabas.broker.storage.cleaner.cleaner_manager import (
    LogCleanerManager,
    cleanable_offsets,
    compaction_delay_ms,
    log_to_clean,
)
from barnabas.broker.storage.directories.checksums import add_to_entries
from barnabas.broker.storage.log.log import Log
from barnabas.common.topic_partition import TopicPartition
from tests.support.broker.compaction import append_keyed
from tests.support.broker.storage_bench import Bench

SETTINGS = {"compact": True, "delete": False, "segment_bytes": 300}
HOUR_MS = 3_600_000


def filled(bench: Bench, count: int = 12, step_ms: int = 0, **settings: object) -> Log:
    target = bench.open(**{**SETTINGS, **settings})
    for number in range(count):
        append_keyed(target, bench, (f"k{number % 3}", str(number)))
        bench.clock.advance_ms(step_ms)
    return target


def manager_of(bench: Bench, *logs: Log) -> LogCleanerManager:
    return LogCleanerManager(bench.fs, ["/data"], lambda: logs, bench.clock)


def range_of(target: Log, bench: Bench, checkpoint: int | None = None) -> tuple[int, int]:
    return cleanable_offsets(target, checkpoint, bench.clock.wall_ms())


def test_the_active_segment_is_not_cleaned(bench: Bench) -> None:
    target = filled(bench)
    assert range_of(target, bench) == (0, target.active_segment.base_offset)
    assert range_of(target, bench, 7) == (7, target.active_segment.base_offset)
    assert range_of(target, bench, 12) == (12, 12)


def test_nothing_above_the_last_stable_offset_is_cleaned(bench: Bench) -> None:
    target = filled(bench)
    for number in range(8):
        append_keyed(target, bench, (f"k{number}", "v"), commit=False)
    assert range_of(target, bench) == (0, 12)
    work = log_to_clean(target, *range_of(target, bench))
    assert work.first_uncleanable_offset <= 12
    assert work.first_uncleanable_offset in target.segments.bases


def test_min_compaction_lag_protects_young_segments(bench: Bench) -> None:
    target = filled(bench, step_ms=HOUR_MS, min_compaction_lag_ms=5 * HOUR_MS)
    bases = target.segments.bases
    first_dirty, bound = range_of(target, bench)
    assert first_dirty == 0
    assert bound in bases
    newest_cleaned = target.segments.all[bases.index(bound) - 1]
    assert newest_cleaned.largest_timestamp <= bench.clock.wall_ms() - 5 * HOUR_MS
    assert target.segments.all[bases.index(bound)].largest_timestamp > bench.clock.wall_ms() - 5 * HOUR_MS


def test_max_compaction_lag_makes_a_log_due(bench: Bench) -> None:
    target = filled(bench, step_ms=HOUR_MS, max_compaction_lag_ms=5 * HOUR_MS, min_cleanable_dirty_ratio=1.0)
    assert compaction_delay_ms(target, 0, bench.clock.wall_ms()) == 7 * HOUR_MS
    manager = manager_of(bench, target)
    work = manager.grab_filthiest()
    assert work is not None
    assert work.must_clean_now
    assert manager.max_compaction_delay_ms == 7 * HOUR_MS
    manager.release(work)
    target.update_config(bench.settings(**SETTINGS, min_cleanable_dirty_ratio=1.0))
    assert manager.grab_filthiest() is None


@pytest.mark.parametrize("checkpoint", [2, 13])
def test_a_checkpoint_outside_the_log_is_ignored(bench: Bench, checkpoint: int) -> None:
    target = filled(bench)
    target.maybe_increment_log_start_offset(4, "test")
    assert range_of(target, bench, checkpoint)[0] == 4


def test_the_filthiest_log_comes_first_and_only_if_it_is_dirty_enough(bench: Bench) -> None:
    others = [Bench(bench.fs, f"/data/other-{n}") for n in range(3)]
    logs = [filled(other, count) for other, count in zip(others, (8, 20, 12), strict=True)]
    for number, target in enumerate(logs):
        target.topic_partition = TopicPartition("other", number)
    manager = manager_of(bench, *logs)
    for target, clean in zip(logs, (6, 4, 9), strict=True):
        manager._store(target, clean)
    work = manager.grab_filthiest()
    assert work is not None
    assert work.log is logs[1]
    assert 0.5 < work.cleanable_ratio == manager.dirtiest_ratio < 1
    assert work.clean_bytes + work.cleanable_bytes == work.total_bytes
    assert manager.grab_filthiest() is None, "the others are clean enough, and that one is reserved"
    manager.done(work, 18)
    assert manager.clean_up_to(logs[1]) == 18


def test_a_log_that_is_empty_or_not_compacted_is_not_cleaned(bench: Bench) -> None:
    target = filled(bench, compact=False, delete=True)
    assert manager_of(bench, target).grab_filthiest() is None
    empty = Bench().open(compact=True)
    assert manager_of(bench, empty).grab_filthiest() is None


def test_the_checkpoint_survives_a_restart_without_deleted_partitions(bench: Bench) -> None:
    target = filled(bench)
    manager = manager_of(bench, target)
    work = manager.grab_filthiest()
    assert work is not None
    manager.done(work, 9)
    assert bench.fs.read_bytes("/data/cleaner-offset-checkpoint") == add_to_entries(b"0\n1\nflights 0 9\n")
    assert manager_of(bench, target).clean_up_to(target) == 9
    assert manager_of(bench).clean_up_to(target) is None, "a new partition of that name does not inherit it"
    bench.fs.write_bytes("/data/cleaner-offset-checkpoint", b"\xffdamaged", sync=True)
    assert manager_of(bench, target).clean_up_to(target) is None


def test_truncated_offsets_are_dirty_again(bench: Bench) -> None:
    target = filled(bench)
    manager = manager_of(bench, target)
    manager._store(target, 9)
    manager.on_truncated(target, 10)
    assert manager.clean_up_to(target) == 9
    manager.on_truncated(target, 5)
    assert manager_of(bench, target).clean_up_to(target) == 5


def test_offsets_lost_in_a_crash_are_dirty_again(bench: Bench) -> None:
    target = filled(bench)
    manager = manager_of(bench, target)
    manager._store(target, 30)
    manager.check_ends()
    assert manager.clean_up_to(target) == 12


def test_a_removed_partition_is_forgotten(bench: Bench) -> None:
    target = filled(bench)
    manager = manager_of(bench, target)
    manager._store(target, 3)
    manager.mark_uncleanable(target)
    assert (manager.uncleanable_count("/data"), manager.uncleanable_bytes("/data") > 0) == (1, True)
    assert manager.grab_filthiest() is None
    manager.on_removed(target.topic_partition, "/data")
    assert (manager.uncleanable_count("/data"), manager.uncleanable_bytes("/data")) == (0, 0)
    assert manager.clean_up_to(target) is None
    assert manager.grab_filthiest() is not None


def test_a_log_is_in_the_file_before_its_first_round(bench: Bench) -> None:
    """If power is lost in that round, recovery must not take the gaps that it leaves for lost records."""
    target = filled(bench)
    manager = manager_of(bench, target)
    work = manager.grab_filthiest()
    assert work is not None
    assert manager_of(bench, target).clean_up_to(target) is None
    manager.begin(work)
    assert manager_of(bench, target).clean_up_to(target) == 0
