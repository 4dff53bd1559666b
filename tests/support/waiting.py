"""Waits for a condition, with a timeout. Tests never sleep for a fixed time."""

from __future__ import annotations

import select
from collections.abc import Callable
from typing import TypeVar

from barnabas.common.clock import SystemClock

POLL_MS = 10
TIMEOUT_MS = 30_000
START_TIMEOUT_MS = 180_000  # of processes and JVMs on a busy machine

T = TypeVar("T")


class WaitTimeoutError(AssertionError):
    """A condition did not become true in time."""


def eventually(description: str, probe: Callable[[], T], timeout_ms: int = TIMEOUT_MS, poll_ms: int = POLL_MS) -> T:
    """Call the probe until its value is true and return that value. Raises WaitTimeoutError after the timeout."""
    clock = SystemClock()
    end_ms = clock.monotonic_ms() + timeout_ms
    while True:
        value = probe()
        if value:
            return value
        if clock.monotonic_ms() >= end_ms:
            raise WaitTimeoutError(f"not within {timeout_ms} ms: {description} (last: {value!r})")
        select.select([], [], [], poll_ms / 1000)
