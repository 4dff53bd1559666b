"""Checks what a log's module headers promise; run by tests, by simulations, and live if a debug setting asks for it.

A check takes the log's lock for a few microseconds and reads no file.

Threads: any that holds no log's lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from barnabas.broker.storage.log.log_state import LogState
from barnabas.common.topic_partition import TopicPartition


class Checkable(Protocol):
    """A log, as `violations` needs it."""

    topic_partition: TopicPartition

    def invariants(self) -> None:
        """Check the invariants; raises AssertionError."""


def check_log(state: LogState) -> None:
    """Check the invariants in the headers of `log.py` and `producer_state.py`; raises AssertionError.

    A log whose disk failed is not checked: the failure may have interrupted an append.
    """
    with state.lock:
        if state.failure is not None:
            return
        start, high_watermark, end = state.log_start_offset, state.high_watermark.offset, state.end
        assert start <= high_watermark <= end.offset, f"inv. 1: {start} <= {high_watermark} <= {end.offset}"
        assert state.last_stable_offset <= high_watermark, f"inv. 1: {state.last_stable_offset} <= {high_watermark}"
        first_base = state.segments.first.base_offset
        assert first_base <= start, f"inv. 2: {first_base} <= {start}"
        assert state.recovery_point <= end.offset, f"inv. 2: {state.recovery_point} <= {end.offset}"
        active = state.segments.active
        assert (end.segment_base_offset, end.position) == (active.base_offset, active.size), f"inv. 3: {end}, {active}"
        state.producer_state.invariants()


def violations(logs: Iterable[Checkable]) -> list[str]:
    """Check every log; returns one line for each that breaks an invariant."""
    found = []
    for target in logs:
        try:
            target.invariants()
        except AssertionError as error:
            found.append(f"{target.topic_partition}: {error}")
    return found
