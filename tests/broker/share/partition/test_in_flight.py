"""Batches and runs: looking up, cutting, joining."""

from __future__ import annotations

import pytest

from barnabas.broker.share.partition.in_flight import Batch, InFlight, Run
from barnabas.broker.share.partition.phases import ACKNOWLEDGED, ACKNOWLEDGING, ACQUIRED, AVAILABLE


def batch(first: int, last: int, phase: int = AVAILABLE) -> Batch:
    return Batch(first, last, [Run(first, last, phase, 1)])


def spans(some: Batch) -> list[tuple[int, int]]:
    return [(run.first, run.last) for run in some.runs]


@pytest.fixture
def cache() -> InFlight:
    """10-19, 20-29, and after a gap 40-49."""
    cache = InFlight()
    for first in (20, 40, 10):
        cache.add(batch(first, first + 9))
    return cache


def firsts(found: list[Batch]) -> list[int]:
    return [one.first for one in found]


def test_batches_are_in_order(cache: InFlight) -> None:
    assert firsts(cache.batches) == [10, 20, 40]
    assert (cache.first, cache.last) == (10, 49)


@pytest.mark.parametrize(("first", "last"), [(5, 10), (19, 19), (30, 40), (45, 60), (0, 99)])
def test_a_batch_that_overlaps_another_is_refused(cache: InFlight, first: int, last: int) -> None:
    with pytest.raises(AssertionError):
        cache.add(batch(first, last))


def test_the_batch_at_or_before_an_offset(cache: InFlight) -> None:
    assert cache.floor(9) is None
    for offset, first in ((10, 10), (19, 10), (20, 20), (35, 20), (99, 40)):
        found = cache.floor(offset)
        assert found is not None
        assert found.first == first


def test_the_batch_after_an_offset(cache: InFlight) -> None:
    found = cache.after(20)
    assert found is not None
    assert found.first == 40
    assert cache.after(40) is None


def test_batches_by_their_offsets(cache: InFlight) -> None:
    assert firsts(cache.starting_in(11, 40)) == [20, 40]
    assert firsts(cache.overlapping(15, 20)) == [10, 20]
    assert firsts(cache.overlapping(30, 39)) == []
    assert firsts(cache.overlapping(0, 10)) == [10]
    assert firsts(cache.overlapping(49, 99)) == [40]


def test_only_whole_batches_are_dropped(cache: InFlight) -> None:
    cache.drop_through(28)
    assert firsts(cache.batches) == [20, 40]
    cache.drop_through(29)
    assert firsts(cache.batches) == [40]
    cache.clear()
    assert not cache


def test_a_batch_is_cut_in_one_pass_at_bounds_inside_it() -> None:
    some = batch(10, 19)
    some.cut((3, 10, 12, 15, 20, 33))
    assert spans(some) == [(10, 11), (12, 14), (15, 19)]
    some.cut((13, 15, 16))
    assert spans(some) == [(10, 11), (12, 12), (13, 14), (15, 15), (16, 19)]


def test_the_runs_of_some_offsets() -> None:
    some = batch(10, 19)
    assert [(run.first, run.last) for run in some.within(12, 14)] == [(12, 14)]
    assert spans(some) == [(10, 11), (12, 14), (15, 19)]
    assert len(some.within(0, 99)) == 3


def test_neighbours_alike_are_joined() -> None:
    some = batch(10, 19)
    some.cut((12, 14, 16))
    some.runs[2].phase = ACKNOWLEDGED
    some.join()
    assert spans(some) == [(10, 13), (14, 15), (16, 19)]


def test_runs_in_transition_are_not_joined() -> None:
    some = batch(10, 19, ACKNOWLEDGING)
    some.cut((15,))
    some.join()
    assert spans(some) == [(10, 14), (15, 19)]


def test_a_part_of_a_run_has_its_lock_and_its_write() -> None:
    update = object()
    part = Run(1, 9, ACQUIRED, 3, "m", 77, update).part(2, 4)
    assert (part.first, part.last, part.phase, part.delivery_count) == (2, 4, ACQUIRED, 3)
    assert (part.member_id, part.deadline_ms, part.update) == ("m", 77, update)
