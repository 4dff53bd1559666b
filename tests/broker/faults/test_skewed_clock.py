"""The clock with skews."""

from __future__ import annotations

from barnabas.broker.faults.armed import Armed
from barnabas.broker.faults.skewed_clock import SkewedClock
from barnabas.common.clock import FakeClock, SystemClock
from barnabas.faults.definition import Fault

HOUR_MS = 3_600_000
NEAR_MS = 60_000


def test_only_the_time_of_day_is_shifted_and_only_during_the_fault() -> None:
    clock, real = SkewedClock(), SystemClock()
    back, forth = (Armed("f", Fault(clock_skew_ms=ms), FakeClock()) for ms in (-HOUR_MS, 3 * HOUR_MS))
    assert abs(clock.wall_ms() - real.wall_ms()) < NEAR_MS
    clock.skew(back)
    assert abs(clock.wall_ms() - real.wall_ms() + HOUR_MS) < NEAR_MS
    clock.skew(forth)
    assert abs(clock.wall_ms() - real.wall_ms() - 2 * HOUR_MS) < NEAR_MS
    assert abs(clock.monotonic_ms() - real.monotonic_ms()) < NEAR_MS
    clock.set_right(back)
    clock.set_right(forth)
    assert abs(clock.wall_ms() - real.wall_ms()) < NEAR_MS


def test_a_skew_has_its_time() -> None:
    clock, time = SkewedClock(), FakeClock()
    clock.skew(Armed("f", Fault(clock_skew_ms=HOUR_MS, for_ms=10), time))
    assert clock.wall_ms() - SystemClock().wall_ms() > NEAR_MS
    time.advance_ms(10)
    assert clock.wall_ms() - SystemClock().wall_ms() < NEAR_MS
