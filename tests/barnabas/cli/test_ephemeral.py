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

from barnabas.cli.ephemeral import PREFIX, new_directory
from tests.barnabas.cli.conftest import Barnabas
from tests.barnabas.cli.test_up import await_ends, pids

UP = [sys.executable, "-P", "-m", "barnabas.cli", "up", "--ephemeral", "--brokers", "1"]
TIMEOUT_S = 60


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary directories are made; nothing else is in it."""
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
    """What it prints when it is ready."""
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


def test_it_tells_where_it_is_and_ends_with_its_standard_input(temporary: Path) -> None:
    with up("--print-env") as process:
        lines = environment(process)
        assert lines.keys() == {
            "KAFKA_BOOTSTRAP_SERVERS",
            "BARNABAS_BOOTSTRAP",
            "BARNABAS_METRICS_URLS",
            "BARNABAS_FAULTS_URLS",
            "BARNABAS_CONTROL_URL",
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


def test_it_ends_with_its_parent_if_nobody_holds_its_standard_input(temporary: Path) -> None:
    shell = ["sh", "-c", '"$@" </dev/null & wait', "sh", *UP]
    with up("--print-env", stdin=subprocess.DEVNULL, command=shell) as parent:
        descriptors = running(environment(parent))
        parent.kill()
        parent.communicate(timeout=TIMEOUT_S)  # until whoever holds its standard output is gone
    await_ends(descriptors)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_it_ends_at_a_signal(temporary: Path, number: signal.Signals, code: int) -> None:
    with up() as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready bootstrap=")
        process.send_signal(number)
        assert process.wait(TIMEOUT_S) == code
    assert list(temporary.iterdir()) == []


def test_it_ends_while_it_starts(temporary: Path) -> None:
    with up() as process:
        assert process.communicate(timeout=TIMEOUT_S) == ("", "")
        assert process.returncode == 0
    assert list(temporary.iterdir()) == []


def test_what_a_killed_one_leaves_is_removed_by_the_next_but_nothing_else(temporary: Path) -> None:
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


def test_a_command_is_run_on_it_and_ends_it(temporary: Path) -> None:
    script = 'read line; echo "$line"; barnabas() { "$0" -P -m barnabas.cli "$@"; }; barnabas topic create t; exit 7'
    with up("sh", "-c", script, sys.executable) as process:
        out, err = process.communicate("its standard input is the command's\n", TIMEOUT_S)
    assert (process.returncode, err) == (7, "")
    assert out.splitlines()[0] == "its standard input is the command's"
    assert "t" in out.splitlines()[1]
    assert list(temporary.iterdir()) == []


def test_a_command_that_dies_of_a_signal_ends_it_as_in_a_shell(temporary: Path) -> None:
    with up("--", "sh", "-c", "kill -KILL $$") as process:
        assert process.wait(TIMEOUT_S) == 128 + signal.SIGKILL


def test_a_command_may_take_ctrl_c_in_its_own_way() -> None:
    script = "trap 'echo taken; exit 3' INT; echo started; while :; do sleep 0.05; done"
    with up("sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        process.send_signal(signal.SIGINT)  # a terminal sends it to both
        (command,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[-1:]
        os.kill(int(command), signal.SIGINT)
        assert process.communicate(timeout=TIMEOUT_S) == ("taken\n", "")
        assert process.returncode == 3


def test_a_command_is_ended_with_it() -> None:
    with up("sh", "-c", "echo $$; exec sleep 1000") as process:
        assert process.stdout is not None
        descriptor = os.pidfd_open(int(process.stdout.readline()))
        process.terminate()
        await_ends([descriptor])


def test_what_cannot_be_is_refused(temporary: Path, barnabas: Barnabas) -> None:
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
        assert "cannot use" in err  # the end of the log of whichever ended first; it is gone with the directory
        assert "ended at start" in err
    assert list(temporary.iterdir()) == []
