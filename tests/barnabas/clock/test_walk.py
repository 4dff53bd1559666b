"""The steps of a walk: in order, and few."""

from __future__ import annotations

import itertools

import pytest

from barnabas.clock.walk import FAR_MS_MIN, LEAST_MS, NEAR, next_point_ms

DAY_MS = 86_400_000


def walk(span_ms: int, due_in_ms: int | None, step_ms: int | None = None) -> list[int]:
    points = [0]
    while points[-1] < span_ms:
        points.append(next_point_ms(points[-1], span_ms, due_in_ms, step_ms))
        assert points[-1] > points[-2]
        assert len(points) < 100_000
    return points


def test_a_week_without_deadlines_takes_some_hundred_steps() -> None:
    points = walk(7 * DAY_MS, None)
    assert points[-1] == 7 * DAY_MS
    assert len(points) < 200


def test_a_week_beside_a_client_that_renews_its_deadline_ends() -> None:
    assert len(walk(7 * DAY_MS, 500)) < 400
    assert len(walk(7 * DAY_MS, 0)) < 400


def test_a_step_ends_at_a_deadline() -> None:
    assert next_point_ms(0, DAY_MS, 400) == 400
    assert next_point_ms(60_000, DAY_MS, 5000) == 65_000


def test_deadlines_are_kept_apart_by_a_sixteenth_of_the_time_so_far() -> None:
    assert next_point_ms(1600, DAY_MS, 1) == 1600 + LEAST_MS + 1600 // NEAR


def test_a_step_without_deadlines_is_an_eighth_of_the_time_so_far() -> None:
    assert next_point_ms(0, DAY_MS, None) == FAR_MS_MIN
    assert next_point_ms(80_000, DAY_MS, None) == 90_000
    assert next_point_ms(80_000, DAY_MS, DAY_MS) == 90_000


def test_the_walk_ends_at_the_end() -> None:
    assert next_point_ms(995, 1000, None) == 1000


@pytest.mark.parametrize("due_in_ms", [None, 0, 10_000])
def test_a_longest_step(due_in_ms: int | None) -> None:
    points = walk(60_000, due_in_ms, 100)
    assert max(after - before for before, after in itertools.pairwise(points)) == 100


def test_no_step_is_too_small_to_end() -> None:
    assert next_point_ms(0, DAY_MS, 0, 0) == LEAST_MS
