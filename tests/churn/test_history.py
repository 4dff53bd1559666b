"""The checks of a group's history find every kind of problem."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.churn.history import GroupHistory

WRONG: dict[str, tuple[Callable[[GroupHistory], object], str]] = {
    "two owners": (
        lambda h: (h.claimed("x", "a", 3, [0, 1]), h.claimed("x", "b", 3, [1])),
        "g: partition 1 has two owners in generation 3, according to x: a and b",
    ),
    "a reported offset goes back": (
        lambda h: (h.offset_reported(0, 5), h.offset_reported(0, 4)),
        "g: partition 0: offset 4 is reported after 5",
    ),
    "a confirmed offset is lost": (
        lambda h: (h.offset_confirmed(0, 5), h.offset_reported(0, 4)),
        "g: partition 0: offset 4 is reported after 5",
    ),
    "a committed offset is forgotten": (
        lambda h: (h.offset_confirmed(0, 0), h.offset_reported(0, -1)),
        "g: partition 0: offset -1 is reported after 0",
    ),
    "an offset goes back in the log": (
        lambda h: (h.offset_logged(0, 5), h.offset_logged(0, 4)),
        "g: partition 0: the log has offset 4 after 5",
    ),
    "a generation goes back in the log": (
        lambda h: (h.generation_logged(5), h.generation_logged(4)),
        "g: the log has generation 4 after 5",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_problem_is_found(what: str) -> None:
    deed, problem = WRONG[what]
    history = GroupHistory("g")
    deed(history)
    assert history.problems == [problem]


def test_a_correct_history_has_no_problems() -> None:
    history = GroupHistory("g")
    history.claimed("x", "a", 3, [0, 1])
    history.claimed("x", "a", 3, [0])
    history.claimed("x", "b", 4, [1])
    history.claimed("y", "c", 4, [1])
    for offset in (-1, 5, 5, 6):
        history.offset_reported(0, offset)
    history.offset_confirmed(0, 4)  # a late response
    for generation in (1, 2, 2):
        history.generation_logged(generation)
    assert history.problems == []


def test_a_late_repetition_of_a_commit_is_no_problem() -> None:
    history = GroupHistory("g")
    history.offset_reported(0, 6)
    history.offset_reported(0, 5)
    assert history.problems == ["g: partition 0: offset 5 is reported after 6"]
    for offset in (5, 6, 5, 6, 7):
        history.offset_logged(0, offset)
    assert history.problems == []
    history.offset_logged(0, 4)
    assert history.problems == ["g: partition 0: the log has offset 4 after 7"]
