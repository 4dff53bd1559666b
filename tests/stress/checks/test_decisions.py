"""The check of decisions finds what was lost, taken back, given or done twice, and nothing else."""

from __future__ import annotations

import pytest

from tests.stress.checks.decisions import GONE, THERE, Decisions, Seen

FIRST = Seen(b"1", (3, 0))


def decided() -> Decisions:
    decisions = Decisions()
    decisions.acknowledge("topic t", THERE)
    decisions.acknowledge("topic u", GONE)
    decisions.acknowledge("setting of t", 1)
    decisions.doubt("setting of t", 2)
    decisions.doubt("acl", THERE)
    decisions.see_topic("t", FIRST, "broker-0")
    decisions.give(7, "broker-0")
    return decisions


@pytest.mark.parametrize("setting", [1, 2])
@pytest.mark.parametrize("acl", [THERE, GONE])
def test_what_is_possible_is_no_problem(setting: int, acl: str) -> None:
    decisions = decided()
    decisions.give(8, "broker-1")
    decisions.see_topic("t", Seen(b"1", (2, 1)), "broker-1, which lags")
    final = {"topic t": THERE, "setting of t": setting, "acl": acl}
    assert decisions.check(final, {"t": Seen(b"1", (3, 1)), "v": Seen(b"9", (0,))}) == []
    assert (decisions.acknowledged, decisions.producer_ids) == (3, 2)
    assert decisions.is_clear("topic t")
    assert not decisions.is_clear("acl")
    assert not decisions.is_clear("topic v")
    assert [decisions.is_usable(name) for name in ("topic t", "acl", "topic v")] == [True, False, True]


@pytest.mark.parametrize(
    ("final", "problem"),
    [
        ({"setting of t": 1}, "lost: topic t is gone, and should be there"),
        ({"topic t": THERE, "topic u": THERE, "setting of t": 1}, "lost: topic u is there, and should be gone"),
        ({"topic t": THERE, "setting of t": 0}, "lost: setting of t is 0, and should be 1 or 2"),
    ],
)
def test_what_was_acknowledged_is_kept(final: dict[str, object], problem: str) -> None:
    assert decided().check(final, {}) == [problem]


def test_a_request_that_was_sent_once_is_not_carried_out_twice() -> None:
    decisions = Decisions()
    decisions.repeat(("topic", "t"), "TOPIC_ALREADY_EXISTS")
    assert decisions.check({}, {}) == ["done twice: ('topic', 't') was answered with TOPIC_ALREADY_EXISTS"]


def test_no_decision_is_taken_back() -> None:
    decisions = decided()
    decisions.see_topic("t", Seen(b"2", (3, 0)), "broker-1")
    decisions.give(7, "broker-1")
    problems = decisions.check({"topic t": THERE, "setting of t": 1}, {"t": Seen(b"2", (2, 5))})
    assert [problem.partition(":")[0] for problem in problems] == [
        "taken back",
        "given twice",
        "taken back",
        "taken back",
    ]
