"""Retention by time, by size and below the log's start, including the active segment."""

from __future__ import annotations

from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log.retention import delete_old_segments
from tests.support.broker.storage_bench import Bench, contents

SIZE = len(Bench().batch("v0"))


def filled(bench: Bench, count: int = 10, **settings: object) -> Log:
    target = bench.open(**{"segment_bytes": 2 * SIZE, **settings})
    for number in range(count):
        bench.append(target, f"v{number}")
        bench.clock.advance_ms(1000)
    return target


def test_by_time(bench: Bench) -> None:
    target = filled(bench, retention_ms=5000)
    assert delete_old_segments(target, bench.clock.wall_ms()) == 2
    assert (target.log_start_offset, contents(target)[0]) == (4, (4, "v4"))
    bench.clock.advance_ms(5000)
    assert delete_old_segments(target, bench.clock.wall_ms()) == 3
    assert (target.log_start_offset, target.log_end_offset, contents(target)) == (10, 10, [])
    assert delete_old_segments(target, bench.clock.wall_ms()) == 0
    bench.append(target, "later")
    assert contents(target) == [(10, "later")]
    target.invariants()


def test_by_size(bench: Bench) -> None:
    target = filled(bench, retention_bytes=5 * SIZE, retention_ms=-1)
    assert delete_old_segments(target, bench.clock.wall_ms()) == 2
    assert target.size_in_bytes == 6 * SIZE


def test_below_the_log_start(bench: Bench) -> None:
    target = filled(bench, delete=False, compact=True, retention_ms=1, retention_bytes=0)
    assert delete_old_segments(target, bench.clock.wall_ms()) == 0
    target.maybe_increment_log_start_offset(5, "test")
    assert delete_old_segments(target, bench.clock.wall_ms()) == 2
    assert contents(target)[0] == (5, "v5")


def test_nothing_above_the_high_watermark_is_deleted(bench: Bench) -> None:
    target = bench.open(segment_bytes=2 * SIZE, retention_ms=0)
    for number in range(6):
        target.append_as_leader(bench.batch(f"v{number}"), leader_epoch=0)
    target.update_high_watermark(3)
    bench.clock.advance_ms(10)
    assert delete_old_segments(target, bench.clock.wall_ms()) == 1
    assert target.log_start_offset == 2


def test_files_are_removed_after_the_delay(bench: Bench) -> None:
    target = filled(bench, retention_ms=5000)
    reader = target.segments.first.read_slice(0, SIZE)
    delete_old_segments(target, bench.clock.wall_ms())
    bench.scheduler.run_due()
    names = [entry.name for entry in bench.fs.listdir(bench.directory)]
    assert sum(name.endswith(".log.deleted") for name in names) == 2
    bench.clock.advance_ms(60_000)
    bench.scheduler.run_due()
    assert not [e.name for e in bench.fs.listdir(bench.directory) if e.name.endswith(".deleted")]
    assert len(reader.read()) == SIZE


def test_without_bounds_everything_stays(bench: Bench) -> None:
    target = filled(bench, retention_ms=-1, retention_bytes=-1)
    bench.clock.advance_ms(10**12)
    assert delete_old_segments(target, bench.clock.wall_ms()) == 0
    assert len(contents(target)) == 10


def test_a_compacted_topic_has_retention_only_with_the_policy_delete(bench: Bench) -> None:
    target = filled(bench, compact=True, delete=False, retention_ms=0, retention_bytes=0)
    bench.clock.advance_ms(10**6)
    assert delete_old_segments(target, bench.clock.wall_ms()) == 0
    target.update_config(bench.settings(compact=True, delete=True, retention_ms=5000))
    assert delete_old_segments(target, bench.clock.wall_ms()) == 5


def test_the_greatest_timestamp_of_a_segment_decides(bench: Bench) -> None:
    target = bench.open(segment_bytes=2 * SIZE, retention_ms=5000)
    now_ms = bench.clock.wall_ms()
    for age_ms in (100, 90_000, 80_000, 70_000, 0):
        bench.append(target, "v0", timestamp=now_ms - age_ms)
    assert delete_old_segments(target, now_ms) == 0, "the first segment has a young record, so later ones stay, too"
    assert delete_old_segments(target, now_ms + 4901) == 2
