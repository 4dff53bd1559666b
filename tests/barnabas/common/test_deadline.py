"""Deadlines."""

from __future__ import annotations

from barnabas.common.clock import FakeClock
from barnabas.common.deadline import Deadline


def test_a_deadline_expires() -> None:
    clock = FakeClock()
    deadline = Deadline(clock, 100)
    clock.advance_ms(40)
    assert (deadline.remaining_ms(), deadline.remaining_s(), deadline.is_expired()) == (60, 0.06, False)
    clock.advance_ms(60)
    assert (deadline.remaining_ms(), deadline.is_expired()) == (0, True)
    clock.advance_ms(1)
    assert deadline.remaining_ms() == 0


def test_no_timeout_never_expires() -> None:
    clock = FakeClock()
    deadline = Deadline(clock, None)
    clock.advance_ms(10**9)
    assert (deadline.remaining_ms(), deadline.remaining_s(), deadline.is_expired()) == (None, None, False)
