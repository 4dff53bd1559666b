"""Garbage in place of a log directory's files: a start takes at most that directory offline, in a line with the file.

Tests `storage/log_loading.py`, `storage/directories/checkpoints.py` and every reader of files.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.broker.storage.directories.names import offset_of_file, parse_dir_name
from barnabas.broker.storage.log.log_types import AppendOrigin
from barnabas.broker.storage.log_manager import LogDirectoryError
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.records.batch import ControlType, SimpleRecord, build_batch, end_txn_marker
from tests.broker.storage.test_log_manager import Node
from tests.support.broker.storage_bench import Settings, contents

TPS = [TopicPartition("flights", n) for n in range(2)]  # one in each directory
SMALL = Settings(segment_bytes=400, index_interval_bytes=50)
LARGE = b"9" * 5000


def node(root: Path) -> Node:
    return Node(OsFileSystem(), (f"{root}/a", f"{root}/b"), transaction_partition_verification_enable=False)


def stop_at_once(running: Node) -> None:
    for directory in running.manager.directories:
        directory.close()


def fill(root: Path, *, is_clean: bool) -> None:
    running = node(root).start()
    for tp in TPS:
        target = running.manager.get_or_create_log(tp, b"\x05" * 16, SMALL, True)
        for number in range(6):
            running.append(target, f"v{number}")
        records = [SimpleRecord(running.clock.wall_ms(), b"k", b"gone")]
        batch = build_batch(records, producer_id=2, producer_epoch=0, base_sequence=0, is_transactional=True)
        target.append_as_leader(memoryview(bytearray(batch)), leader_epoch=1)
        marker = end_txn_marker(
            ControlType.ABORT, producer_id=2, producer_epoch=0, coordinator_epoch=0,
            timestamp_ms=running.clock.wall_ms(),
        )  # fmt: skip
        target.append_as_leader(memoryview(bytearray(marker)), leader_epoch=1, origin=AppendOrigin.COORDINATOR)
        target.update_high_watermark(target.log_end_offset)
        target.roll()
        running.append(target, "last")
        target.flush()
    running.manager.checkpoint_recovery_points()
    running.manager.checkpoint_log_start_offsets()
    if is_clean:
        running.manager.shutdown(broker_epoch=7)
    else:
        stop_at_once(running)


Damage = Callable[[Path], object]


def checkpoint(*rows: bytes) -> bytes:
    return b"0\n%d\n" % len(rows) + b"".join(row + b"\n" for row in rows)


DAMAGES: dict[str, Damage] = {
    "empty": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(4096)),
    "ones": lambda path: path.write_bytes(b"\xff" * 4096),
    "noise": lambda path: path.write_bytes(random.Random(path.name).randbytes(3000)),
    "wrong UTF-8": lambda path: path.write_bytes(b"0\n1\nfl\xff\xfeights 0 1\n"),
    "huge numbers": lambda path: path.write_bytes(
        checkpoint(b"flights 0 " + LARGE) if "offset" in path.name else checkpoint(LARGE + b" 1")
    ),
    "numbers beyond int64": lambda path: path.write_bytes(
        checkpoint(b"flights 0 99999999999999999999") if "offset" in path.name else checkpoint(b"0 0", b"99999999999 7")
    ),
    "negative numbers": lambda path: path.write_bytes(
        checkpoint(b"flights 0 -5", b"flights -1 3") if "offset" in path.name else checkpoint(b"-3 -7", b"0 2")
    ),
    "promises more": lambda path: path.write_bytes(b"0\n999999999999\nflights 0 1\n"),
    "of a later version": lambda path: path.write_bytes(b"7\n0\n"),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a directory": lambda path: (path.unlink(), path.mkdir(), (path / "x").write_bytes(b"1")),
}


@pytest.fixture(scope="module", params=[True, False], ids=["clean", "killed"])
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("filled")
    fill(root, is_clean=request.param)
    return root


def files_of(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / "a").rglob("*") if path.is_file())


def is_refused(again: Node) -> bool:
    """Start a node whose `meta.properties` is damaged: it may be refused, in one line with the file's name."""
    try:
        again.start()
    except LogDirectoryError as error:
        lines = str(error).splitlines()
    else:
        return False
    assert len(lines) == 1
    assert "/a" in lines[0]
    return True


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_start_takes_at_most_the_directory_offline(
    filled: Path, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [name for name in files_of(filled) if not name.endswith(".lock")]
    assert len(names) > 10
    for number, name in enumerate(names):
        root = tmp_path / str(number)
        shutil.copytree(filled, root)
        DAMAGES[damage](root / name)
        caplog.clear()
        again = node(root)
        if name == "a/meta.properties" and is_refused(again):
            shutil.rmtree(root)
            continue
        if name != "a/meta.properties":
            again.start()
        first, second = again.manager.directories
        assert not second.is_offline
        logs = {log.topic_partition: log for log in again.manager.logs_in(second)}
        assert len(logs) == 1
        assert [value for _, value in contents(next(iter(logs.values())))][-1] == "last"
        if first.is_offline:
            logged = "\n".join(record.getMessage() for record in caplog.records)
            assert Path(name).name in logged, f"{name}: {logged}"
        stop_at_once(again)
        shutil.rmtree(root)


def test_an_unexpected_exception_takes_only_its_directory_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path, is_clean=False)
    again = node(tmp_path)
    opened = again.manager._opener.open

    def stumble(found: object, config: object) -> object:
        if found.directory.path.endswith("/a"):  # type: ignore[attr-defined]
            raise OverflowError("int too large to convert")
        return opened(found, config)  # type: ignore[arg-type]

    monkeypatch.setattr(again.manager._opener, "open", stumble)
    again.start()
    assert [directory.is_offline for directory in again.manager.directories] == [True, False]
    assert "/a/flights-0: OverflowError: int too large to convert" in caplog.text


@pytest.mark.parametrize("name", ["9" * 19 + ".log", "9" * 200 + ".log", "٣.log", "x.log", ".log"])
def test_a_file_name_that_is_not_an_offset(name: str) -> None:
    assert offset_of_file(name) is None


@pytest.mark.parametrize("name", ["t-2147483648", "t-" + "9" * 200, "t-٣"])
def test_a_directory_name_that_is_not_a_partition(name: str) -> None:
    assert parse_dir_name(name) is None
    assert parse_dir_name("t-2147483647") == TopicPartition("t", 2147483647)
