"""Instruments: counts from many threads, rates and quantiles as time goes by."""

from __future__ import annotations

import threading

import pytest

from metrics.meters import BOUNDS, QUANTILES, Counter, Histogram, Meter


def in_threads(count: int, work: object) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]  # type: ignore[arg-type]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("rounds", [1, 3])
def test_no_count_is_lost_among_threads_living_and_dead(rounds: int) -> None:
    meter, counter, histogram = Meter(), Counter(), Histogram()

    def work() -> None:
        for _ in range(2000):
            meter.mark(2)
            counter.inc()
            histogram.update(1.5)

    for _ in range(rounds):
        in_threads(8, work)
    assert meter.count == 8 * 2000 * 2 * rounds
    assert counter.count == 8 * 2000 * rounds
    snapshot = histogram.snapshot(1.0)
    assert snapshot.count == histogram.count == 8 * 2000 * rounds
    assert snapshot.sum == 8 * 2000 * 1.5 * rounds


def test_cells_do_not_grow_with_the_threads_that_ever_were() -> None:
    counter = Counter()
    for _ in range(50):
        in_threads(1, counter.inc)
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
    assert meter.mean_rate(910.0) == pytest.approx(meter.count / 910)


def test_quantiles() -> None:
    histogram = Histogram()
    for value in range(1, 1001):
        histogram.update(value)
    snapshot = histogram.snapshot(0.0)
    assert (snapshot.count, snapshot.sum) == (1000, 500_500)
    for name, value in zip(QUANTILES, snapshot.quantiles(QUANTILES), strict=True):
        assert value == pytest.approx(float(name) * 1000, rel=0.13)
    assert snapshot.cumulative(100.0) == 100
    assert snapshot.cumulative(BOUNDS[-1]) == 1000


def test_quantiles_forget_what_is_long_ago_but_keep_the_last_when_nothing_comes() -> None:
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


def test_a_meter_read_while_it_is_marked_never_goes_back() -> None:
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
