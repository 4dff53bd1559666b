"""What the failover measurement makes of acknowledgements."""

from __future__ import annotations

from benchmarks.failover import Acknowledgements
from tests.support.numbered_producers import Told

MS = 1_000_000


def heard(**times_ms: list[int]) -> Acknowledgements:
    """Acknowledgements of partitions p0, p1, ... at these times."""
    made = Acknowledgements()
    for name, times in times_ms.items():
        partition = int(name.removeprefix("p"))
        made.hear([Told("A", 0, partition, number, number, at * MS) for number, at in enumerate(times)])
    return made


def test_the_longest_gap_is_within_one_partition() -> None:
    both = heard(p0=[0, 25, 50, 1000, 1025], p1=[10, 35, 500, 990])
    assert both.longest_gap_ms([0, 1], 0, 2000 * MS) == 950
    assert both.longest_gap_ms([1], 0, 2000 * MS) == 490


def test_gaps_that_only_touch_the_time_count_whole() -> None:
    one = heard(p0=[0, 400, 425, 450, 900])
    assert one.longest_gap_ms([0], 300 * MS, 440 * MS) == 400
    assert one.longest_gap_ms([0], 410 * MS, 440 * MS) == 25


def test_acknowledged_again_means_every_partition() -> None:
    assert heard(p0=[5, 100], p1=[5, 50]).latest([0, 1]) == 50 * MS
    assert heard(p0=[5, 100]).latest([0, 1]) == 0


def test_a_record_that_was_given_up_is_an_error() -> None:
    made = Acknowledgements()
    made.hear([Told("S", 0, 0, 0), Told("E", 0, 0, 0, error="too late")])
    assert made.errors == ["too late"]
    assert made.latest([0]) == 0
