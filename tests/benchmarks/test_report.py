"""Whether a figure meets its target."""

from __future__ import annotations

import pytest

from benchmarks.measurements import Figure
from benchmarks.report import Row


@pytest.mark.parametrize(
    ("figure", "ours", "theirs", "is_met"),
    [
        (Figure("", "MB/s", True, ratio_min=1.0), [10, 12, 8], [10, 10, 10], True),
        (Figure("", "MB/s", True, ratio_min=1.0), [9, 12, 8], [10, 10, 10], False),
        (Figure("", "ms", False, ratio_max=1.0), [9, 12, 8], [10, 10, 10], True),
        (Figure("", "ms", False, ratio_max=1.0), [11, 12, 8], [10, 10, 10], False),
        (Figure("", "ms", False, own_max=200), [150, 300, 199], [], True),
        (Figure("", "ms", False, own_max=200), [250, 300, 199], [1, 1, 1], False),
        (Figure("", "ms", False, ratio_max=1.0), [1], [], None),
        (Figure("", "ms", False), [1], [2], None),
    ],
)
def test_medians_are_held_against_targets(
    figure: Figure, ours: list[float], theirs: list[float], is_met: bool | None
) -> None:
    assert Row(figure, ours, theirs).is_met is is_met
