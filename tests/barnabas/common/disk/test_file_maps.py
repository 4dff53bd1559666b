"""Memory-mapped files: reads, missing pages, the number of maps.

`MAPS`: the compiled map, if there is one, and the fallback.
"""

from __future__ import annotations

import errno
import faulthandler
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.common.disk import file_maps
from barnabas.common.disk.faulty_files import MemoryFileSystem
from barnabas.common.disk.file_maps import FileMap, PositionalReads, map_descriptor
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.disk.open_files import MAPS_MAX, limit_of_maps

MAPS: dict[str, Callable[[int, int], FileMap]] = {"pread": PositionalReads}
if file_maps.is_compiled():
    from barnabas.common.disk._file_map import FileMap as CompiledMap

    MAPS["map"] = CompiledMap

needs_maps = pytest.mark.skipif(not file_maps.is_compiled(), reason="nothing is compiled here: see `make compiled`")


@pytest.fixture(params=MAPS)
def make(request: pytest.FixtureRequest) -> Callable[[int, int], FileMap]:
    return MAPS[request.param]


def mapped(path: Path, make: Callable[[int, int], FileMap], size: int) -> FileMap:
    fd = os.open(path, os.O_RDONLY)
    try:
        return make(fd, size)
    finally:
        os.close(fd)


def test_bytes_are_read(make: Callable[[int, int], FileMap], tmp_path: Path) -> None:
    path = tmp_path / "f"
    data = bytes(range(256)) * 40
    path.write_bytes(data)
    found = mapped(path, make, 10_000)
    assert found.size == 10_000
    for size, position in ((0, 0), (1, 0), (8, 4095), (5000, 4000), (100, 9_990), (5, 10_000), (5, 20_000)):
        assert found.read(size, position) == data[:10_000][position : position + size]


def test_an_empty_file(make: Callable[[int, int], FileMap], tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.touch()
    assert mapped(path, make, 0).read(8, 0) == b""


def test_a_map_keeps_its_content_when_the_file_grows_or_is_replaced(
    make: Callable[[int, int], FileMap], tmp_path: Path
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"a" * 100)
    found = mapped(path, make, 100)
    with path.open("ab") as file:
        file.write(b"b" * 10_000)
    assert found.read(200, 0) == b"a" * 100
    path.unlink()
    path.write_bytes(b"c")
    assert found.read(100, 0) == b"a" * 100


def test_a_map_is_never_longer_than_its_file(tmp_path: Path) -> None:
    fs = OsFileSystem()
    path = str(tmp_path / "f")
    fs.write_bytes(path, b"x" * 50, sync=False)
    assert fs.map(path, 80).size == 50
    assert fs.map(path, 20).size == 20
    with pytest.raises(FileNotFoundError):
        fs.map(path + "-", 1)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@needs_maps
def test_a_map_needs_no_descriptor_and_ends_with_its_last_reference(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 100)
    before = descriptors()
    maps = [mapped(path, CompiledMap, 100) for _ in range(50)]
    assert descriptors() == before
    assert Path("/proc/self/maps").read_text().count(str(path)) > 0
    del maps
    assert Path("/proc/self/maps").read_text().count(str(path)) == 0


def test_the_fallback_closes_its_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    before = descriptors()
    found: FileMap | None = mapped(path, PositionalReads, 1)
    assert descriptors() == before + 1
    del found
    assert descriptors() == before


@needs_maps
def test_a_missing_page_is_an_error_and_does_not_end_the_process(tmp_path: Path) -> None:
    """On several threads at once, and after other code has replaced the signal handler."""
    path = tmp_path / "f"
    path.write_bytes(b"x" * 20_000)
    found = mapped(path, CompiledMap, 20_000)
    os.truncate(path, 4096)
    caught: list[int | None] = []

    def read() -> None:
        for _ in range(200):
            assert found.read(10, 0) == b"x" * 10
            try:
                found.read(10_000, 4000)
            except OSError as error:
                caught.append(error.errno)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught == [errno.EIO] * 800
    assert not faulthandler.is_enabled() or mapped(path, CompiledMap, 1).read(1, 0) == b"x"


OURS_AND_THEIRS = """
import mmap, tempfile
from barnabas.common.disk._file_map import FileMap
with tempfile.TemporaryFile() as file:
    file.write(bytes(10000))
    file.flush()
    ours, theirs = FileMap(file.fileno(), 10000), mmap.mmap(file.fileno(), 10000)
    file.truncate(10)
    try:
        ours.read(9, 9000)
    except OSError:
        print("caught", flush=True)
    theirs[9000]
"""


@needs_maps
@pytest.mark.parametrize("before", ["", "import faulthandler; faulthandler.enable();"])
def test_other_codes_signals_reach_their_handler(before: str) -> None:
    program = before + OURS_AND_THEIRS
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stdout == "caught\n"
    assert ended.returncode == -signal.SIGBUS
    assert ("Fatal Python error: Bus error" in ended.stderr) == bool(before)


@needs_maps
def test_invalid_maps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Bad file descriptor"):
        CompiledMap(10_000, 1)
    with pytest.raises(ValueError, match="a negative size"):
        CompiledMap(0, -1)
    path = tmp_path / "f"
    path.write_bytes(b"x")
    with pytest.raises(ValueError, match="negative"):
        mapped(path, CompiledMap, 1).read(1, -1)


def test_descriptors_are_mapped_compiled_or_not(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x")
    found = mapped(path, map_descriptor, 1)
    assert isinstance(found, PositionalReads) is not file_maps.is_compiled()


def test_the_number_of_maps_is_bounded() -> None:
    assert 64 <= limit_of_maps() <= MAPS_MAX
    assert OsFileSystem().open_maps.limit == limit_of_maps()


def test_the_memory_disk_refuses_to_read_a_truncated_map() -> None:
    fs = MemoryFileSystem()
    fs.mkdir("/d")
    fs.write_bytes("/d/f", b"x" * 100, sync=False)
    found = fs.map("/d/f", 80)
    assert found.read(10, 75) == b"x" * 5
    fs.open("/d/f").truncate(50)
    assert found.read(10, 40) == b"x" * 10
    with pytest.raises(AssertionError, match="SIGBUS"):
        found.read(10, 45)
