"""The target assignment of a group."""

from __future__ import annotations

from barnabas.broker.coordinators.streams_groups.assignment.target import assign_tasks
from barnabas.broker.coordinators.streams_groups.topology.configured import configure
from barnabas.broker.coordinators.streams_groups.values import Member, Tasks
from tests.broker.coordinators.streams_groups.topologies import subtopology, topology

TOPOLOGY = topology(subtopology("0", "a", changelogs="c"), subtopology("1", "a"))
READY = configure(TOPOLOGY, {"a": 2, "c": 2}.get)
MEMBERS = {name: Member(name, process_id=process) for name, process in (("m", "p"), ("n", "q"))}
BOTH, ZERO, ONE = frozenset({0, 1}), frozenset({0}), frozenset({1})


def test_the_members_get_the_tasks() -> None:
    assert assign_tasks(MEMBERS, {}, READY, 0) == {
        "m": Tasks({"0": ZERO, "1": ZERO}),
        "n": Tasks({"0": ONE, "1": ONE}),
    }


def test_a_subtopology_with_a_changelog_has_standby_tasks() -> None:
    found = assign_tasks(MEMBERS, {}, READY, 1)
    assert {name: each.standby for name, each in found.items()} == {"m": {"0": ONE}, "n": {"0": ZERO}}


def test_the_previous_target_counts() -> None:
    previous = {"n": Tasks({"0": ZERO, "1": ZERO}), "gone": Tasks({"0": ONE})}
    found = assign_tasks(MEMBERS, previous, READY, 0)
    assert found == {"m": Tasks({"0": ONE, "1": ONE}), "n": previous["n"]}


def test_nobody_gets_a_task_while_topics_are_missing() -> None:
    unready = configure(TOPOLOGY, {"a": 2}.get)
    assert assign_tasks(MEMBERS, {"m": Tasks({"0": BOTH})}, unready, 0) == {"m": Tasks(), "n": Tasks()}


def test_without_members_there_is_nothing_to_assign() -> None:
    assert assign_tasks({}, {}, READY, 1) == {}
