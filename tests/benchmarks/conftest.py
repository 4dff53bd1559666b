"""A finished run of the benchmark."""

from __future__ import annotations

import pytest

from barnabas.common.clock import SystemClock
from benchmarks.report.figures import OURS, THEIRS
from benchmarks.report.runs import Run
from benchmarks.report.table import Samples


@pytest.fixture
def samples() -> dict[str, dict[str, list[float]]]:
    """Two figures: one with two rounds, one with one."""
    return {
        "produce 1 KiB": {OURS: [150.123456, 140.0], THEIRS: [100.0, 100.0]},
        "start, 1 broker": {OURS: [0.25], THEIRS: [2.5]},
    }


@pytest.fixture
def ended(samples: Samples) -> Run:
    """A run that has just ended with these samples."""
    return Run.now(SystemClock(), 2, {OURS: "barnabas, version 1"}, {"produce 32x2": 90_000.4}, samples)
