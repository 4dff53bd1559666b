"""The main job's own part: its work directory, its errors, its end. Tests pipeline/run.py."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.run import MARKER, RunError, main, prepare
from tests.support.waiting import START_TIMEOUT_MS, eventually


def test_a_directory_of_an_earlier_run_is_emptied(tmp_path: Path) -> None:
    work_dir = tmp_path / "a" / "run"
    prepare(work_dir)
    (work_dir / "parquet").mkdir()
    (work_dir / "parquet" / "part").touch()
    (work_dir / "ingest.log").touch()
    (work_dir / "elsewhere").symlink_to(tmp_path)
    prepare(work_dir)
    assert [each.name for each in work_dir.iterdir()] == [MARKER]
    assert work_dir.parent.exists()


def test_a_run_that_ends_while_it_empties_its_directory_locks_no_later_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work_dir = tmp_path / "run"
    prepare(work_dir)
    (work_dir / "cluster").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda _path: (_ for _ in ()).throw(OSError("the disk")))
        with pytest.raises(RunError, match="the disk"):
            prepare(work_dir)
    prepare(work_dir)
    assert [each.name for each in work_dir.iterdir()] == [MARKER]


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["--work-dir", str(tmp_path), "--bootstrap", "127.0.0.1:1"]) == 1
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]
    assert "is not empty" in capsys.readouterr().err


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be used"):
        prepare(tmp_path / "file")


def test_a_cluster_that_does_not_answer_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--work-dir", str(tmp_path / "run"), "--bootstrap", "127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("make run: barnabas topic list failed: ")
    assert error.count("\n") == 1


def test_sigterm_ends_the_cluster_and_the_jobs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline.run", "--port", "0", "--months", "1", "--work-dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        assert run.stdout is not None
        eventually("both jobs run", lambda: len(_named(tmp_path)) >= 5, START_TIMEOUT_MS)
        run.send_signal(signal.SIGTERM)
        output = run.stdout.read()
        assert (run.wait(60), "Traceback" in output) == (143, False), output
    eventually("all have ended", lambda: not _named(tmp_path))


def _named(work_dir: Path) -> list[str]:
    """The command lines of all processes that name this directory: the run, its cluster, its jobs and their JVMs."""
    found = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(work_dir) in command:
            found.append(command)
    return found
