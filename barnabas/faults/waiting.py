"""Waiting for something that a fault or a recorder must see."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import Final, TypeVar

from barnabas.common.clock import SystemClock

POLL_S_MIN: Final = 0.005
POLL_S_MAX: Final = 0.1
TIMEOUT_S: Final = 30.0

T = TypeVar("T")


class FaultTimeoutError(AssertionError):
    """The awaited event did not happen in time."""


def wait_for(probe: Callable[[], T | None], complaint: Callable[[], str], timeout_s: float) -> T:
    """Call `probe` until its result is not None, and return that. Raises FaultTimeoutError with the complaint."""
    clock = SystemClock()
    until_ms = clock.monotonic_ms() + int(timeout_s * 1000)
    pause_s = POLL_S_MIN
    while True:
        value = probe()
        if value is not None:
            return value
        if clock.monotonic_ms() >= until_ms:
            raise FaultTimeoutError(complaint())
        select.select([], [], [], pause_s)
        pause_s = min(POLL_S_MAX, pause_s * 1.5)
