"""The steps in which a span of time passes. Pure.

Theory
Seven days in one jump would run everything that is due in any order, and stamp all of it with the last day: a
transaction that times out after a minute would be aborted when its records have long expired. So a walk stops at each
deadline. But a live client renews its deadlines as fast as they pass, so a walk that stopped at each would never end.

Rules
1. A step ends at the next deadline, if that is at least LEAST_MS and 1/NEAR of the time walked so far ahead. So two
   deadlines are kept apart if the time between them is more than that.
2. Without a near deadline, a step is at most 1/FAR of the time walked so far, and 1/STEPS of the whole span: what
   periodic tasks find (a transaction that timed out) is late by no more.
3. `step_ms` makes the steps smaller, down to LEAST_MS.
"""

from __future__ import annotations

from typing import Final

LEAST_MS: Final = 10
NEAR: Final = 16
FAR: Final = 8
FAR_MS_MIN: Final = 1000
STEPS: Final = 64


def next_point_ms(walked_ms: int, span_ms: int, due_in_ms: int | None, step_ms: int | None = None) -> int:
    """Return how much of the span has passed after the next step; always more than `walked_ms`, if that is less."""
    least = LEAST_MS + walked_ms // NEAR
    most = max(FAR_MS_MIN, min(walked_ms // FAR, span_ms // STEPS))
    if step_ms is not None:
        most = max(LEAST_MS, min(most, step_ms))
    least = min(least, most)
    ahead = most if due_in_ms is None else max(least, min(due_in_ms, most))
    return min(span_ms, walked_ms + ahead)
