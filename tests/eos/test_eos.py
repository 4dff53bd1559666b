"""A short run as part of the tests; `make eos` is a long one. The seed is always printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.eos.run import run
from tests.support.kafka.kafka_jars import KafkaRuntime


def test_every_effect_happens_exactly_once_under_kills(
    apache_runtime: KafkaRuntime, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    kills, seed = request.config.getoption("eos_kills"), request.config.getoption("seed")
    print(f"{kills} kills of seed {seed}")
    run(tmp_path / "cluster", kills, seed, print)
