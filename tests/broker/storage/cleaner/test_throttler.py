"""The throttler limits input and output to a rate."""

from __future__ import annotations

from barnabas.broker.storage.cleaner.throttler import Throttler
from barnabas.common.clock import FakeClock


def test_a_caller_ahead_of_the_rate_waits() -> None:
    clock = FakeClock()
    throttler = Throttler(1000, clock)
    assert throttler.wait_ms(400) == 0, "the interval has not passed"
    clock.advance_ms(300)
    assert throttler.wait_ms(200) == 300  # 600 bytes take 600 ms
    clock.advance_ms(300)
    assert throttler.wait_ms(400) == 0
    clock.advance_ms(300)
    assert throttler.wait_ms(0) == 100, "the wait is not credited twice"
    clock.advance_ms(1000)
    assert throttler.wait_ms(100) == 0


def test_the_rate_may_change() -> None:
    clock = FakeClock()
    throttler = Throttler(1e300, clock)
    clock.advance_ms(500)
    assert throttler.wait_ms(10**12) == 0
    throttler.bytes_per_second = 100
    clock.advance_ms(500)
    assert throttler.wait_ms(100) == 500
