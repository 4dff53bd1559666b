"""Tests benchmarks/wide/crowds.py: connections and groups once, very few, on Barnabas."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.common.clock import SystemClock
from benchmarks.load.load_generator import LoadGenerator
from benchmarks.systems import SETTINGS, Barnabas
from benchmarks.wide.crowds import consumer_groups, idle_connections
from benchmarks.wide.figures import CONNECTIONS, GROUPS, Curve
from benchmarks.wide.measures import Measure, Times, Tools


@pytest.mark.needs("gcc")
@pytest.mark.parametrize(("curve", "measure"), [(CONNECTIONS, idle_connections), (GROUPS, consumer_groups)])
def test_a_measurement_returns_its_figures(curve: Curve, measure: Measure, tmp_path: Path) -> None:
    clock = SystemClock()
    tools = Tools(LoadGenerator(tmp_path, clock), clock, Times(0, 1000, 50))
    system = Barnabas(tmp_path / "system", settings=SETTINGS)
    samples = dict(measure(tools, system, 25))
    assert list(samples) == [figure.name for figure in curve.measured]
    assert all(value >= 0 for value in samples.values())
    assert not system.directory.exists()
