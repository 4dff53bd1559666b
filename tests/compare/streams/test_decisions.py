"""Barnabas decides about streams groups as Apache Kafka's classes do, for the same cases (see decisions.py)."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import NamedTuple

import pytest

from tests.compare.streams.decisions import Json, cases, recorded

#: Kafka's exception -> the name of our error.
ERRORS = {"StreamsInvalidTopologyException": "STREAMS_INVALID_TOPOLOGY"}
ACTIVE, STANDBY = 0, 1


class Compared(NamedTuple):
    """A case, Kafka's decision and ours."""

    case: Json
    theirs: Json
    ours: Json


@pytest.fixture(scope="module")
def compared() -> dict[str, list[Compared]]:
    """All cases by kind; the recorded ones are those that are made today."""
    logging.getLogger("barnabas.group").setLevel(logging.ERROR)
    found: dict[str, list[Compared]] = {}
    for (text, theirs), (case, ours) in zip(recorded(), cases(), strict=True):
        assert text == json.dumps(case), "the cases have changed: make golden"
        found.setdefault(case["kind"], []).append(Compared(case, theirs, json.loads(json.dumps(ours))))
    return found


def test_every_step_of_a_member_is_kafkas(compared: dict[str, list[Compared]]) -> None:
    states: Counter[int] = Counter()
    for case, theirs, ours in compared["step"]:
        assert ours == theirs, case
        states[ours["state"]] += 1
    assert min(states[state] for state in (1, 2, 3)) > 50


# Topologies


def without_order(decision: Json) -> Json:
    """Kafka names the first three missing topics, or the first wrong one, in the order of a hash table."""
    if "error" in decision:
        return {"error": ERRORS.get(decision["error"], decision["error"])}
    if decision.get("detail", "").startswith("Internal topics are missing"):
        head, _, tail = decision["detail"].partition(": ")
        return {**decision, "detail": (head, sorted(tail)) if len(decision["missing"]) <= 3 else head}
    if decision.get("detail", "").startswith("Existing topic"):
        return {**decision, "detail": "Existing topic"}
    return decision


def is_decided_by_another_topic(case: Json) -> bool:
    """Whether a copartition group of repartition topics meets counts that the application names elsewhere.

    Kafka takes the counts of all such topics of the topology for each of these groups; we, those of the group.
    """
    named = {name for each in case["subtopologies"] for name, count in each["reads"] if count}
    for each in case["subtopologies"]:
        for sources, reads in each["together"]:
            names = {each["reads"][index][0] for index in reads}
            if names and not sources and not named <= names:
                return True
    return False


def test_every_topology_is_configured_as_kafka_does(compared: dict[str, list[Compared]]) -> None:
    outcomes: Counter[int | str] = Counter()
    different = 0
    for case, theirs, ours in compared["configure"]:
        if is_decided_by_another_topic(case) and without_order(ours) != without_order(theirs):
            different += 1
            continue
        assert without_order(ours) == without_order(theirs), case
        outcomes[ours.get("status", "error" if "error" in ours else "ready")] += 1
    assert outcomes.keys() == {1, 2, 3, "error", "ready"}
    assert different < len(compared["configure"]) / 20


# Assignments


def tasks(decision: Json, role: int) -> set[tuple[str, str, int]]:
    """Return (member, subtopology, partition) of a role."""
    return {(name, id_, p) for name, roles in decision.items() for id_, found in roles[role].items() for p in found}


def figures(case: Json, decision: Json) -> dict[str, int]:
    """Return how sticky and how balanced an assignment is."""
    had = {name: roles for name, (_, roles) in case["members"].items()}
    loads = Counter(dict.fromkeys((process for process, _ in case["members"].values()), 0))
    for name, roles in decision.items():
        loads[case["members"][name][0]] += sum(len(found) for role in roles for found in role.values())
    active, standby = tasks(decision, ACTIVE), tasks(decision, STANDBY)
    return {
        "active tasks": len(active),
        "standby tasks": len(standby),
        "active tasks that stay": len(active & tasks(had, ACTIVE)),
        "standby tasks that become active": len(active & tasks(had, STANDBY)),
        "standby tasks that stay": len(standby & (tasks(had, STANDBY) | tasks(had, ACTIVE))),
        "tasks of the most loaded process": max(loads.values()),
    }


def test_assignments_are_as_sticky_and_as_balanced_as_kafkas(compared: dict[str, list[Compared]]) -> None:
    """Where tasks or members are equal, Kafka takes one in the order of a hash table or a heap, and we by id."""
    alike, totals = 0, {is_ours: Counter[str]() for is_ours in (True, False)}
    for case, theirs, ours in compared["assign"]:
        found = {is_ours: figures(case, decision) for is_ours, decision in ((True, ours), (False, theirs))}
        for is_ours, numbers in found.items():
            totals[is_ours].update(numbers)
        for name in ("active tasks", "standby tasks"):
            assert found[True][name] == found[False][name], case
        alike += ours == theirs or found[True] == found[False]
    assert alike >= 0.9 * len(compared["assign"])
    ours_in_all, theirs_in_all = totals[True], totals[False]
    for name in ("active tasks that stay", "standby tasks that become active", "standby tasks that stay"):
        assert ours_in_all[name] >= 0.97 * theirs_in_all[name], name
    name = "tasks of the most loaded process"
    assert ours_in_all[name] <= 1.03 * theirs_in_all[name]
