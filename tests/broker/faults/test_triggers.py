"""The calls for which a fault fires."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.faults.triggers import ARMED, SPENT, WAITING, Trigger
from barnabas.faults.definition import Fault


def fires(calls: int = 8, **when: Any) -> list[int]:
    """Return the numbers of the calls for which it fires; the first is 1."""
    trigger = Trigger(Fault(blackhole=True, **when), 0)
    return [number for number in range(1, calls + 1) if trigger.call(0)]


@pytest.mark.parametrize(
    ("when", "fired"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"times": 1}, [1]),
        ({"times": 3}, [1, 2, 3]),
        ({"on_call": 3}, [3]),
        ({"on_call": 3, "times": 2}, [3, 4]),
        ({"probability": 0.0}, []),
        ({"probability": 1.0}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"after_ms": 1}, []),
    ],
)
def test_when_it_fires(when: dict[str, Any], fired: list[int]) -> None:
    assert fires(**when) == fired


def test_random_numbers_come_from_the_seed() -> None:
    first = fires(1000, probability=0.3, seed=42)
    assert first == fires(1000, probability=0.3, seed=42)
    assert first != fires(1000, probability=0.3, seed=43)
    assert 230 < len(first) < 370
    assert len(fires(1000, probability=0.5, times=10)) == 10


def test_its_time() -> None:
    trigger = Trigger(Fault(blackhole=True, after_ms=100, for_ms=50), 1000)
    assert [trigger.state(now) for now in (1099, 1100, 1149, 1150)] == [WAITING, ARMED, ARMED, SPENT]
    assert [trigger.call(now) for now in (1099, 1100, 1149, 1150)] == [False, True, True, False]
    assert (trigger.calls, trigger.fired) == (2, 2)


def test_a_spent_fault_counts_no_more() -> None:
    trigger = Trigger(Fault(blackhole=True, times=1), 0)
    assert [trigger.call(0), trigger.call(0)] == [True, False]
    assert (trigger.calls, trigger.fired, trigger.state(0)) == (1, 1, SPENT)
