"""Values of streams groups."""

from __future__ import annotations

import pytest

from barnabas.broker.coordinators.streams_groups.values import (
    InternalTopic,
    Member,
    MemberState,
    OwnedTasks,
    Subtopology,
    TaskId,
    Tasks,
    Topology,
    partitions_of,
)

ONE, TWO = frozenset({1}), frozenset({2})


@pytest.mark.parametrize(
    ("tasks", "other", "expected"),
    [
        (Tasks(), OwnedTasks({"0": {1: 1}}), False),
        (Tasks({"0": ONE}), OwnedTasks({"0": {1: 5}}), True),
        (Tasks({"0": ONE}), OwnedTasks({"0": {2: 5}, "1": {1: 5}}), False),
        (Tasks({"0": ONE}), OwnedTasks({}, {"0": ONE}, {"0": ONE}), False),
        (Tasks({}, {"0": ONE}), OwnedTasks({}, {"0": ONE}), True),
        (Tasks({}, {"0": ONE}), OwnedTasks({}, {"0": TWO}, {"0": ONE}), False),
        (Tasks({}, {}, {"0": TWO}), OwnedTasks({}, {}, {"0": TWO | ONE}), True),
        (Tasks({}, {}, {"0": TWO}), OwnedTasks({"0": {2: 1}}, {"0": TWO}), False),
    ],
)
def test_a_task_is_in_both_only_in_the_same_role(tasks: Tasks, other: OwnedTasks, expected: bool) -> None:
    assert tasks.has_any_of(other) is expected


def test_tasks_of_a_subtopology_that_is_there_many_times_are_joined_without_copying_them_each_time() -> None:
    """A client chooses how often; 200 000 growing copies would take minutes."""
    count = 200_000
    found = partitions_of([("none", []), *(("0", [partition]) for partition in range(count)), ("1", [3, 3])])
    assert found == {"0": frozenset(range(count)), "1": frozenset({3})}


def test_emptiness() -> None:
    assert Tasks().is_empty
    assert OwnedTasks().is_empty
    assert not any(tasks.is_empty for tasks in (Tasks({"0": ONE}), Tasks({}, {"0": ONE}), Tasks({}, {}, {"0": ONE})))
    owned = (OwnedTasks({"0": {1: 1}}), OwnedTasks({}, {"0": ONE}), OwnedTasks({}, {}, {"0": ONE}))
    assert not any(tasks.is_empty for tasks in owned)


def test_tasks_without_their_epochs() -> None:
    owned = OwnedTasks({"0": {1: 5, 2: 6}}, {"1": ONE}, {"1": TWO})
    assert owned.without_epochs() == Tasks({"0": ONE | TWO}, {"1": ONE}, {"1": TWO})


def test_the_epoch_of_a_task_that_is_assigned_or_still_to_be_revoked() -> None:
    member = Member("m", assigned=OwnedTasks({"0": {1: 5}}), pending_revocation=OwnedTasks({"0": {1: 2, 2: 3}}))
    found = [member.assignment_epoch(TaskId("0", partition)) for partition in (1, 2, 3)]
    assert found == [5, 3, None]
    assert member.assignment_epoch(TaskId("1", 1)) is None


def test_a_member_is_reconciled_in_the_epoch_and_stable() -> None:
    stable = Member("m", epoch=3)
    assert stable.is_reconciled_to(3)
    assert not stable.is_reconciled_to(4)
    waiting = stable.moved_to(4, MemberState.UNRELEASED_TASKS, OwnedTasks(), OwnedTasks())
    assert (waiting.epoch, waiting.previous_epoch) == (4, 3)
    assert not waiting.is_reconciled_to(4)


def test_identity_and_assignment_are_replaced_apart() -> None:
    identity = Member("m", client_id="c", topology_epoch=2)
    current = Member("m", epoch=3, previous_epoch=2, assigned=OwnedTasks({"0": {1: 1}}))
    both = Member("m", client_id="c", topology_epoch=2, epoch=3, previous_epoch=2, assigned=OwnedTasks({"0": {1: 1}}))
    assert current.with_metadata_of(identity) == identity.with_current_of(current) == both


def test_the_topics_of_a_topology() -> None:
    first = Subtopology("0", ("a",), changelogs=(InternalTopic("c"),), repartition_sinks=("r",))
    second = Subtopology("1", repartition_sources=(InternalTopic("r"),))
    topology = Topology(1, {"0": first, "1": second})
    assert topology.required_topics() == {"a", "c", "r"}
    assert topology.readers() == {"a": "0", "r": "1"}
