from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.local.ephemeral import PREFIX, new_directory
from tests.barnabas.cli.conftest import Barnabas
from tests.barnabas.cli.local.test_up import pids
from tests.support.processes import await_ends

UP = [sys.executable, "-P", "-m", "barnabas.cli", "up", "--ephemeral", "--brokers", "1"]
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for temporary directories; nothing else is in it."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return directory


@contextlib.contextmanager
def up(*arguments: str, stdin: int = subprocess.PIPE, command: list[str] = UP) -> Iterator[subprocess.Popen[str]]:
    """`barnabas up --ephemeral`; killed at the end if it still runs."""
    child = subprocess.Popen(
        [*command, *arguments], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with child as process:
        try:
            yield process
        finally:
            process.kill()


def environment(process: subprocess.Popen[str]) -> dict[str, str]:
    """The environment that it prints when it is ready."""
    assert process.stdout is not None
    lines: dict[str, str] = {}
    for line in process.stdout:
        name, _, value = line.rstrip("\n").partition("=")
        lines[name] = value
        if name == "BARNABAS_READY":
            break
    return lines


def running(lines: dict[str, str]) -> list[int]:
    """The processes of a cluster, as pidfds."""
    return [os.pidfd_open(pid) for pid in pids(Path(lines["BARNABAS_DATA_DIR"]))]


def test_it_prints_its_environment_and_ends_with_its_standard_input(temporary: Path) -> None:
    with up("--print-env") as process:
        lines = environment(process)
        assert lines.keys() == {
            "KAFKA_BOOTSTRAP_SERVERS",
            "BARNABAS_BOOTSTRAP",
            "BARNABAS_METRICS_URLS",
            "BARNABAS_FAULTS_URLS",
            "BARNABAS_CONTROL_URL",
            "BARNABAS_FAULTS_TOKEN",
            "BARNABAS_DATA_DIR",
            "BARNABAS_READY",
        }
        assert lines["KAFKA_BOOTSTRAP_SERVERS"] == lines["BARNABAS_BOOTSTRAP"]
        assert Path(lines["BARNABAS_DATA_DIR"]).parent == temporary
        descriptors = running(lines)
        out, err = process.communicate("what is written there is not read\n" * 1000, TIMEOUT_S)
        assert (process.returncode, out, err) == (0, "", "")
    await_ends(descriptors)
    assert list(temporary.iterdir()) == []


def test_it_ends_with_its_parent_if_its_standard_input_is_no_pipe(temporary: Path) -> None:
    shell = ["sh", "-c", '"$@" </dev/null & wait', "sh", *UP]
    with up("--print-env", stdin=subprocess.DEVNULL, command=shell) as parent:
        descriptors = running(environment(parent))
        parent.kill()
        parent.communicate(timeout=TIMEOUT_S)  # until all that hold its standard output have ended
    await_ends(descriptors)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_signal_ends_it(temporary: Path, number: signal.Signals, code: int) -> None:
    with up() as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready bootstrap=")
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == code
    assert list(temporary.iterdir()) == []


def test_end_of_file_ends_it_while_it_starts(temporary: Path) -> None:
    with up() as process:
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")
        assert process.returncode == 0
    assert list(temporary.iterdir()) == []


def test_only_the_directory_of_a_killed_cluster_is_removed_by_the_next_one(temporary: Path) -> None:
    (temporary / f"{PREFIX}starts").mkdir()
    with up("--print-env") as process:
        lines = environment(process)
        descriptors = running(lines)
        assert new_directory().exists()
        assert Path(lines["BARNABAS_DATA_DIR"]).exists()
        process.kill()
        process.wait()
        await_ends(descriptors)
        assert Path(lines["BARNABAS_DATA_DIR"]).exists()
        assert new_directory().exists()
        assert not Path(lines["BARNABAS_DATA_DIR"]).exists()
    assert len(list(temporary.iterdir())) == 3


def test_the_end_of_its_command_ends_it(temporary: Path) -> None:
    script = 'read line; echo "$line"; barnabas() { "$0" -P -m barnabas.cli "$@"; }; barnabas topic create t; exit 7'
    with up("sh", "-c", script, sys.executable) as process:
        out, err = process.communicate("its standard input is the command's\n", TIMEOUT_S)
    assert (process.returncode, err) == (7, "")
    assert out.splitlines()[0] == "its standard input is the command's"
    assert "t" in out.splitlines()[1]
    assert list(temporary.iterdir()) == []


def test_a_command_killed_by_a_signal_has_a_shells_exit_code(temporary: Path) -> None:
    with up("--", "sh", "-c", "kill -KILL $$") as process:
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGKILL


def test_a_command_may_handle_ctrl_c_itself() -> None:
    script = "trap 'echo taken; exit 3' INT; echo started; while :; do sleep 0.05; done"
    with up("sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)  # a terminal sends it to both
        (command,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1:]
        os.kill(int(command), signal.SIGINT)
        assert process.communicate(timeout=TIMEOUT_S) == ("taken\n", "")
        assert process.returncode == 3


def test_its_end_ends_the_command() -> None:
    with up("sh", "-c", "echo $$; exec sleep 1000") as process:
        assert process.stdout is not None
        descriptor = os.pidfd_open(int(process.stdout.readline()))
        process.terminate()
        await_ends([descriptor])


def test_contradictions_and_failed_starts_are_one_line(temporary: Path, barnabas: Barnabas) -> None:
    assert barnabas("up", "--ephemeral", "--data-dir", "x").err.startswith("barnabas: --ephemeral ")
    assert "--ephemeral" in barnabas("up", "--print-env").err
    assert "--ephemeral" in barnabas("up", "pytest").err
    with up("no-such-program") as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, out) == (1, "")
        assert err == "barnabas: cannot run no-such-program: No such file or directory\n"
    with up("--config", "log.dirs=/proc/nowhere", stdin=subprocess.DEVNULL) as process:
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, out) == (1, "")
        assert "cannot use" in err  # the last log lines of the process that ended first
        assert "ended at start" in err
    assert list(temporary.iterdir()) == []
