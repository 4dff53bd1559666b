"""A short stress run as part of the tests; `make stress` is a long one. The seed is always printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300


def test_faults_under_load_lose_duplicate_and_reorder_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Runs in its own process, which may need its own namespaces."""
    faults, seed = request.config.getoption("faults"), request.config.getoption("seed")
    command = [sys.executable, "-m", "tests.stress", "--faults", str(faults), "--seed", str(seed)]
    run = subprocess.run(
        [*command, "--directory", str(tmp_path / "cluster")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    print(run.stdout)
    assert run.returncode == 0, f"seed {seed}: {run.stdout}"
