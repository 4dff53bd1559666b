"""Who has which tasks: every role, in the same process and in another one."""

from __future__ import annotations

import random

import pytest

from barnabas.broker.coordinators.streams_groups.owners import TaskOwners
from barnabas.broker.coordinators.streams_groups.values import Member, OwnedTasks, TaskId

TASK = TaskId("0", 1)
ONE = frozenset({1})
ROLES = {
    "active": OwnedTasks({"0": {1: 5}}),
    "standby": OwnedTasks({}, {"0": ONE}),
    "warmup": OwnedTasks({}, {}, {"0": ONE}),
}

# role of another member -> (free for active, free for passive) in its process, and in another process
TABLE = {
    "active": ((False, False), (False, True)),
    "standby": ((False, False), (True, True)),
    "warmup": ((False, False), (True, True)),
}


@pytest.mark.parametrize("role", TABLE)
@pytest.mark.parametrize("is_pending", [False, True])
def test_where_a_task_is_free(role: str, is_pending: bool) -> None:
    name = "pending_revocation" if is_pending else "assigned"
    owners = TaskOwners.of([Member("m", process_id="p", **{name: ROLES[role]})])
    found = tuple(
        (owners.is_free_for_active(TASK, process), owners.is_free_for_passive(TASK, process)) for process in ("p", "q")
    )
    assert found == TABLE[role]


def test_other_tasks_are_free() -> None:
    owners = TaskOwners.of([Member("m", process_id="p", assigned=ROLES["active"])])
    for task in (TaskId("0", 2), TaskId("1", 1)):
        assert owners.is_free_for_active(task, "p")
        assert owners.is_free_for_passive(task, "p")


def test_a_task_that_two_members_have_is_free_when_both_are_gone() -> None:
    """A log that is half compacted may say so."""
    members = [Member(name, process_id="p", assigned=ROLES["active"]) for name in ("m", "n")]
    owners = TaskOwners.of(members)
    owners.remove(members[0])
    assert not owners.is_free_for_active(TASK, "q")
    owners.remove(members[1])
    assert owners.is_free_for_active(TASK, "q")
    assert owners == TaskOwners()


def test_counts_are_those_of_the_members_that_are_left() -> None:
    rng = random.Random(7)

    def tasks() -> OwnedTasks:
        def some() -> dict[str, frozenset[int]]:
            return {
                id_: frozenset(rng.sample(range(3), rng.randint(1, 2))) for id_ in rng.sample("01", rng.randint(0, 2))
            }

        return OwnedTasks({id_: dict.fromkeys(found, 1) for id_, found in some().items()}, some(), some())

    members: list[Member] = []
    owners = TaskOwners()
    for _ in range(200):
        if members and rng.random() < 0.5:
            owners.remove(members.pop(rng.randrange(len(members))))
        else:
            members.append(Member("m", process_id=rng.choice("pq"), assigned=tasks(), pending_revocation=tasks()))
            owners.add(members[-1])
        assert owners == TaskOwners.of(members)
    assert owners != object()
