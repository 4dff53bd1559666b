"""On other systems than Linux: servers refuse in one line, and the protocol works."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.common.processes import linux


def run_elsewhere(platform: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that takes itself for one of another platform."""
    program = f"import click, subprocess, sys; sys.platform = {platform!r}; {code}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


def test_linux_is_not_refused() -> None:
    assert linux.refusal("linux") is None
    linux.require()


@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_the_command_line_refuses_in_one_line(platform: str) -> None:
    done = run_elsewhere(platform, "from barnabas.cli.main import main; main()")
    assert done.returncode == 1
    expected = f"Barnabas runs on Linux only, and this is {platform}: use a container or a virtual machine"
    assert done.stderr == f"barnabas: {expected}\n"


@pytest.mark.parametrize("module", ["barnabas.broker.main", "barnabas.controller.main", "barnabas.cluster"])
def test_servers_and_clusters_cannot_be_imported(module: str) -> None:
    done = run_elsewhere("darwin", f"import {module}")
    assert done.stderr.splitlines()[-1] == f"ImportError: {linux.refusal('darwin')}"


@pytest.mark.parametrize(
    "module", ["barnabas.protocol.codec", "barnabas.protocol.records.batch", "barnabas.client.connection"]
)
def test_the_protocol_library_works(module: str) -> None:
    assert run_elsewhere("darwin", f"import {module}").stderr == ""
