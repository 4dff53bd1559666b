"""What the seed draws, and how a slow fetcher ends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.config import Config
from tests.simulation.cluster.swarm import SLOW_FETCHER, end_slow_fetcher


def broker(*, has_server: bool = True, is_running: bool = True) -> Any:
    """A broker that waits after each fetch."""
    properties = {SLOW_FETCHER: "600"}
    server = SimpleNamespace(config=Config.from_properties(properties)) if has_server else None
    return SimpleNamespace(properties=properties, server=server, is_running=is_running)


def test_a_slow_fetcher_ends_in_the_process_and_in_the_next_one() -> None:
    slow = broker()
    assert slow.server.config.barnabas_slow_motion_fetcher_ms == 600
    end_slow_fetcher(slow)
    assert slow.server.config.barnabas_slow_motion_fetcher_ms == 0
    assert slow.properties == {}
    end_slow_fetcher(slow)  # again


def test_a_slow_fetcher_does_not_come_back_by_a_change_at_run_time() -> None:
    slow = broker()
    end_slow_fetcher(slow)
    config = slow.server.config
    config.replace(config.with_overrides({"num.io.threads": "1"}))
    assert config.barnabas_slow_motion_fetcher_ms == 0


@pytest.mark.parametrize("state", [{"has_server": False}, {"is_running": False}])
def test_a_broker_that_does_not_serve_starts_fast(state: dict[str, bool]) -> None:
    slow = broker(**state)
    end_slow_fetcher(slow)
    assert slow.properties == {}
