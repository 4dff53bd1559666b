"""The failover measurement's gaps between acknowledgements."""

from __future__ import annotations

from benchmarks.failover import Acknowledgements
from tests.support.kafka.numbered_producers import RecordEvent

MS = 1_000_000


def acknowledged(**times_ms: list[int]) -> Acknowledgements:
    """Return acknowledgements of partitions p0, p1, ... at these times."""
    made = Acknowledgements()
    for name, times in times_ms.items():
        partition = int(name.removeprefix("p"))
        made.add([RecordEvent("A", 0, partition, number, number, at * MS) for number, at in enumerate(times)])
    return made


def test_the_longest_gap_is_within_one_partition() -> None:
    both = acknowledged(p0=[0, 25, 50, 1000, 1025], p1=[10, 35, 500, 990])
    assert both.longest_gap_ms([0, 1], 0, 2000 * MS) == 950
    assert both.longest_gap_ms([1], 0, 2000 * MS) == 490


def test_a_gap_that_overlaps_the_time_counts_in_full() -> None:
    one = acknowledged(p0=[0, 400, 425, 450, 900])
    assert one.longest_gap_ms([0], 300 * MS, 440 * MS) == 400
    assert one.longest_gap_ms([0], 410 * MS, 440 * MS) == 25


def test_the_latest_acknowledgement_needs_every_partition() -> None:
    assert acknowledged(p0=[5, 100], p1=[5, 50]).latest([0, 1]) == 50 * MS
    assert acknowledged(p0=[5, 100]).latest([0, 1]) == 0


def test_a_failed_record_is_an_error_and_no_acknowledgement() -> None:
    made = Acknowledgements()
    made.add([RecordEvent("S", 0, 0, 0), RecordEvent("E", 0, 0, 0, error="too late")])
    assert made.errors == ["too late"]
    assert made.latest([0]) == 0
