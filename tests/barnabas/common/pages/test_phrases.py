"""Numbers, durations and lists in words."""

from __future__ import annotations

import pytest

from barnabas.common.pages.phrases import count, duration, listed


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 ms"),
        (16.6, "17 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (4100, "4.1 s"),
        (59_940, "59.9 s"),
        (59_960, "1 min 0 s"),
        (185_000, "3 min 5 s"),
        (3_599_900, "1 h 0 min"),
        (2 * 3_600_000 + 5 * 60_000, "2 h 5 min"),
        (47 * 3_600_000, "47 h 0 min"),
        (7 * 86_400_000 + 3_600_000, "7 d 1 h"),
    ],
)
def test_durations(ms: float, said: str) -> None:
    assert duration(ms) == said


def test_counts() -> None:
    assert (count(0, "byte"), count(1, "byte"), count(1200, "byte")) == ("0 bytes", "1 byte", "1,200 bytes")
    assert count(2, "entry", "entries") == "2 entries"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], ""),
        (["a"], "a"),
        (["a", "b"], "a and b"),
        (["a", "b", "c"], "a, b and c"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_lists(words: list[str], said: str) -> None:
    assert listed(words) == said
    assert listed(["a", "b"], last="or") == "a or b"
