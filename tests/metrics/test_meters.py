"""Instruments: counts from many threads, and rates and quantiles over time.

Tests meters.py and histograms.py of metrics.
"""

from __future__ import annotations

import math
import threading

import pytest

from barnabas.common.clock import FakeClock
from barnabas.metrics.histograms import BOUNDS, QUANTILES, Histogram, Timer, bucket_of
from barnabas.metrics.meters import AvgMax, Counter, Meter, Sensor, Window
from tests.support.threads import at_once


@pytest.mark.parametrize("rounds", [1, 3])
def test_no_count_of_live_and_dead_threads_is_lost(rounds: int) -> None:
    meter, counter, histogram = Meter(), Counter(), Histogram()

    def work() -> None:
        for _ in range(2000):
            meter.mark(2)
            counter.inc()
            histogram.update(1.5)

    for _ in range(rounds):
        at_once(*[work] * 8)
    assert meter.count == 8 * 2000 * 2 * rounds
    assert counter.count == 8 * 2000 * rounds
    snapshot = histogram.snapshot(1.0)
    assert snapshot.count == histogram.count == 8 * 2000 * rounds
    assert snapshot.sum == 8 * 2000 * 1.5 * rounds


def test_dead_threads_leave_no_cells() -> None:
    counter = Counter()
    for _ in range(50):
        at_once(counter.inc)
    assert counter.count == 50
    assert len(counter._cells) < 50


def test_rates_follow_the_last_minutes() -> None:
    meter = Meter(now_s=0.0)
    meter.mark(100)
    assert meter.rates(4.0) == (25.0, 25.0, 25.0)
    assert meter.rates(10.0) == (10.0, 10.0, 10.0)
    for second in range(15, 310, 5):
        meter.mark(500)
        meter.rates(float(second))
    one, five, fifteen = meter.rates(305.0)
    assert 95 < one <= 100
    assert fifteen < five < one
    one, _, _ = meter.rates(910.0)
    assert one < 0.1
    assert meter.snapshot(910.0)[1].mean == pytest.approx(meter.count / 910)


@pytest.mark.parametrize(("first_s", "every_s"), [(9.9, 10.0), (14.9, 15.0), (14.9, 30.0), (6.0, 6.0), (3.0, 4.9)])
def test_a_steady_rate_is_shown_at_once_whenever_the_scrapes_are(first_s: float, every_s: float) -> None:
    count = 0
    meter = Meter(0.0, lambda: count)
    for number in range(20):
        now_s = first_s + number * every_s
        count = round(1000 * now_s)
        assert meter.rates(now_s) == pytest.approx((1000, 1000, 1000))


def test_a_burst_fades_alike_whenever_the_scrapes_are() -> None:
    often, rarely = Meter(0.0), Meter(0.0)
    for meter in (often, rarely):
        meter.rates(5.0)
        meter.mark(1000)
        meter.rates(10.0)
    for second in range(16, 70, 6):
        often.rates(float(second))
    assert often.rates(70.0) == pytest.approx(rarely.rates(70.0))
    assert often.rates(70.0)[0] == pytest.approx(200 * (1 - math.exp(-5 / 60)) * math.exp(-1))


def test_a_count_that_starts_again_makes_no_negative_rate() -> None:
    window = Window(0.0)
    assert window.rate(900, 30.0) == 30
    window.rate(10, 60.0)
    assert window.rate(20, 75.0) == 0
    window.rate(20, 90.0)
    assert window.rate(610, 100.0) == 15


def test_quantiles() -> None:
    histogram = Histogram()
    for value in range(1, 1001):
        histogram.update(value)
    snapshot = histogram.snapshot(0.0)
    assert (snapshot.count, snapshot.sum) == (1000, 500_500)
    for name, value in zip(QUANTILES, snapshot.quantiles(QUANTILES), strict=True):
        assert value == pytest.approx(float(name) * 1000, rel=0.13)
    assert snapshot.cumulative(bucket_of(100.0)) == 100
    assert snapshot.cumulative(bucket_of(BOUNDS[-1])) == 1000
    assert snapshot.mean == 500.5
    assert (snapshot.minimum, snapshot.maximum) == (0.8, 1000)
    assert snapshot.deviation == pytest.approx(288.8, rel=0.02)


def test_quantiles_forget_old_values_but_not_the_last_ones() -> None:
    histogram = Histogram(now_s=0.0)
    for _ in range(1000):
        histogram.update(100.0)
    assert histogram.snapshot(0.0).quantiles(("0.50",))[0] == pytest.approx(100, rel=0.2)
    assert histogram.snapshot(86_400.0).quantiles(("0.50",))[0] == pytest.approx(100, rel=0.2)
    for _ in range(100):
        histogram.update(1.0)
    snapshot = histogram.snapshot(86_401.0)
    assert snapshot.quantiles(("0.999",))[0] == pytest.approx(1, rel=0.2)
    assert snapshot.count == 1100


def test_no_values_and_extreme_values() -> None:
    histogram = Histogram()
    assert histogram.snapshot(0.0).quantiles(QUANTILES) == [0.0] * 6
    for value in (0, 1e-9, 1e12):
        histogram.update(value)
    snapshot = histogram.snapshot(1.0)
    assert snapshot.count == 3
    assert snapshot.quantiles(("0.50", "0.999"))[1] == BOUNDS[-1]


def test_a_meter_never_decreases_while_it_is_marked() -> None:
    meter, stop = Meter(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            meter.mark()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    counts = [meter.count for _ in range(2000)]
    stop.set()
    for thread in threads:
        thread.join()
    assert counts == sorted(counts)


def test_a_histogram_includes_its_parts_and_external_cells() -> None:
    part, whole = Histogram(), Histogram()
    whole.include(part)
    whole.include(part)
    part.update(5)
    assert whole.count == 1
    cell = [0.0] * (len(BOUNDS) + 2)
    assert Histogram(read=lambda: [cell, cell]).count == 0
    cell[7] += 2
    assert Histogram(read=lambda: [cell, cell]).count == 4


def test_a_timer_has_a_meter() -> None:
    timer = Timer(now_s=0.0)
    for _ in range(50):
        timer.update(4.0)
    assert timer.meter.snapshot(10.0) == (50, (5.0, 5.0, 5.0, 5.0))
    assert timer.histogram.snapshot(10.0).sum == 200


def test_a_window_looks_back_half_to_a_whole_minute() -> None:
    window = Window(now_s=0.0)
    assert window.rate(300, 10.0) == 10  # the window counts as at least half a minute
    assert window.rate(300, 30.0) == 10
    assert window.rate(600, 60.0) == 10
    assert window.rate(600, 90.0) == 5  # of 300 in the last minute
    assert window.rate(600, 120.0) == 0


def test_a_sensor_has_a_total_and_a_rate() -> None:
    sensor = Sensor(now_s=0.0)
    sensor.record(60)
    assert sensor.snapshot(30.0) == (60, 2.0)
    assert Sensor(0.0, read=lambda: 90).snapshot(30.0) == (90, 3.0)


def test_averages_and_maxima_are_of_the_last_minute() -> None:
    clock = FakeClock()
    stat = AvgMax(lambda: clock.monotonic_ms() / 1000)
    assert all(map(math.isnan, stat.snapshot()))
    for value in (1.0, 2.0, 9.0):
        stat.record(value)
    assert stat.snapshot() == (4.0, 9.0)
    clock.advance_ms(40_000)
    stat.record(2.0)
    assert stat.snapshot() == (3.5, 9.0)
    clock.advance_ms(30_000)
    assert stat.snapshot() == (2.0, 2.0)
