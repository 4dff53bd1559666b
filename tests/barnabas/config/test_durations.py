"""Durations as java.time.Duration.parse reads them; the cases were tried with JDK 17."""

from __future__ import annotations

import pytest

from barnabas.config.durations import parse_duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1S", 1000),
        ("pt1s", 1000),
        ("P2DT3H4M5.678S", 183_845_678),
        ("PT1H-2M", 3_480_000),
        ("P+1D", 86_400_000),
        ("PT+1S", 1000),
        ("PT1,5S", 1500),
        ("PT1.S", 1000),
        ("PT-1.5S", -1500),
        ("-PT1H", -3_600_000),
        ("-P-1D", 86_400_000),
        ("PT0.123456789S", 123),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    ["", "P", "PT", "P1DT", "P1Y", "1S", "PT.5S", "PT1.1234567890S", "PT1S1M", "P1D ", "PT1H\n", "PT" + "9" * 30 + "S"],
)
def test_texts_that_are_none(text: str) -> None:
    assert parse_duration_ms(text) is None
