"""Durations as text: "7d", "1h30m", "500ms". Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from barnabas.clock.errors import ClockError

UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PIECE: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d|w)", re.ASCII)
_WHOLE: Final = re.compile(rf"(?:{_PIECE.pattern})+", re.ASCII)
MS_MAX: Final = 100 * 365 * UNITS_MS["d"]


def duration_ms(value: object) -> int:
    """Return milliseconds: of text, of a timedelta, or of a number of milliseconds. Raises ClockError."""
    if isinstance(value, timedelta):
        ms = value // timedelta(milliseconds=1)
    elif isinstance(value, int) and not isinstance(value, bool):
        ms = value
    elif isinstance(value, str) and len(value) <= 100 and _WHOLE.fullmatch(value):
        ms = sum(int(number) * UNITS_MS[unit] for number, unit in _PIECE.findall(value))
    else:
        raise ClockError(f"{str(value)[:40]!r} is not a duration: expected one like 7d, 1h30m or 500ms")
    if not 0 <= ms <= MS_MAX:
        raise ClockError(f"{str(value)[:40]} is not possible: time moves forward, by at most 100 years")
    return ms
