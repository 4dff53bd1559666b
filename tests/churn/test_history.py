"""The checker notices what it is there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.churn.history import GroupHistory

WRONG: dict[str, tuple[Callable[[GroupHistory], object], str]] = {
    "two owners": (
        lambda h: (h.claimed("x", "a", 3, [0, 1]), h.claimed("x", "b", 3, [1])),
        "g: partition 1 has two owners in generation 3, according to x: a and b",
    ),
    "an offset that is told goes back": (
        lambda h: (h.offset_told(0, 5), h.offset_told(0, 4)),
        "g: partition 0: offset 4 is told after 5",
    ),
    "a confirmed offset is lost": (
        lambda h: (h.offset_confirmed(0, 5), h.offset_told(0, 4)),
        "g: partition 0: offset 4 is told after 5",
    ),
    "a committed offset is forgotten": (
        lambda h: (h.offset_confirmed(0, 0), h.offset_told(0, -1)),
        "g: partition 0: offset -1 is told after 0",
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
def test_what_is_wrong_is_noticed(what: str) -> None:
    deed, problem = WRONG[what]
    history = GroupHistory("g")
    deed(history)
    assert history.problems == [problem]


def test_what_is_right_is_let_be() -> None:
    history = GroupHistory("g")
    history.claimed("x", "a", 3, [0, 1])
    history.claimed("x", "a", 3, [0])
    history.claimed("x", "b", 4, [1])
    history.claimed("y", "c", 4, [1])
    for offset in (-1, 5, 5, 6):
        history.offset_told(0, offset)
    history.offset_confirmed(0, 4)  # an answer that comes late
    for generation in (1, 2, 2):
        history.generation_logged(generation)
    assert history.problems == []


def test_a_repeated_commit_that_comes_late_is_the_clients() -> None:
    history = GroupHistory("g")
    history.offset_told(0, 6)
    history.offset_told(0, 5)
    assert history.problems == ["g: partition 0: offset 5 is told after 6"]
    for offset in (5, 6, 5, 6, 7):
        history.offset_logged(0, offset)
    assert history.problems == []
    history.offset_logged(0, 4)
    assert history.problems == ["g: partition 0: the log has offset 4 after 7"]
