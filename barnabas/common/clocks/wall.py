"""The time of day. Why a module of its own: it is read for every append, and so it is compiled."""

from __future__ import annotations

import time
from typing import Final

NS_PER_MS: Final = 1_000_000

_time_ns: Final = time.time_ns


def wall_ms() -> int:
    """Return milliseconds since the epoch."""
    return _time_ns() // NS_PER_MS
