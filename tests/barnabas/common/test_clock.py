"""Clocks."""

from __future__ import annotations

import pytest

from barnabas.common.clock import Clock, FakeClock, SystemClock


def test_the_system_clock_advances() -> None:
    clock: Clock = SystemClock()
    before = clock.monotonic_ns()
    assert clock.monotonic_ns() >= before
    assert clock.monotonic_ms() >= before // 1_000_000
    assert clock.wall_ms() > 1_600_000_000_000


def test_a_fake_clock_advances_on_request() -> None:
    clock: Clock = FakeClock(wall_ms=5_000, monotonic_ms=70)
    assert (clock.wall_ms(), clock.monotonic_ms(), clock.monotonic_ns()) == (5_000, 70, 70_000_000)
    assert isinstance(clock, FakeClock)
    clock.advance_ms(30)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (5_030, 100)
    clock.advance_ns(999_999)
    assert clock.monotonic_ms() == 100
    with pytest.raises(AssertionError):
        clock.advance_ms(-1)
