"""The sticky assignor: worked examples, and what holds for all assignments."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from barnabas.broker.coordinators.streams_groups.assignment.sticky import MemberSpec, SubtopologySpec, assign
from barnabas.broker.coordinators.streams_groups.values import TaskId, Tasks

STATELESS, STATEFUL = SubtopologySpec(4, False), SubtopologySpec(4, True)


def spec(process_id: str, active: str = "", standby: str = "") -> MemberSpec:
    return MemberSpec(process_id, tasks(active, standby))


def tasks(active: str = "", standby: str = "") -> Tasks:
    """Tasks as "0_1 0_2"."""
    return Tasks(by_subtopology(active), by_subtopology(standby))


def by_subtopology(found: str) -> dict[str, frozenset[int]]:
    made: dict[str, frozenset[int]] = {}
    for word in found.split():
        id_, _, partition = word.partition("_")
        made[id_] = made.get(id_, frozenset()) | {int(partition)}
    return made


def in_role(found: Mapping[str, frozenset[int]]) -> set[TaskId]:
    return {TaskId(id_, partition) for id_, partitions in found.items() for partition in partitions}


# Examples


def test_a_new_group_gets_neighbouring_partitions_of_a_subtopology() -> None:
    found = assign({"a": spec("p"), "b": spec("q")}, {"0": STATELESS, "1": STATELESS}, 0)
    assert found == {"a": tasks("0_0 0_2 1_0 1_2"), "b": tasks("0_1 0_3 1_1 1_3")}


def test_a_member_keeps_its_tasks_when_another_one_joins() -> None:
    found = assign({"a": spec("p", "0_0 0_1 0_2 0_3"), "b": spec("q")}, {"0": STATELESS}, 0)
    assert found == {"a": tasks("0_0 0_1"), "b": tasks("0_2 0_3")}


def test_the_standby_takes_over_from_a_member_that_left() -> None:
    members = {"b": spec("q", "0_1", "0_0"), "c": spec("r", "0_2", "0_3")}
    found = assign(members, {"0": STATEFUL}, 0)
    assert found == {"b": tasks("0_0 0_1"), "c": tasks("0_2 0_3")}


def test_the_tasks_of_a_member_that_left_are_spread() -> None:
    members = {"a": spec("p", "0_0"), "b": spec("q", "0_1")}
    found = assign(members, {"0": STATELESS}, 0)
    assert found == {"a": tasks("0_0 0_2"), "b": tasks("0_1 0_3")}


def test_more_members_than_tasks() -> None:
    found = assign({name: spec(name) for name in "abcdef"}, {"0": SubtopologySpec(2, True)}, 1)
    assert sum(len(in_role(each.active)) for each in found.values()) == 2
    assert sum(len(in_role(each.standby)) for each in found.values()) == 2
    assert max(len(in_role(each.active)) + len(in_role(each.standby)) for each in found.values()) == 1


def test_a_process_with_two_members_gets_twice_as_much() -> None:
    found = assign({"a": spec("p"), "b": spec("p"), "c": spec("q")}, {"0": SubtopologySpec(6, False)}, 0)
    assert Counter(len(in_role(each.active)) for each in found.values()) == {2: 3}


def test_standby_tasks_are_in_other_processes() -> None:
    found = assign({"a": spec("p"), "b": spec("q")}, {"0": STATEFUL, "1": STATELESS}, 1)
    assert in_role(found["a"].standby) == {task for task in in_role(found["b"].active) if task.subtopology_id == "0"}
    assert in_role(found["b"].standby) == {task for task in in_role(found["a"].active) if task.subtopology_id == "0"}


def test_standby_tasks_stay_where_they_are() -> None:
    members = {
        "a": spec("p", "0_0", "0_1"), "b": spec("q", "0_1", "0_2"), "c": spec("r", "0_2", "0_3"),
        "d": spec("s", "0_3", "0_0"),
    }  # fmt: skip
    assert assign(members, {"0": STATEFUL}, 1) == {name: each.previous for name, each in members.items()}


def test_a_standby_stays_although_the_other_one_became_active() -> None:
    """Of two standbys, one takes over; the other one stays."""
    members = {"b": spec("q", "", "0_0"), "c": spec("r", "", "0_0"), "d": spec("s")}
    found = assign(members, {"0": SubtopologySpec(1, True)}, 1)
    assert found == {"b": tasks("0_0"), "c": tasks("", "0_0"), "d": tasks()}


def test_too_few_processes_for_standby_tasks(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "barnabas.group"):
        found = assign({"a": spec("p"), "b": spec("p")}, {"0": SubtopologySpec(2, True)}, 2)
    assert not in_role(found["a"].standby) | in_role(found["b"].standby)
    assert [record.getMessage() for record in caplog.records] == [
        "4 of 4 standby tasks are not assigned: more instances of the application are needed"
    ]


def test_tasks_that_no_longer_exist_are_dropped() -> None:
    found = assign({"a": spec("p", "0_9 7_0", "8_0")}, {"0": SubtopologySpec(1, True)}, 1)
    assert found == {"a": tasks("0_0")}


def test_a_topology_without_tasks() -> None:
    assert assign({"a": spec("p")}, {}, 1) == {"a": tasks()}


# Properties


def check(
    found: Mapping[str, Tasks], members: Mapping[str, MemberSpec], subtopologies: Mapping[str, SubtopologySpec],
    num_standby_replicas: int,
) -> None:  # fmt: skip
    every = {TaskId(id_, i) for id_, each in subtopologies.items() for i in range(each.number_of_tasks)}
    stateful = {task for task in every if subtopologies[task.subtopology_id].is_stateful}
    active = Counter(task for each in found.values() for task in in_role(each.active))
    assert active == dict.fromkeys(every, 1), "each task is active once"
    standby = Counter(task for each in found.values() for task in in_role(each.standby))
    others = len({member.process_id for member in members.values()}) - 1
    assert standby == Counter(dict.fromkeys(stateful, min(num_standby_replicas, others))) - Counter(), "standbys"
    in_process = Counter(
        (members[name].process_id, task)
        for name, each in found.items() for role in (each.active, each.standby) for task in in_role(role)
    )  # fmt: skip
    assert all(count == 1 for count in in_process.values()), "a process has a task twice"
    assert not any(each.warmup for each in found.values())


def some_group(rng: random.Random) -> tuple[dict[str, MemberSpec], dict[str, SubtopologySpec], int]:
    members = {f"m{i}": MemberSpec(f"p{rng.randrange(4)}", Tasks()) for i in range(rng.randint(1, 8))}
    subtopologies = {
        str(id_): SubtopologySpec(rng.randint(1, 12), rng.random() < 0.6) for id_ in range(rng.randint(1, 4))
    }
    return members, subtopologies, rng.randint(0, 2)


@pytest.mark.parametrize("seed", range(10))
def test_what_holds_for_all_assignments(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        members, subtopologies, replicas = some_group(rng)
        found = assign(members, subtopologies, replicas)
        check(found, members, subtopologies, replicas)
        for _ in range(4):  # members come and go
            members = {name: MemberSpec(each.process_id, found[name]) for name, each in members.items()}
            for name in rng.sample(list(members), rng.randint(0, len(members) - 1)):
                del members[name]
            for i in range(rng.randint(0, 3)):
                members[f"n{rng.randrange(1000)}{i}"] = MemberSpec(f"p{rng.randrange(5)}", Tasks())
            found = assign(members, subtopologies, replicas)
            check(found, members, subtopologies, replicas)


@pytest.mark.parametrize("seed", range(10))
def test_without_a_change_nothing_moves(seed: int) -> None:
    """Equal processes: an assignment that was made is made again."""
    rng = random.Random(seed)
    for _ in range(20):
        threads, processes = rng.randint(1, 3), rng.randint(1, 5)
        members = {f"m{i}": MemberSpec(f"p{i % processes}", Tasks()) for i in range(threads * processes)}
        _, subtopologies, _ = some_group(rng)
        found = assign(members, subtopologies, 0)
        again = assign({n: MemberSpec(m.process_id, found[n]) for n, m in members.items()}, subtopologies, 0)
        assert again == found


@pytest.mark.parametrize("seed", range(10))
def test_active_tasks_are_balanced(seed: int) -> None:
    """Equal processes: members differ by one task at most, whatever they had before."""
    rng = random.Random(seed)
    for _ in range(20):
        count = rng.randint(1, 6)
        _, subtopologies, _ = some_group(rng)
        every = [TaskId(id_, i) for id_, each in subtopologies.items() for i in range(each.number_of_tasks)]
        rng.shuffle(every)
        had: dict[str, list[TaskId]] = {f"m{i}": [] for i in range(count)}
        for task in every[: rng.randint(0, len(every))]:
            had[rng.choice(list(had))].append(task)
        members = {
            name: spec(f"p{name}", " ".join(f"{task.subtopology_id}_{task.partition}" for task in found))
            for name, found in had.items()
        }
        found = assign(members, subtopologies, 0)
        loads = [len(in_role(each.active)) for each in found.values()]
        assert max(loads) - min(loads) <= 1
        kept = sum(len(in_role(found[name].active) & set(had[name])) for name in members)
        share = -(-len(every) // count)
        assert kept >= sum(min(len(tasks_had), share - 1) for tasks_had in had.values())


def test_equal_inputs_have_equal_outputs_in_whatever_order() -> None:
    members = {f"m{i}": spec(f"p{i % 3}") for i in range(7)}
    reordered = dict(reversed(members.items()))
    assert assign(members, {"0": STATEFUL, "1": STATELESS}, 1) == assign(reordered, {"1": STATELESS, "0": STATEFUL}, 1)
