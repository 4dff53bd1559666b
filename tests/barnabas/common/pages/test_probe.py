"""The probe of the container image."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.common.clock import SystemClock
from barnabas.common.pages.page import readiness
from barnabas.common.pages.probe import main
from barnabas.common.processes.ports import free_ports
from barnabas.config.config import Config
from barnabas.metrics.http import MetricsServer
from barnabas.metrics.registry import Registry
from tests.support.certificates import Authority

Start = Callable[..., int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts pages that ask for a token; returns their port."""
    servers: list[MetricsServer] = []

    def started(*, is_ready: bool, **tls: str) -> int:
        properties = {"barnabas.pages.auth.token": "t0ken", "barnabas.metrics.port": "0"}
        properties |= {f"barnabas.pages.ssl.{key.replace('_', '.')}": text for key, text in tls.items()}
        server = MetricsServer.of_config(Registry(), Config.from_properties(properties), SystemClock())
        server.add_page("/readyz", lambda: readiness("RUNNING", is_ready=is_ready))
        server.start()
        servers.append(server)
        return server.port

    yield started
    for server in servers:
        server.stop()


@pytest.mark.parametrize("is_ready", [True, False])
@pytest.mark.parametrize("has_tls", [True, False])
def test_a_process_is_ready_or_not(start: Start, tmp_path: Path, is_ready: bool, has_tls: bool) -> None:
    store = Authority().issue("pages").write_pem(tmp_path / "pages.pem")
    tls = {"keystore_type": "PEM", "keystore_location": str(store)} if has_tls else {}
    assert main([str(start(is_ready=is_ready, **tls))]) == (0 if is_ready else 1)


def test_nothing_there_is_not_ready() -> None:
    (port,) = free_ports(1)
    assert main([str(port)]) == 1


def test_it_runs_as_a_program(start: Start) -> None:
    command = [sys.executable, "-P", "-m", "barnabas.common.pages.probe", str(start(is_ready=True))]
    assert subprocess.run(command, check=False).returncode == 0
