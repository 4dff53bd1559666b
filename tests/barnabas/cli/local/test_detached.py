"""`barnabas up -d`, `status` and `down`, run by `python -m barnabas.cli` (cli/__main__.py)."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.local.detached import LOG_NAME
from barnabas.cli.local.ready import Ready
from barnabas.common.processes.cluster_file import open_supervisor, process_state, read_cluster_file
from barnabas.common.processes.ports import reserve_port
from tests.barnabas.cli.conftest import Barnabas
from tests.barnabas.cli.local.test_up import temporary_directory
from tests.support.processes import await_ends

__all__ = ["temporary_directory"]  # an automatic fixture


def up(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`barnabas up -d` in its own process, so that the supervisor is not a child of this one."""
    command = [sys.executable, "-P", "-m", "barnabas.cli", "up", "-d", "--brokers", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


FREE = ("--port", "0")


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """Kill the clusters that a failed test leaves."""
    yield
    for file in tmp_path.rglob("cluster.json"):
        content = read_cluster_file(file.parent)
        supervisor = None if content is None else open_supervisor(file.parent, content)
        if supervisor is not None:
            signal.pidfd_send_signal(supervisor, signal.SIGKILL)
            os.close(supervisor)


def test_a_cluster_runs_in_the_background_until_it_is_stopped(barnabas: Barnabas, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    started = up(*FREE, "--first-id", "1", "--data-dir", str(directory))
    assert (started.returncode, started.stderr) == (0, "")
    ready = Ready.parse(started.stdout)
    assert ready is not None
    rows = json.loads(barnabas("status", "--json").out)
    assert [(row["role"], row["node"], row["state"]) for row in rows] == [
        ("supervisor", None, "running"),
        ("controller", 100, "running"),
        ("broker", 1, "running"),
    ]
    assert rows[2]["address"] == ready.bootstrap
    assert barnabas("topic", "list").code == 0  # it is found without --bootstrap
    assert os.getsid(rows[0]["pid"]) != os.getsid(0)
    barnabas("node", "pause", "1")
    assert [row[3] for row in barnabas("status").rows] == ["running", "running", "paused"]
    assert barnabas("status").rows[0][6] == str(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BARNABAS_DATA_DIR", str(tmp_path / "other"))
        for command in ("status", "down"):
            assert barnabas(command).err == f"barnabas: no cluster runs in {tmp_path / 'other'}\n"
    assert barnabas("down") == (0, f"stopped the cluster in {directory}\n", "")
    assert process_state(rows[0]["pid"]) == "dead"
    assert barnabas("down") == (1, "", "barnabas: no local cluster runs; start one: barnabas up\n")
    assert barnabas("status").code == 1
    assert Ready.parse((directory / LOG_NAME).read_text()) == ready


def test_a_temporary_directory_is_removed_after_down_kill(barnabas: Barnabas, temporary_directory: Path) -> None:
    assert up(*FREE).returncode == 0
    (made,) = temporary_directory.glob("barnabas-*")
    assert barnabas("down", "--kill").code == 0
    assert not made.exists()


def test_an_interrupted_start_leaves_no_directory(
    barnabas: Barnabas, temporary_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        assert list(temporary_directory.glob("barnabas-*")) != []
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(temporary_directory))
    monkeypatch.setattr("barnabas.cli.local.detached.start", interrupted)
    assert barnabas("up", "-d").code == 130
    assert not list(temporary_directory.glob("barnabas-*"))


def test_a_failed_start_is_one_line(barnabas: Barnabas, tmp_path: Path, temporary_directory: Path) -> None:
    port, reservation = reserve_port()
    with reservation:
        reservation.listen()
        outcome = up("--port", str(port))
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert outcome.stderr == f"barnabas: port {port} is taken: choose another with --port\n"
    assert not list(temporary_directory.glob("barnabas-*"))


def test_the_cluster_file_of_a_killed_supervisor_does_not_count(barnabas: Barnabas, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    assert up(*FREE, "--data-dir", str(directory)).returncode == 0
    content = read_cluster_file(directory)
    assert content is not None
    supervisor = os.pidfd_open(content["supervisor_pid"])
    os.kill(content["supervisor_pid"], signal.SIGKILL)
    await_ends([supervisor])
    gone = f"its supervisor (pid {content['supervisor_pid']}) has ended"
    stale = (1, "", f"barnabas: no cluster runs in {directory}: {gone}\n")
    assert barnabas("down", "--data-dir", str(directory)) == stale
    # The same if another process has its pid by now: this one, which does not hold the directory's lock.
    text = (directory / "cluster.json").read_text().replace(str(content["supervisor_pid"]), str(os.getpid()))
    (directory / "cluster.json").write_text(text)
    assert barnabas("down", "--data-dir", str(directory)).code == 1
    assert barnabas("status", "--data-dir", str(directory)).code == 1


def test_a_terminal_gets_a_summary_and_a_warning_about_brokers_not_started(tmp_path: Path) -> None:
    (tmp_path / "broker-7").mkdir()
    (tmp_path / "broker-7" / "server.properties").touch()
    terminal, child_side = pty.openpty()
    command = [sys.executable, "-P", "-m", "barnabas.cli", "up", "--brokers", "1", "--port", "0"]
    with subprocess.Popen(
        [*command, "--data-dir", str(tmp_path)], stdout=child_side, stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(child_side)
        shown = b""
        while b"consume greetings" not in shown:
            shown += os.read(terminal, 4096)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    os.close(terminal)
    assert shown.startswith(b"Barnabas is ready: 1 broker and a controller.\r\n  bootstrap  127.0.0.1:")
    assert err.startswith(f"barnabas: warning: {tmp_path} also has data of broker-7, not started now")
