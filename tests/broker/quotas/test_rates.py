"""Rates and token buckets, with the numbers that Apache Kafka's own tests and documentation have."""

from __future__ import annotations

import math
import random

import pytest

from barnabas.broker.quotas.rates import (
    THROTTLE_MS_MAX,
    UNLIMITED,
    SampledRate,
    TokenBucket,
    Window,
    refill_ms,
    rounded,
    throttle_ms,
)
from tests.broker.quotas.naive import NaiveRate

WINDOW = Window(11, 1000)


def test_a_first_burst_counts_over_all_samples_but_one() -> None:
    rate = SampledRate(WINDOW)
    rate.record(5000, 77)
    assert rate.measure(77) == 500
    assert rate.window_ms(577) == 10_500


def test_kafkas_own_example_of_a_throttle() -> None:
    """ClientQuotaManagerTest: 10 samples of 400 each second, then 2,300 at once with a limit of 500."""
    rate = SampledRate(WINDOW)
    now = 0
    for _ in range(10):
        rate.record(400, now)
        now += 1000
    now += 500 - 1000  # in the middle of the last interval
    now += 500
    rate.record(2300, now + 500)
    observed = rate.measure(now + 500)
    assert rate.window_ms(now + 500) == 10_500
    assert observed == pytest.approx(600)
    assert throttle_ms(observed, 500, 10_500) == 2100


def test_a_sample_without_events_in_the_window_is_reset() -> None:
    rate = SampledRate(Window(2, 1000))
    rate.record(10, 0)
    assert rate.measure(1999) > 0
    assert rate.measure(2000) == 0


def test_a_negative_value_takes_one_back() -> None:
    rate = SampledRate(WINDOW)
    rate.record(700, 5)
    rate.record(-700, 5)
    assert rate.measure(6) == 0


@pytest.mark.parametrize("seed", range(20))
def test_rates_agree_with_a_naive_implementation(seed: int) -> None:
    rng = random.Random(seed)
    window = Window(rng.choice((1, 2, 11)), rng.choice((1, 100, 1000)))
    rate, naive = SampledRate(window), NaiveRate(*window)
    now = rng.randrange(10_000)
    for _ in range(400):
        now += rng.choice((0, 0, 1, 7, window.sample_ms // 2, window.sample_ms, 3 * window.sample_ms, 40_000))
        if rng.random() < 0.7:
            value = rng.randrange(-50, 1000)
            rate.record(value, now)
            naive.record(value, now)
        if rng.random() < 0.5:
            assert rate.measure(now) == pytest.approx(naive.measure(now))


def test_a_bucket_starts_full_and_refills() -> None:
    """TokenBucket's documentation: a limit of 5 with a window of 100 s; 560 at once leave -60, gone after 12 s."""
    bucket = TokenBucket(Window(100, 1000))
    assert bucket.measure(5, 1) == 500
    bucket.record(560, 5, 1)
    assert bucket.measure(5, 1) == -60
    assert refill_ms(-60, 5) == 12_000
    assert bucket.measure(5, 6_001) == -30
    assert bucket.measure(5, 12_001) == 0
    assert bucket.measure(5, 10_000_000) == 500


def test_a_bucket_keeps_its_tokens_when_the_limit_changes() -> None:
    bucket = TokenBucket(Window(10, 1000))
    bucket.record(99, UNLIMITED, 0)
    assert bucket.measure(UNLIMITED, 0) == math.inf
    assert bucket.measure(2, 0) == 20
    bucket.record(30, 2, 0)
    assert bucket.measure(1, 1000) == -9


def test_throttle_times_fit_into_a_response() -> None:
    assert throttle_ms(5.0, 5.0, 1000) == 0
    assert throttle_ms(1e9, 1e-9, 11_000) == THROTTLE_MS_MAX
    assert throttle_ms(1.0, 0.0, 1000) == THROTTLE_MS_MAX
    assert refill_ms(-1.0, 0.0) == THROTTLE_MS_MAX
    assert rounded(math.inf) == THROTTLE_MS_MAX
    assert rounded(1.5) == 2
    assert refill_ms(0, 1) == 0
