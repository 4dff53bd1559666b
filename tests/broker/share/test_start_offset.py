"""Where a share partition begins: the timestamp of each strategy. (tests/broker/apis/test_share_fetch_apis.py: the
offsets.)
"""

from __future__ import annotations

import pytest

from barnabas.broker.share.start_offset import timestamp_of
from barnabas.broker.storage.log.log_types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("strategy", "ago_ms"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2H3M4.5S", 93_784_500),
        ("by_duration:p2d", 172_800_000),
        ("by_duration:PT0.001S", 1),
        ("by_duration:P999999999D", NOW_MS),
    ],
)
def test_a_duration_ago(strategy: str, ago_ms: int) -> None:
    assert timestamp_of(strategy, NOW_MS) == NOW_MS - ago_ms


def test_earliest_and_latest() -> None:
    assert timestamp_of("earliest", NOW_MS) == EARLIEST_TIMESTAMP
    assert timestamp_of("latest", NOW_MS) == LATEST_TIMESTAMP
