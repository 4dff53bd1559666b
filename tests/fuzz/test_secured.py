"""Listeners with TLS and SASL under hostile bytes for a few seconds; `make fuzz` does it for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.secured import PROTOCOLS, assert_not_handled, run_secured

SECONDS = 4
LINE = "Slow request: {} v4, correlation id 1 from client=x, connection 127.0.0.1:9-127.0.0.1:{}-0-7: totalTimeMs=1.0\n"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_nothing_is_handled_before_the_login(tmp_path: Path, protocol: str, request: pytest.FixtureRequest) -> None:
    seed = request.config.getoption("seed")
    print(f"{SECONDS} seconds of seed {seed}")
    ways = run_secured(tmp_path / "cluster", protocol, SECONDS, seed, print)
    assert len(ways) >= 3


def test_a_request_that_was_handled_is_noticed() -> None:
    log = LINE.format("Metadata", 1000) + LINE.format("Produce", 2000)
    assert_not_handled("broker-1", log, {3000}, {1000, 2000})
    with pytest.raises(AssertionError, match="broker-1 handled requests of strangers"):
        assert_not_handled("broker-1", log, {2000}, {1000})
    with pytest.raises(AssertionError, match="no request of the users"):
        assert_not_handled("broker-1", log, {3000}, {4000})
