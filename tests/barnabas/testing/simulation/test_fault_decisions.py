"""What is decided about faults."""

from __future__ import annotations

import random
from typing import Any

import pytest

from barnabas.testing.simulation.fault_decisions import (
    ALL_KINDS,
    FLUSHED_KINDS,
    KINDS,
    TOLD_KINDS,
    Decision,
    DecisionError,
    FaultPace,
    draw_decisions,
    in_order,
)
from barnabas.testing.simulation.faults import Faults


def test_a_seed_draws_the_same_decisions() -> None:
    first, second, other = (draw_decisions(random.Random(seed), [0, 1, 100], 60_000) for seed in (1, 1, 2))
    assert first == second != other
    assert all(0 <= each.at_ms < 60_000 and each.node_id in (0, 1, 100) for each in first)
    assert in_order(reversed(first)) == in_order(first)


def test_every_kind_comes_unless_it_is_left_out() -> None:
    def kinds(pace: FaultPace) -> set[str]:
        return {each.kind for each in draw_decisions(random.Random(1), [0], 3_000_000, pace)}

    assert kinds(FaultPace()) == set(KINDS)
    assert kinds(FaultPace(left_out=frozenset({"kill"}))) == set(KINDS) - {"kill"}
    assert kinds(FaultPace(is_flushed=True)) == set(FLUSHED_KINDS)
    assert kinds(FaultPace(left_out=frozenset(KINDS), favoured=frozenset(TOLD_KINDS))) == set(TOLD_KINDS)


def test_a_favoured_kind_comes_often() -> None:
    def count(pace: FaultPace) -> int:
        return sum(each.kind == "strand" for each in draw_decisions(random.Random(1), [0], 3_000_000, pace))

    assert count(FaultPace(favoured=frozenset({"strand"}))) > 3 * count(FaultPace())


def test_every_kind_is_a_method_of_the_faults() -> None:
    assert all(callable(getattr(Faults, kind, None)) for kind in ALL_KINDS)


def test_a_decision_is_stored() -> None:
    decision = Decision(1, "deafen", 0, 5, 9)
    assert Decision.from_json(decision.as_json()) == decision


@pytest.mark.parametrize(
    "value",
    [1, {}, {**Decision(1, "kill", 0, 5, 9).as_json(), "kind": "__init__"}, Decision(-1, "kill", 0, 5, 9).as_json(),
     Decision(1, "kill", True, 5, 9).as_json()],
)  # fmt: skip
def test_a_wrong_one_is_refused(value: Any) -> None:
    with pytest.raises(DecisionError):
        Decision.from_json(value)
