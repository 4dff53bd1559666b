"""A short churn run as part of the tests; `make churn` is a long one. The seed is always printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.churn.run import run

SECURED_DEEDS = 3


def test_groups_of_real_clients_survive_churn_and_failovers(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    deeds, seed = request.config.getoption("deeds"), request.config.getoption("seed")
    print(f"{deeds} deeds of seed {seed}")
    run(tmp_path / "cluster", deeds, seed, print)


def test_groups_survive_changes_of_certificates_rights_and_passwords(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """On a secured cluster, with only a few of the other events."""
    seed = request.config.getoption("seed")
    print(f"seed {seed}")
    run(tmp_path / "cluster", SECURED_DEEDS, seed, print, "sasl_ssl")
