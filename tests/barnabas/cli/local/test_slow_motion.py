"""The properties that `--slow-motion` sets."""

from __future__ import annotations

import pytest

from barnabas.cli.local.slow_motion import FACTOR_MAX, PAUSES_MS, SMALL_QUEUES, slow_motion_properties
from barnabas.cli.local.up import up
from barnabas.cli.main import run
from barnabas.cluster import PROBE_TIMEOUT_MS
from barnabas.config.config import Config
from barnabas.config.table.keys import BROKER_KEYS, OWN_KEYS


@pytest.mark.parametrize(
    ("arguments", "factor"),
    [([], None), (["--slow-motion"], 1.0), (["--slow-motion", "0.5"], 0.5), (["--slow-motion", "--brokers", "1"], 1.0)],
)
def test_the_factor_is_optional(arguments: list[str], factor: float | None) -> None:
    assert up.make_context("up", arguments).params["slow_motion"] == factor


@pytest.mark.parametrize("factor", ["0", "-1", "5", "much"])
def test_an_invalid_factor_is_one_line(factor: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "--slow-motion", factor]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_nothing_is_set_at_full_speed() -> None:
    assert slow_motion_properties(None) == {}


@pytest.mark.parametrize("factor", [0.01, 1, 2])
def test_a_broker_accepts_the_properties(factor: float) -> None:
    properties = slow_motion_properties(factor)
    config = Config.from_properties({**properties, "node.id": "0", "controller.quorum.bootstrap.servers": "h:1"})
    assert config.barnabas_slow_motion_handler_ms == 500 * factor
    assert (config.num_network_threads, config.num_io_threads, config.queued_max_requests) == (1, 2, 8)


def test_every_pause_is_set() -> None:
    assert {key for key in OWN_KEYS if key.startswith("barnabas.slow.motion.")} == set(PAUSES_MS)
    assert all(BROKER_KEYS[key].live for key in PAUSES_MS)
    assert not SMALL_QUEUES.keys() & PAUSES_MS.keys()


def test_the_slowest_broker_answers_a_probe_in_time() -> None:
    slowest = slow_motion_properties(FACTOR_MAX)
    fetcher = "barnabas.slow.motion.fetcher.ms"
    assert sum(int(slowest[key]) for key in PAUSES_MS if key != fetcher) < PROBE_TIMEOUT_MS
    assert int(slowest[fetcher]) < BROKER_KEYS["replica.lag.time.max.ms"].default / 2
