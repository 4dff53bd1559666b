"""Combining state batches: compared with a model that keeps each offset by itself."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.coordinators.share_state import batches as batches_module
from barnabas.broker.coordinators.share_state.batches import combine
from barnabas.broker.coordinators.share_state.values import (
    ACKNOWLEDGED,
    ARCHIVED,
    AVAILABLE,
    NO_START_OFFSET,
    StateBatch,
)

OFFSETS = st.integers(0, 12)


@st.composite
def batches(draw: st.DrawFn) -> list[StateBatch]:
    return [
        StateBatch(first, first + draw(st.integers(0, 6)), draw(st.sampled_from((0, 2, 4))), draw(st.integers(1, 3)))
        for first in draw(st.lists(OFFSETS, max_size=6))
    ]


def by_offset(some: list[StateBatch]) -> dict[int, tuple[int, int]]:
    """The strongest (count, state) of each offset."""
    kept: dict[int, tuple[int, int]] = {}
    for batch in some:
        for offset in range(batch.first_offset, batch.last_offset + 1):
            kept[offset] = max(kept.get(offset, (-1, -1)), (batch.delivery_count, batch.delivery_state))
    return kept


@given(batches(), batches(), st.one_of(st.just(NO_START_OFFSET), OFFSETS))
def test_each_offset_has_its_strongest_batch(
    so_far: list[StateBatch], new: list[StateBatch], start_offset: int
) -> None:
    before = combine((), so_far, NO_START_OFFSET)
    combined = combine(before, new, start_offset)
    expected = {offset: kept for offset, kept in by_offset([*so_far, *new]).items() if offset >= start_offset}
    assert by_offset(list(combined)) == expected
    for before, after in pairwise(combined):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:]
    assert combine(combined, new, start_offset) == combined, "a write may be applied twice"


def test_a_later_delivery_holds_although_its_state_is_lower() -> None:
    so_far = (StateBatch(0, 9, ARCHIVED, 1),)
    assert combine(so_far, [StateBatch(3, 5, AVAILABLE, 2)], NO_START_OFFSET) == (
        StateBatch(0, 2, ARCHIVED, 1),
        StateBatch(3, 5, AVAILABLE, 2),
        StateBatch(6, 9, ARCHIVED, 1),
    )


def test_neighbours_alike_become_one_batch() -> None:
    so_far = (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(10, 14, ACKNOWLEDGED, 1))
    assert combine(so_far, [StateBatch(5, 9, ACKNOWLEDGED, 1)], NO_START_OFFSET) == (
        StateBatch(0, 14, ACKNOWLEDGED, 1),
    )


def test_nothing_below_the_start_offset_is_kept() -> None:
    so_far = (StateBatch(0, 4, ACKNOWLEDGED, 1), StateBatch(5, 9, AVAILABLE, 1))
    assert combine(so_far, [], 7) == (StateBatch(7, 9, AVAILABLE, 1),)
    assert combine(so_far, [], 10) == ()


def test_a_write_touches_only_its_neighbourhood(monkeypatch: pytest.MonkeyPatch) -> None:
    so_far = tuple(StateBatch(2 * n, 2 * n, AVAILABLE, 1) for n in range(1000))
    swept: list[int] = []
    sweep = batches_module._swept
    monkeypatch.setattr(batches_module, "_swept", lambda some: [swept.append(len(some)), *sweep(some)][1:])
    after = combine(so_far, [StateBatch(1001, 1001, ACKNOWLEDGED, 1)], 500)
    assert swept == [3]
    assert len(after) == 751
    assert after[250:253] == (so_far[500], StateBatch(1001, 1001, ACKNOWLEDGED, 1), so_far[501])
