"""The managers of rates: waits, bounds, and what the page shows."""

from __future__ import annotations

import math

from barnabas.broker.quotas.limits import PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE, QuotaTable, Share
from barnabas.broker.quotas.managers import RateManager, RequestManager, percent
from barnabas.broker.quotas.rates import UNLIMITED, Window
from barnabas.broker.quotas.sensors import EXPIRY_MS
from barnabas.broker.quotas.throttle import UNTHROTTLED, Throttle
from barnabas.common.clock import FakeClock
from barnabas.security.values import QuotaEntity

WINDOW = Window(11, 1000)


def table(key: str, **limits: float) -> QuotaTable:
    return QuotaTable({QuotaEntity.of({"user": user}): {key: limit} for user, limit in limits.items()}, key)


def test_a_client_waits_until_its_rate_is_back() -> None:
    clock = FakeClock()
    manager = RateManager(table(PRODUCER_BYTE_RATE, alice=1000), WINDOW, clock)
    now = clock.monotonic_ms()
    assert manager.count("alice", "x", 10_000, now) is UNTHROTTLED
    throttle = manager.count("alice", "y", 5_000, now)
    assert throttle == Throttle(5000, PRODUCER_BYTE_RATE, "alice", "", 1000, 1500)
    assert manager.count("bob", "x", 10**9, now) is UNTHROTTLED
    clock.advance_ms(5000)
    assert manager.count("alice", "x", 0, clock.monotonic_ms()).ms == 5000, "Kafka's window still ends 10 s later"
    clock.advance_ms(6000)
    assert manager.count("alice", "x", 10_000, clock.monotonic_ms()) is UNTHROTTLED


def test_a_burst_that_just_fits() -> None:
    clock = FakeClock()
    manager = RateManager(table(PRODUCER_BYTE_RATE, alice=1000), WINDOW, clock)
    assert manager.burst_max("alice", "") == 10_000
    assert manager.burst_max("bob", "") == UNLIMITED
    manager.count_unchecked("alice", "", 11_000, clock.monotonic_ms())
    assert manager.count("alice", "", 0, clock.monotonic_ms()).ms == 1000


def test_thread_time_waits_are_at_most_one_sample() -> None:
    clock = FakeClock()
    manager = RequestManager(table(REQUEST_PERCENTAGE, alice=1), WINDOW, clock)
    now = clock.monotonic_ms()
    assert percent(10_000_000) == 1
    assert manager.count("alice", "", percent(100_000_000), now) is UNTHROTTLED
    assert manager.count("alice", "", percent(1_000_000), now).ms == 100
    assert manager.count("alice", "", percent(9_000_000_000), now).ms == 1000
    manager.count_exempt(600_000_000, now)
    assert manager.exempt_time() == 2.0


def test_limits_change_while_rates_go_on() -> None:
    clock = FakeClock()
    manager = RateManager(table(PRODUCER_BYTE_RATE, alice=1000), WINDOW, clock)
    now = clock.monotonic_ms()
    manager.count("alice", "", 10_000, now)
    manager.set_table(table(PRODUCER_BYTE_RATE, alice=500))
    assert manager.count("alice", "", 0, now).ms == 10_000
    manager.set_table(table(PRODUCER_BYTE_RATE, bob=1))
    assert manager.count("alice", "", 0, now) is UNTHROTTLED


def test_the_page_shows_rates_and_mean_waits() -> None:
    clock = FakeClock()
    manager = RateManager(table(PRODUCER_BYTE_RATE, alice=1000), WINDOW, clock)
    now = clock.monotonic_ms()
    for _ in range(2):
        throttle = manager.count("alice", "", 10_000, now)
        if throttle.ms:
            manager.note(throttle, now)
    manager.count("bob", "", 10_000, now)
    (alice, bob) = manager.numbers()
    assert alice == (Share("alice", ""), (2000.0,), 10_000.0)
    assert bob[:2] == (Share("bob", ""), (1000.0,))
    assert math.isnan(bob[2])
    manager.expire(now + EXPIRY_MS)
    assert manager.numbers() == []
