"""Thousands of partitions in one log directory of a real disk (`log_manager.py`, `log_loading.py`).

A start after a clean stop opens few files for each partition; descriptors and maps stay within their bounds. For the
resources of a whole broker see `make bench BENCH="--only partitions"`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.scheduler import ManualScheduler
from barnabas.broker.storage.segments.index import TAIL_ENTRIES_MAX
from barnabas.common.clock import SystemClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from tests.broker.storage.test_log_manager import TOPIC_ID, BrokerSettings
from tests.support.broker.storage_bench import Settings, contents

COUNT = 2000
OPENED_MAX = 12  # files and directories that a clean start opens for each partition
CONFIG = Settings(index_interval_bytes=0)


class Disk:
    """Storage on a real disk with a low bound on open files."""

    def __init__(self, directory: Path, limit: int = 100) -> None:
        self.fs = OsFileSystem()
        self.fs.open_files.limit = self.fs.open_maps.limit = limit
        clock = SystemClock()
        self.manager = LogManager(BrokerSettings(), [str(directory)], clock, ManualScheduler(clock), self.fs)
        if self.manager.open_directories(1) is None:
            self.manager.identify("cluster-a")
        self.manager.load_logs(lambda _topic: CONFIG)

    def log(self, number: int) -> Log:
        return self.manager.get_or_create_log(TopicPartition("many", number), TOPIC_ID, CONFIG, True)


def append(log: Log, count: int = 1) -> None:
    for _ in range(count):
        batch = build_batch([SimpleRecord(1_700_000_000_000 + log.log_end_offset, b"k", b"v")])
        log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=0)
    log.update_high_watermark(log.log_end_offset)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of many partitions with a record each, after a clean stop."""
    path = tmp_path_factory.mktemp("many")
    disk = Disk(path)
    for number in range(COUNT):
        append(disk.log(number))
        assert len(disk.fs.open_files) <= disk.fs.open_files.limit
    disk.manager.shutdown()
    return path


def descriptors(path: Path) -> int:
    """Return how many files below `path` this process has open."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{name}").startswith(str(path))
        except FileNotFoundError:
            continue
    return found


def counted(call: Callable[..., Any], paths: list[str]) -> Callable[..., Any]:
    """Return the call, which notes its path from now on."""

    def count(path: str, *args: Any, **named: Any) -> Any:
        paths.append(path)
        return call(path, *args, **named)

    return count


def test_a_clean_start_opens_few_files_and_keeps_none(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    for name in ("open", "scandir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name), opened))
    disk = Disk(directory)
    monkeypatch.undo()
    try:
        assert len(disk.manager.all_logs()) == COUNT
        assert descriptors(directory) == 1, "the lock"
        assert COUNT < len(opened) < OPENED_MAX * COUNT
        assert all(log.log_end_offset == 1 for log in disk.manager.all_logs())
    finally:
        disk.manager.shutdown()


def test_files_and_maps_stay_within_their_bounds(tmp_path: Path) -> None:
    """Search indexes in their files, of more logs than there may be maps."""
    disk = Disk(tmp_path, limit=10)
    logs = [disk.log(number) for number in range(30)]
    for log in logs:
        append(log, TAIL_ENTRIES_MAX + 2)
    for _ in range(2):
        for log in logs:
            for offset in (0, 200, TAIL_ENTRIES_MAX - 5):
                assert contents(log, offset)[0] == (offset, "v")
                found = log.fetch_offset_by_timestamp(1_700_000_000_000 + offset)
                assert found is not None
                assert found.offset == offset
            assert len(disk.fs.open_maps) <= 10
            assert len(disk.fs.open_files) <= 10
            assert descriptors(tmp_path) <= 10 + 2 * 10 + 1, "uncompiled, maps have descriptors, too"
    disk.manager.shutdown()
    assert len(disk.fs.open_maps) == 0
    assert descriptors(tmp_path) == 0
