"""The load of the measurements with many partitions, which runs until it is warm, and the window of idle CPU time."""

from __future__ import annotations

from typing import Any, cast

import pytest

from benchmarks.load.load_generator import LoadGenerator, LoopResult
from benchmarks.systems import System
from benchmarks.wide import measures
from benchmarks.wide.measures import Times, Tools


class Generator:
    """A load generator with the rates of its runs."""

    def __init__(self, *rates: float) -> None:
        self.rates = list(rates)

    def produce_work(self, *_: Any) -> None:
        pass

    def run(self, *_: Any) -> LoopResult:
        return LoopResult(0, self.rates.pop(0), 0, 0, 0, 0)


class Clock:
    """The time advances by a second at each look."""

    def __init__(self) -> None:
        self.seconds = 0

    def monotonic_ms(self) -> int:
        self.seconds += 1
        return self.seconds * 1000

    def monotonic_ns(self) -> int:
        self.seconds += 1
        return self.seconds * 1_000_000_000


def tools(*rates: float) -> Tools:
    return Tools(cast(LoadGenerator, Generator(*rates)), cast(Any, Clock()), Times(0, 0, 0))


@pytest.mark.parametrize(
    ("rates", "counted"),
    [((100, 101, 7), 7), ((100, 200, 300, 310, 8), 8), ((1, 2, 4, 8, 16, 32, 64), 32)],
)
def test_the_rate_is_that_after_the_last_run_of_warming_up(rates: tuple[float, ...], counted: float) -> None:
    assert measures.warm_rate(tools(*rates), 0, "t", 10) == counted


def test_idle_cpu_is_a_share_of_one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    used = [10.0, 10.5]
    monkeypatch.setattr(measures, "used_cpu_seconds", lambda _: used.pop(0))
    percent = measures.idle_cpu_percent(tools(), cast(System, None))  # looks: start, pause twice, end
    assert percent == pytest.approx(100 * 0.5 / 3)


def test_each_broker_has_its_port() -> None:
    class Three:
        bootstrap = "127.0.0.1:4001,127.0.0.1:4002,127.0.0.1:4003"

    assert measures.ports(cast(System, Three())) == [4001, 4002, 4003]
