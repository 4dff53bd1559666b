"""The longest gap of a consumer."""

from __future__ import annotations

from benchmarks.quorum.load import Arrivals

MS = 1_000_000


def arrivals(*times_ms: int) -> Arrivals:
    made = Arrivals()
    for at in times_ms:
        made.add(at * MS)
    return made


def test_the_longest_gap_is_between_two_records_or_at_an_end() -> None:
    assert arrivals(100, 150, 900, 1000).longest_gap_ms(100 * MS, 1000 * MS) == 750
    assert arrivals(100, 150, 900).longest_gap_ms(0, 2000 * MS) == 1100
    assert arrivals().longest_gap_ms(0, 2000 * MS) == 2000


def test_records_of_other_times_do_not_count() -> None:
    assert arrivals(100, 200, 300, 5000).longest_gap_ms(150 * MS, 350 * MS) == 100
