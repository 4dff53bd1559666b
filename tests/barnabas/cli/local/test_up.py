"""`barnabas up` (up.py, supervisor.py, process.py) and `barnabas node`, run by a script."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.barnabas.cli.conftest import Barnabas
from tests.support.processes import await_ends
from tests.support.waiting import eventually

TIMEOUT_S = 30
# With a session this short, a killed broker can register again soon.
SHORT_SESSION = ("--config", "broker.session.timeout.ms=1000", "--config", "broker.heartbeat.interval.ms=200")


@pytest.fixture(autouse=True)
def runtime_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put pointers to running clusters, and temporary directories, into the test's directory."""
    directory = tmp_path / "runtime"
    directory.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(directory))
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", None)
    return directory


@contextlib.contextmanager
def up(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`barnabas up` on free ports; killed at the end if it still runs."""
    command = [sys.executable, "-P", "-m", "barnabas.cli", "up", "--brokers", "1", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def ready(process: subprocess.Popen[str]) -> dict[str, str]:
    """The fields of the ready line."""
    assert process.stdout is not None
    word, *fields = process.stdout.readline().split()
    assert word == "ready"
    return dict(field.split("=", 1) for field in fields)


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str, str]:
    """Signal the process; return its exit code and the rest of its output."""
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def pids(directory: Path) -> list[int]:
    """The processes of a running cluster."""
    return [process["pid"] for process in json.loads((directory / "cluster.json").read_text())["processes"]]


def test_a_first_start_logs_no_alarming_lines(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path)) as process:
        ready(process)
        text = "".join(path.read_text() for path in tmp_path.glob("*/process.log"))
        assert "holds no logs" in text
        assert not [line for line in text.splitlines() if "unclean" in line or "closing" in line]
        assert end(process, signal.SIGTERM) == (0, "", "")


def test_a_directory_is_kept_and_reused_with_its_data(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with up("--data-dir", str(directory), "--config", "barnabas.metrics.port=-1") as process:
        fields = ready(process)
        assert fields["metrics"] == ""
        content = json.loads((directory / "cluster.json").read_text())
        assert content["bootstrap"] == fields["bootstrap"]
        assert content["supervisor_pid"] == process.pid
        for entry in content["processes"]:
            assert entry.keys() == {"role", "id", "pid", "port", "metrics_port"}
            assert entry["metrics_port"] == -1
        admin = AdminClient({"bootstrap.servers": fields["bootstrap"]})
        admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(20)
        assert end(process, signal.SIGTERM) == (0, "", "")
    assert not (directory / "cluster.json").exists()
    with up("--data-dir", str(directory)) as process:
        fields = ready(process)
        assert len(fields["metrics"].split(",")) == 2
        assert "kept" in AdminClient({"bootstrap.servers": fields["bootstrap"]}).list_topics(timeout=20).topics
        assert end(process, signal.SIGINT) == (130, "", "")


def test_a_temporary_directory_is_removed_at_the_end(runtime_directory: Path) -> None:
    with up() as process:
        ready(process)
        (made,) = runtime_directory.glob("barnabas-[!c]*")
        assert (made / "cluster.json").exists()
        assert end(process, signal.SIGINT)[0] == 130
    assert not made.exists()


def test_ctrl_c_while_starting_ends_quietly(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path / "data")) as process:
        eventually("a process is started", (tmp_path / "data" / "cluster.json").exists)
        assert end(process, signal.SIGINT) == (130, "", "")


def test_a_second_ctrl_c_kills_the_processes(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path)) as process:
        ready(process)
        descriptors = [os.pidfd_open(pid) for pid in pids(tmp_path)]
        for descriptor in descriptors:
            signal.pidfd_send_signal(descriptor, signal.SIGSTOP)  # without `up` knowing
        process.send_signal(signal.SIGINT)
        eventually("the first one is handled", lambda: not (tmp_path / "control.sock").exists())
        assert end(process, signal.SIGINT) == (130, "", "")
        await_ends(descriptors)


def test_nothing_outlives_a_killed_supervisor_and_the_directory_can_be_used_at_once(
    tmp_path: Path, barnabas: Barnabas
) -> None:
    with up("--data-dir", str(tmp_path), *SHORT_SESSION) as process:
        ready(process)
        descriptors = [os.pidfd_open(pid) for pid in pids(tmp_path)]
        assert barnabas("node", "pause", "0").out == "broker-0 paused\n"
        process.kill()
        process.wait()
        with up("--data-dir", str(tmp_path), *SHORT_SESSION) as successor:
            ready(successor)
            await_ends(descriptors)
            assert end(successor, signal.SIGTERM) == (0, "", "")


def test_a_node_is_killed_started_paused_resumed_and_stopped(tmp_path: Path, barnabas: Barnabas) -> None:
    with up("--data-dir", str(tmp_path), *SHORT_SESSION) as process:
        ready(process)
        before = pids(tmp_path)
        assert barnabas("node", "kill", "0") == (0, "broker-0 killed\n", "")
        assert barnabas("node", "kill", "0") == (1, "", "barnabas: broker-0 is not running\n")
        assert barnabas("node", "start", "0", "--data-dir", str(tmp_path)).out == "broker-0 is back\n"
        assert barnabas("topic", "list").code == 0  # it finds the running cluster
        assert barnabas("node", "pause", "0").out == "broker-0 paused\n"
        assert barnabas("node", "resume", "0").out == "broker-0 resumed\n"
        assert barnabas("node", "stop", "100").out == "controller-100 stopped\n"
        assert barnabas("node", "start", "100").out == "controller-100 is back\n"
        assert barnabas("node", "start", "100").err == "barnabas: controller-100 is running already\n"
        assert barnabas("node", "stop", "7").err == "barnabas: there is no node 7; the ids are 0, 100\n"
        assert set(before).isdisjoint(pids(tmp_path))
        second = subprocess.run(
            [sys.executable, "-P", "-m", "barnabas.cli", "up", "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert second.returncode == 1
        assert second.stderr == f"barnabas: {tmp_path} is in use by a running cluster (pid {process.pid})\n"
        assert end(process, signal.SIGTERM) == (0, "", "")
    outcome = barnabas("node", "kill", "0")
    assert outcome.err == "barnabas: no running local cluster was found: give its directory as --data-dir\n"


def test_a_process_that_dies_is_reported_and_not_restarted(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path)) as process:
        ready(process)
        controller, broker = pids(tmp_path)
        os.kill(broker, signal.SIGKILL)
        assert process.stderr is not None
        line = process.stderr.readline()
        log = tmp_path / "broker-0" / "process.log"
        assert line == f"barnabas: broker-0 died: SIGKILL; its log is {log}; `barnabas node start 0` brings it back\n"
        os.kill(controller, 0)  # still there
        assert end(process, signal.SIGTERM) == (0, "", "")


def test_an_unknown_key_is_a_warning(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path), "--config", "num.io.thraeds=3") as process:
        ready(process)
        line = "barnabas: unknown config key is ignored: num.io.thraeds (did you mean num.io.threads?)\n"
        assert end(process, signal.SIGTERM) == (0, "", line)
