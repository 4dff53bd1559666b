"""Durations as text, and their mistakes (clock/durations.py, clock/errors.py)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from barnabas.clock.durations import duration_ms
from barnabas.clock.errors import ClockError


@pytest.mark.parametrize(
    ("text", "ms"),
    [("7d", 604_800_000), ("1h30m", 5_400_000), ("500ms", 500), ("0s", 0), ("2w", 1_209_600_000), (1500, 1500)],
)
def test_durations(text: object, ms: int) -> None:
    assert duration_ms(text) == ms
    assert duration_ms(timedelta(milliseconds=ms)) == ms


@pytest.mark.parametrize("text", ["", "7", "d", "7 d", "-1d", "7days", "1.5h", None, True, 1.5, "1s" * 100, "٣d"])
def test_what_is_no_duration(text: object) -> None:
    with pytest.raises(ClockError, match="is not a duration: expected one like 7d"):
        duration_ms(text)


@pytest.mark.parametrize("value", ["999999999999999w", timedelta(days=-1), -1])
def test_time_moves_forward_and_not_too_far(value: object) -> None:
    with pytest.raises(ClockError, match="time moves forward"):
        duration_ms(value)
