"""A short stress run as part of the tests; `make stress` is a long one. The seed is always printed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.stress.faults.network import is_possible

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 300
SECURED_FAULTS = "4"
QUORUM_FAULTS = "6"
COMBINED_FAULTS = "4"


def test_faults_under_load_lose_duplicate_and_reorder_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    faults, seed = request.config.getoption("faults"), request.config.getoption("seed")
    stress(tmp_path, "--faults", str(faults), "--seed", str(seed))


def test_faults_lose_nothing_on_a_secured_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With a few faults: some of security, and nodes that are killed."""
    kinds = ("revoke_right", "renew_certificates", "kill_leader", "kill_controller")
    only = [argument for kind in kinds for argument in ("--only", kind)]
    seed = request.config.getoption("seed")
    stress(tmp_path, "--faults", SECURED_FAULTS, "--seed", str(seed), "--security", "sasl_ssl", *only)


def test_faults_of_three_controllers_lose_no_decision(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With a few faults, and light producers: the long run has all of them."""
    kinds = ["kill_active_controller", "pause_active_controller", "replace_controller_disk", "kill_leader"]
    kinds += ["isolate_controller", "mute_controller"] if is_possible() else []
    only = [argument for kind in kinds for argument in ("--only", kind)]
    seed = request.config.getoption("seed")
    stress(tmp_path, "--faults", QUORUM_FAULTS, "--seed", str(seed), "--controllers", "3", "--java", "0", *only)


def test_faults_of_nodes_with_both_roles_lose_nothing(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kinds = ["kill_active_controller", "pause_active_controller", "kill_all_controllers", "kill_leader", "stop_broker"]
    only = [argument for kind in kinds for argument in ("--only", kind)]
    seed = request.config.getoption("seed")
    stress(tmp_path, "--faults", COMBINED_FAULTS, "--seed", str(seed), "--combined", "--java", "0", *only)


def stress(tmp_path: Path, *arguments: str) -> None:
    """Run in a process of its own, which may need its own namespaces."""
    command = [sys.executable, "-m", "tests.stress", *arguments]
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
    assert run.returncode == 0, f"{' '.join(arguments)}: {run.stdout}"
