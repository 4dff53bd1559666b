"""Clocks. Tests common/clock.py, common/clocks/server_clock.py and common/clocks/wall.py."""

from __future__ import annotations

import pytest

from barnabas.common.clock import Clock, FakeClock, MovedClock, SystemClock
from barnabas.common.clocks.server_clock import ServerClock


@pytest.mark.parametrize("kind", [SystemClock, ServerClock])
def test_the_machines_clock_advances(kind: type[Clock]) -> None:
    clock = kind()
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


def test_a_moved_clock_is_ahead_of_another() -> None:
    base = FakeClock(wall_ms=5_000, monotonic_ms=70)
    moved = MovedClock(base, 10)
    assert (moved.wall_ms(), moved.monotonic_ms(), moved.monotonic_ns(), moved.offset_ms) == (5_010, 80, 80_000_000, 10)
    moved.move_to(1_000)
    base.advance_ms(1)
    assert (moved.wall_ms(), moved.monotonic_ms(), moved.offset_ms) == (6_001, 1_071, 1_000)
    with pytest.raises(AssertionError):
        moved.move_to(999)
