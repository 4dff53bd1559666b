"""`barnabas stray`: list, restore and delete logs that were set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.broker.storage.directories.strays import Note, write_note
from barnabas.common.clock import SystemClock
from barnabas.common.disk.files import OsFileSystem
from barnabas.common.topic_partition import TopicPartition
from tests.barnabas.cli.conftest import Barnabas

NAME = f"orders-3.{'0' * 32}-stray"


@pytest.fixture
def stray(tmp_path: Path) -> Path:
    """A stray of orders-3 with one empty segment, set aside two hours ago."""
    directory = tmp_path / NAME
    directory.mkdir()
    (directory / "00000000000000000007.log").touch()
    set_aside_ms = SystemClock().wall_ms() - 2 * 3_600_000
    note = Note(TopicPartition("orders", 3), None, set_aside_ms, 7, "metadata does not name it")
    write_note(OsFileSystem(), str(directory), note)
    return directory


def test_strays_are_listed(barnabas: Barnabas, stray: Path) -> None:
    outcome = barnabas("stray", "list", str(stray.parent))
    assert outcome.out.splitlines()[0] == "partition\ttopic_id\tbytes\thours_set_aside\treason\tpath"
    size = sum(file.stat().st_size for file in stray.iterdir())
    assert outcome.rows == [["orders-3", "-", str(size), "2.0", "metadata does not name it", str(stray)]]


def test_a_stray_is_restored(barnabas: Barnabas, stray: Path) -> None:
    log = stray.parent / "orders-3"
    assert barnabas("stray", "restore", str(stray)) == (0, f"restored {log}; start the broker\n", "")
    assert (log / "00000000000000000007.log").exists()
    assert barnabas("stray", "list", str(stray.parent)).rows == []


def test_a_stray_is_deleted(barnabas: Barnabas, stray: Path) -> None:
    assert barnabas("stray", "delete", str(stray)) == (0, f"deleted {stray}\n", "")
    assert not stray.exists()


@pytest.mark.parametrize("action", ["restore", "delete"])
def test_another_directory_is_refused(barnabas: Barnabas, tmp_path: Path, action: str) -> None:
    (tmp_path / "orders-3").mkdir()
    outcome = barnabas("stray", action, str(tmp_path / "orders-3"))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert "orders-3 is not a stray directory" in outcome.err
    assert (tmp_path / "orders-3").exists()
