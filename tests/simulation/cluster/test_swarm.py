"""What the seed draws, and how a slow fetcher ends."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.config import Config
from barnabas.testing.simulation.fault_decisions import FLUSHED_KINDS, KINDS, FaultPace
from tests.simulation.cluster.swarm import (
    AMID,
    DEAF,
    OUTAGES,
    RELAYS,
    SLOW_FETCHER,
    STALLS,
    STRANDING,
    draw_slow_fetchers,
    end_slow_fetcher,
    told_pace,
    told_settings,
)
from tests.simulation.load.story import Story


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


def test_a_story_changes_how_faults_come() -> None:
    pace = FaultPace(left_out=OUTAGES | STRANDING | {"kill"})
    assert told_pace(pace, Story()) == pace
    assert not told_pace(pace, Story(haste=1)).left_out
    flushed, unflushed = told_pace(pace, Story(outages=1)), told_pace(pace, Story(outages=2))
    assert (flushed.is_flushed, unflushed.is_flushed) == (True, False)
    assert flushed.favoured == OUTAGES
    assert flushed.left_out == STRANDING | {"kill"}
    assert told_pace(pace, Story(stranded=1)).left_out == OUTAGES | {"kill"}
    assert told_pace(pace, Story(relays=1)).favoured == RELAYS
    assert told_pace(FaultPace(), Story(amid=2)).left_out == frozenset(KINDS) - AMID
    assert "replace_disk" in told_pace(pace, Story(voters=1)).left_out
    deaf, stalling = told_pace(pace, Story(deaf=1)), told_pace(pace, Story(stalls=1))
    assert (deaf.favoured, deaf.is_flushed, deaf.left_out) == (DEAF, False, frozenset(FLUSHED_KINDS))
    assert (stalling.favoured, stalling.is_flushed, stalling.left_out) == (STALLS, True, set(FLUSHED_KINDS) - STALLS)


def test_a_story_changes_the_settings() -> None:
    drawn = {"num.io.threads": "1", "log.roll.ms": "700"}
    assert told_settings(drawn, Story()) == drawn
    assert told_settings(drawn, Story(stalls=1)) == {**drawn, "num.io.threads": "2"}
    assert told_settings({}, Story(laggards=1)) == {"replica.lag.time.max.ms": "1000"}


def test_a_story_with_laggards_always_has_one() -> None:
    drawn = [draw_slow_fetchers(random.Random(seed), range(3)) for seed in range(20)]
    assert {} in drawn
    lagging = [draw_slow_fetchers(random.Random(seed), range(3), has_laggards=True) for seed in range(20)]
    assert all(list(each.values()) == ["600"] for each in lagging)
