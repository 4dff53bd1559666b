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

from barnabas.client.connection import NodeConnection
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from tests.barnabas.cli.conftest import Barnabas
from tests.support.processes import await_ends
from tests.support.waiting import eventually

TIMEOUT_S = 30
# With a session this short, a killed broker can register again soon.
SHORT_SESSION = ("--config", "broker.session.timeout.ms=1000", "--config", "broker.heartbeat.interval.ms=200")


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put pointers to running clusters, and temporary directories, into two directories of the test.

    One directory for both would not do: the random name of a temporary directory can look like that of the pointers.
    """
    pointers, directory = tmp_path / "pointers", tmp_path / "temporary"
    for variable, path in (("XDG_RUNTIME_DIR", pointers), ("TMPDIR", directory)):
        path.mkdir()
        monkeypatch.setenv(variable, str(path))
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


def test_a_combined_node_is_one_process(tmp_path: Path, barnabas: Barnabas) -> None:
    with up("--data-dir", str(tmp_path), "--combined", "--security", "sasl_ssl") as process:
        ready(process)
        (entry,) = json.loads((tmp_path / "cluster.json").read_text())["processes"]
        assert (entry["role"], "controller_port" in entry) == ("broker", True)
        rows = json.loads(barnabas("status", "--json").out)
        assert [(row["node"], row["role"]) for row in rows] == [(None, "supervisor"), (0, "broker,controller")]
        (frame,) = barnabas("top", "--once", "--json").out.splitlines()
        assert json.loads(frame)["controller"]["controller"] == 0
        assert end(process, signal.SIGTERM) == (0, "", "")
    assert (tmp_path / "broker-0" / "data" / "__cluster_metadata-0").is_dir()
    for arguments, words in (
        (("--data-dir", str(tmp_path)), "start it with --combined"),
        (("--combined", "--controllers", "3"), "--combined excludes --controllers"),
    ):
        with up(*arguments) as refused:
            assert words in refused.communicate(timeout=TIMEOUT_S)[1]
            assert refused.returncode == (2 if "excludes" in words else 1)


def test_clients_are_answered_as_by_an_older_release(tmp_path: Path) -> None:
    with up("--data-dir", str(tmp_path), "--brokers", "1", "--compat", "2.8") as process:
        host, _, port = ready(process)["bootstrap"].rpartition(":")
        with NodeConnection(host, int(port)) as connection:
            listed = {row.api_key: row.max_version for row in connection.send(ApiVersionsRequest(), 0).api_keys}
        assert (listed[0], 68 in listed) == (9, False)
        assert end(process, signal.SIGTERM) == (0, "", "")
    with up("--compat", "0.9") as refused:
        assert (
            "barnabas.compat.release: String must be one of: , 0.10, 0.10.0"
            in refused.communicate(timeout=TIMEOUT_S)[1]
        )
        assert refused.returncode == 1


def test_a_temporary_directory_is_removed_at_the_end(temporary_directory: Path) -> None:
    with up() as process:
        ready(process)
        (made,) = temporary_directory.glob("barnabas-*")
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
