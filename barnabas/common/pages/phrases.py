"""Phrases: numbers, durations and lists in a readable form. Pure.

duration(17) = "17 ms"    duration(4100) = "4.1 s"    duration(185_000) = "3 min 5 s"
count(1, "byte") = "1 byte"    count(1200, "byte") = "1,200 bytes"
listed(["a", "b", "c"]) = "a, b and c"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MS_PER_S: Final = 1000
S_PER_MIN: Final = 60
MIN_PER_HOUR: Final = 60
HOURS_PER_DAY: Final = 24


def duration(ms: float) -> str:
    """Return a duration in a readable unit."""
    if ms < MS_PER_S:
        return f"{round(ms)} ms"
    seconds = ms / MS_PER_S
    if seconds < S_PER_MIN - 0.05:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(round(seconds), S_PER_MIN)
    if minutes < MIN_PER_HOUR:
        return f"{minutes} min {rest_s} s"
    hours, minutes = divmod(minutes, MIN_PER_HOUR)
    if hours < 2 * HOURS_PER_DAY:
        return f"{hours} h {minutes} min"
    return f"{hours // HOURS_PER_DAY} d {hours % HOURS_PER_DAY} h"


def count(number: int, thing: str, things: str = "") -> str:
    """Return a number with its noun; `things` is the plural, if it is irregular."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def listed(words: Sequence[str], at_most: int = 3, last: str = "and") -> str:
    """Return words as a list in a sentence; those beyond `at_most` are only counted."""
    shown = list(words[:at_most])
    if len(words) > at_most:
        shown.append(f"{len(words) - at_most} more")
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {last} {shown[-1]}" if shown else ""
