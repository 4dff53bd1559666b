"""A project with simulated tests, and a pytest in a process of its own to run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

TIMEOUT_S = 300
#: aiokafka's modules in C read the real clock (docs/simulation.md).
CLIENTS = {"AIOKAFKA_NO_EXTENSIONS": "1"}


class Project:
    """A directory with tests."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def write(self, **files: str) -> None:
        """Write `test_x=` as test_x.py."""
        for name, text in files.items():
            (self.directory / f"{name}.py").write_text(textwrap.dedent(text))

    def run(self, *arguments: str) -> tuple[int, str]:
        """Run pytest, with no plugin but ours; return its exit code and its output."""
        command = [sys.executable, "-P", "-m", "pytest", "-p", "barnabas.testing.plugin", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, "-q", "-rA", "--color=no", "--strict-markers", "--rootdir=.", *arguments],
            cwd=self.directory,
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(self.directory), **CLIENTS},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout


def outcomes(out: str) -> dict[str, str]:
    """The outcome of each test, by the part of its id after `::`."""
    return {name: outcome for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) [\w./]+::([^\s]+)", out, re.M)}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)
