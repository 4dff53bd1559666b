"""Open files are bounded: which holder lets go, when, and that readers do not notice."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.broker.storage.log.log import FetchIsolation
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.disk.open_files import LIMIT_MIN, OpenFiles, limit_of_process, raise_limit
from tests.support.broker.storage_bench import Bench, contents


class Holder:
    """Remembers that it had to let go."""

    def __init__(self) -> None:
        self.has_file = True

    def let_go(self) -> None:
        self.has_file = False


def test_the_first_to_open_lets_go() -> None:
    files = OpenFiles(2)
    holders = [Holder() for _ in range(4)]
    for holder in holders:
        files.add(holder)
    assert [holder.has_file for holder in holders] == [False, False, True, True]
    files.remove(holders[2])
    files.add(holders[0])
    assert len(files) == 2
    files.shrink()
    assert [holder.has_file for holder in holders[2:]] == [True, False], "one that was taken out keeps its file"


@pytest.fixture
def limits() -> Iterator[tuple[int, int]]:
    """The process's limit of descriptors, put back afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_is_a_share_of_the_processs(limits: tuple[int, int]) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (300, limits[1]))
    assert limit_of_process() == 150
    resource.setrlimit(resource.RLIMIT_NOFILE, (90, limits[1]))
    assert limit_of_process() == LIMIT_MIN
    raise_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])


def descriptors(directory: Path) -> int:
    """How many descriptors this process has for files below `directory`."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += str(directory) in os.readlink(link)
        except FileNotFoundError:
            continue
    return found


def test_a_log_of_many_segments_holds_few_descriptors(tmp_path: Path) -> None:
    fs = OsFileSystem()
    fs.open_files = OpenFiles(5)
    bench = Bench(fs, str(tmp_path / "flights-0"))
    log = bench.open(segment_bytes=300)
    for number in range(60):
        bench.append(log, f"value {number}")
    assert log.num_segments >= 20
    assert descriptors(tmp_path) == 5
    slices = [
        log.read(offset, 1000, isolation=FetchIsolation.LOG_END, min_one_message=True).slice for offset in range(60)
    ]
    assert all(b"value" in piece.read() for piece in slices if piece is not None), "a slice keeps its own share"
    del slices
    assert [value for _, value in contents(log)] == [f"value {number}" for number in range(60)]
    assert descriptors(tmp_path) == 5
    log.roll()
    log.delete_segments(log.segments.all[:10], "a test")
    bench.clock.advance_ms(60_000)
    bench.scheduler.run_due()
    log.close()
    assert descriptors(tmp_path) == 0


def test_a_lack_of_descriptors_does_not_fail_the_disk(tmp_path: Path, limits: tuple[int, int]) -> None:
    fs = OsFileSystem()
    bench = Bench(fs, str(tmp_path / "flights-0"))
    log = bench.open(segment_bytes=300)
    used = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 12, limits[1]))
    for number in range(60):
        bench.append(log, f"value {number}")
    assert log.num_segments >= 20
    assert [value for _, value in contents(log)] == [f"value {number}" for number in range(60)]
