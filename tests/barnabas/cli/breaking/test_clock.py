"""`barnabas clock`, and /clock of a local cluster's control page (cli/local/control_page.py)."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.local.running import DIRECTORY_VARIABLE
from barnabas.common.pages.page_access import of_directory
from barnabas.common.processes.cluster_file import read_cluster_file
from tests.barnabas.cli.conftest import Barnabas
from tests.support.cluster import BarnabasCluster


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a running cluster with one broker, whose clock can be moved."""
    directory = tmp_path_factory.mktemp("moved")
    command = [sys.executable, "-P", "-m", "barnabas.cli", "up", "--brokers", "1", "--port", "0"]
    command += ["--data-dir", str(directory), "--config", "barnabas.clock.enable=true"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        try:
            yield directory
        finally:
            process.terminate()
            assert process.wait(30) == 0


@pytest.fixture(autouse=True)
def chosen(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands act on that cluster."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(directory))


def ask(directory: Path, method: str, body: Any = None) -> tuple[int, Any]:
    """Send a request to /clock of the control page; return status and JSON."""
    content = read_cluster_file(directory)
    assert content is not None
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": of_directory(directory).credential}
    request = urllib.request.Request(content["control_url"] + "/clock", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_the_time_passes(barnabas: Barnabas, directory: Path) -> None:
    before = datetime.fromisoformat(barnabas("clock", "now").out.strip())
    after = datetime.fromisoformat(barnabas("clock", "advance", "2h", "--step", "30m").out.strip())
    assert timedelta(hours=2) <= after - before < timedelta(hours=2, minutes=5)
    _, state = ask(directory, "GET")
    status, moved = ask(directory, "POST", {"advance": "1h"})
    assert (status, moved["offset_ms"] - state["offset_ms"]) == (200, 3_600_000)
    assert moved["now_ms"] - state["now_ms"] >= 3_600_000


@pytest.mark.parametrize("span", ["7", "-1d", "soon"])
def test_what_is_no_duration_is_one_line(barnabas: Barnabas, span: str) -> None:
    outcome = barnabas("clock", "advance", "--", span)
    assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)
    assert "is not a duration: expected one like 7d" in outcome.err


@pytest.mark.parametrize("body", [[], {}, {"advance": "soon"}, {"advance": "1s", "to": 1}, {"advance": None}])
def test_a_mistake_at_the_control_page(directory: Path, body: Any) -> None:
    status, answer = ask(directory, "POST", body)
    assert (status, list(answer)) == (400, ["error"])


def test_a_cluster_that_does_not_allow_it(
    barnabas: Barnabas, cluster: BarnabasCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(cluster.directory))
    outcome = barnabas("clock", "advance", "1d")
    assert (outcome.code, len(outcome.err.splitlines())) == (1, 1)
    assert "cannot be moved: start it with barnabas.clock.enable=true" in outcome.err
