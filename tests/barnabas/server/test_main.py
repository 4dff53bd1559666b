"""`python -m barnabas.server.main FILE`: the roles of a file as one process. Also covers `barnabas server FILE`."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import main as broker_main
from barnabas.common.locks import factory
from barnabas.common.processes.ports import free_ports
from barnabas.controller import recover
from barnabas.server import main

READY = "is ready"


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """main configures the root logger; give pytest's back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(False)


def file_of(directory: Path, **more: str) -> Path:
    """Write the server.properties of a node with both roles; keys with underscores for dots."""
    port, controllers = free_ports(2)
    lines = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.bootstrap.servers": f"localhost:{controllers}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controllers}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(directory / "data"),
        "barnabas.metrics.port": "-1",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    return file


def until_ready_then_stopped(command: list[str]) -> str:
    """Run a server until it is ready and stop it; return its output."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        lines = []
        for line in child.stderr:
            lines.append(line)
            if READY in line:
                break
        child.send_signal(signal.SIGTERM)
        lines.append(child.stderr.read())
        assert child.wait(60) == 0, "".join(lines)
    return "".join(lines)


def test_both_roles_start_and_stop(tmp_path: Path) -> None:
    output = until_ready_then_stopped([sys.executable, "-m", "barnabas.cli", "server", str(file_of(tmp_path))])
    assert "Node 1 is ready as broker and controller: PLAINTEXT on port" in output
    assert "Broker 1 goes from unfenced to controlled shutdown" in output or "to shutdown now" in output
    assert output.rstrip().endswith("Node 1 has shut down (barnabas.server)")
    assert "Traceback" not in output
    assert "WARNING" not in output


def test_a_file_with_one_role_starts_that_one(tmp_path: Path) -> None:
    more = {"process_roles": "controller", "listeners": "CONTROLLER://127.0.0.1:0"}
    output = until_ready_then_stopped(
        [sys.executable, "-P", "-m", "barnabas.server.main", str(file_of(tmp_path, **more))]
    )
    assert "Controller 1 is ready on port" in output


@pytest.mark.parametrize(
    ("more", "override", "message"),
    [
        ({"node_id": "x"}, [], "node.id"),
        ({"process_roles": "observer"}, [], "process.roles"),
        ({"controller_quorum_voters": "1@a:1,2@b:1"}, [], "is new and does not say which cluster it"),
        ({"listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://256.0.0.1:0"}, [], "cannot listen on 256.0.0.1:0"),
        ({"log_dirs": "/proc/nowhere"}, [], "/proc/nowhere"),
        ({}, ["--override", "nonsense"], "--override wants KEY=VALUE, not 'nonsense'"),
    ],
)
def test_an_operator_error_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: dict[str, str], override: list[str], message: str
) -> None:
    assert main.main([str(file_of(tmp_path, **more)), *override], {}) == 1
    printed = capsys.readouterr().err.strip().splitlines()
    assert message in printed[-1]
    assert printed[-1].startswith("server: ")
    assert not any("Traceback" in line for line in printed)


def test_a_taken_port_of_the_page_ends_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main.main([str(file_of(tmp_path, barnabas_metrics_port=str(port)))], {}) == 1
    assert "server: " in capsys.readouterr().err


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_the_commands_of_one_role_name_this_one(tmp_path: Path, capsys: pytest.CaptureFixture[str], role: str) -> None:
    assert main.ALONE[frozenset({role})]([str(file_of(tmp_path))], {}) == 1
    assert "`barnabas server FILE` runs both in one process" in capsys.readouterr().err


def test_the_log_of_both_roles_is_not_rebuilt_in_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert recover.main([str(file_of(tmp_path)), "--from-brokers", "localhost:1"], {}) == 1
    assert "has both roles, so its broker cannot be asked without its controller" in capsys.readouterr().err


@pytest.mark.parametrize("is_counted", [False, True])
def test_locks_count_if_the_setting_says_so(is_counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factory, "_tally", None)
    found: list[bool] = []

    def build(*_: object, **__: object) -> None:
        found.append(factory.lock_tally() is not None)

    monkeypatch.setattr(main, "CombinedServer", build)
    monkeypatch.setattr(broker_main, "BrokerServer", build)
    settings: Any = SimpleNamespace(
        barnabas_lock_counts=is_counted, barnabas_faults_enable=False, barnabas_clock_enable=False
    )
    main.make_server(settings, None)
    monkeypatch.setattr(factory, "_tally", None)
    broker_main.make_server(settings, lambda _: None)
    assert found == [is_counted, is_counted]
