"""cluster.json and the processes in it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.common.processes.cluster_file import (
    NAME,
    ClusterFile,
    await_leftover,
    is_supervisor,
    read_cluster_file,
    write_cluster_file,
)

NO_PID = 2**30


def content(supervisor_pid: int) -> ClusterFile:
    process = {"role": "broker", "id": 0, "pid": NO_PID, "port": 9092, "metrics_port": -1}
    return {"bootstrap": "127.0.0.1:9092", "supervisor_pid": supervisor_pid, "processes": [process]}  # type: ignore[list-item]


def test_the_file_is_read_as_written(tmp_path: Path) -> None:
    write_cluster_file(tmp_path, content(1))
    assert read_cluster_file(tmp_path) == content(1)
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


@pytest.mark.parametrize("text", [None, "", '{"bootstrap": '], ids=["none", "empty", "half"])
def test_a_missing_or_invalid_file_is_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / NAME).write_text(text)
    assert read_cluster_file(tmp_path) is None


def test_a_supervisor_is_a_running_process() -> None:
    assert is_supervisor(content(os.getpid()))
    assert not is_supervisor(content(NO_PID))


def test_only_leftover_processes_of_the_directory_are_awaited(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.stdin.read()", str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        await_leftover(child.pid, tmp_path / "another")  # returns at once
        assert child.poll() is None
        assert child.stdin is not None
        child.stdin.close()
        await_leftover(child.pid, tmp_path)
        assert child.wait() == 0
    await_leftover(NO_PID, tmp_path)
