"""Segments: each rule by which a segment rolls, and the timestamp of its first batch.

Tests `storage/segments/segment.py`, `storage/segments/segment_files.py`, `storage/segments/segment_lookup.py`,
`storage/segments/segment_timestamps.py`, `storage/segments/segments.py` and `storage/segments/scan.py`.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from barnabas.broker.storage.log.log_types import append_settings
from barnabas.broker.storage.segments.segment import LogSegment
from barnabas.common.clock import FakeClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.support.broker.storage_bench import Bench, Settings, contents

DAY_MS = 86_400_000


def segment(bench: Bench, **settings: object) -> LogSegment:
    return LogSegment(bench.fs, bench.directory, 100, Settings(**settings), bench.clock)


def test_the_jitter_makes_segments_roll_earlier_and_at_different_times(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(max_segment_ms=DAY_MS, segment_jitter_ms=DAY_MS // 4)
    jitters = {segment(bench, max_segment_ms=DAY_MS, segment_jitter_ms=DAY_MS // 4).roll_jitter_ms for _ in range(50)}
    assert len(jitters) > 20
    assert all(0 <= jitter <= DAY_MS // 4 for jitter in jitters)
    monkeypatch.setattr(random, "randrange", lambda bound: bound - 1)
    jittered = segment(bench, max_segment_ms=DAY_MS, segment_jitter_ms=DAY_MS // 4)
    jittered.append(bytes(70), [(70, 100, 5)])
    for waited, rolls in ((DAY_MS * 3 // 4, False), (DAY_MS * 3 // 4 + 1, True)):
        assert jittered.should_roll(70, 5 + waited, 101, 0, append_settings(settings)) is rolls


def test_a_jitter_longer_than_the_segment_time_is_cut(bench: Bench) -> None:
    assert all(segment(bench, max_segment_ms=10, segment_jitter_ms=DAY_MS).roll_jitter_ms <= 10 for _ in range(20))


def test_an_offset_too_far_from_the_base_rolls(bench: Bench) -> None:
    target = bench.open()
    far = 2**31 + 5
    record = SimpleRecord(bench.clock.wall_ms(), b"k", b"v")
    for base, leader_epoch in ((0, 0), (far, 1)):
        batch = memoryview(bytearray(build_batch([record], base_offset=base, leader_epoch=leader_epoch)))
        target.append_as_follower(batch)
    assert [found.base_offset for found in target.segments] == [0, far]
    assert [offset for offset, _ in contents(target)] == [0, far]
    plain = segment(bench)
    plain.append(bytes(70), [(70, 100, 5)])
    assert not plain.should_roll(70, 5, 100 + 2**31 - 1, 0, append_settings(Settings()))
    assert plain.should_roll(70, 5, 100 + 2**31, 0, append_settings(Settings()))


def test_the_first_batch_dates_the_segment(bench: Bench) -> None:
    target = bench.open()
    bench.append(target, "a", timestamp=bench.clock.wall_ms() - 7)
    bench.append(target, "b")
    assert target.active_segment.first_batch_timestamp == bench.clock.wall_ms() - 7
    target.flush()
    target.close()
    again = bench.open(clean=True).active_segment
    assert again.first_batch_timestamp == bench.clock.wall_ms() - 7
    assert again.time_waited_for_roll(0, bench.clock.wall_ms()) == 7
    assert segment(bench).first_batch_timestamp is None


def test_the_kernel_reads_ahead_in_segments_that_are_read_from_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advised: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *given: advised.append(given[3]))
    fs, clock = OsFileSystem(), FakeClock()
    written = LogSegment(fs, str(tmp_path), 0, Settings(), clock)
    batch = build_batch([SimpleRecord(5, b"k", b"v")])
    written.append(batch, [(len(batch), 0, 5)])
    assert advised == []  # what was just written is in memory
    written.become_inactive()
    assert advised == [os.POSIX_FADV_SEQUENTIAL]
    written.release()
    advised.clear()
    again = LogSegment(fs, str(tmp_path), 0, Settings(), clock, create=False)
    assert again.file.pread(len(batch), 0) == batch
    assert advised == [os.POSIX_FADV_SEQUENTIAL]
    again.release()
