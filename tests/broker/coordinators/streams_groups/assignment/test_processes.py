"""Processes and their loads."""

from __future__ import annotations

import random

from barnabas.broker.coordinators.streams_groups.assignment.processes import Process, ProcessQueue
from barnabas.broker.coordinators.streams_groups.values import TaskId


def process(id_: str, *members: str) -> Process:
    made = Process(id_)
    for member_id in members:
        made.add_member(member_id)
    return made


def task(partition: int) -> TaskId:
    return TaskId("0", partition)


def test_the_load_of_a_process_is_its_tasks_for_each_member() -> None:
    made = process("p", "a", "b")
    assert made.load == 0
    assert made.add("a", task(0), is_active=True) == 1
    assert made.add("a", task(1), is_active=False) == 2
    assert made.add("b", task(2), is_active=True) == 1
    assert made.load == 1.5
    assert (made.active, made.standby) == ({"a": [task(0)], "b": [task(2)]}, {"a": [task(1)], "b": []})
    assert made.tasks == {task(0), task(1), task(2)}


def test_the_member_with_the_fewest_tasks_gets_the_next_one() -> None:
    made = process("p", "b", "a", "c")
    made.add("b", task(9), is_active=True)
    counts = [made.add_to_least_loaded(task(i), is_active=True) for i in range(5)]
    assert counts == [1, 1, 2, 2, 2]
    assert {name: len(found) for name, found in made.active.items()} == {"a": 2, "b": 2, "c": 2}
    made.add("a", task(10), is_active=True)
    made.add_to_least_loaded(task(11), is_active=False)
    assert made.standby == {"a": [], "b": [task(11)], "c": []}


def test_the_least_loaded_process_gets_the_next_active_task() -> None:
    processes = {"p": process("p", "a"), "q": process("q", "b", "c")}
    queue = ProcessQueue(processes)
    for i in range(6):
        queue.add_active(task(i))
    assert {id_: len(found.tasks) for id_, found in processes.items()} == {"p": 2, "q": 4}


def test_a_standby_task_goes_to_a_process_without_the_task() -> None:
    processes = {"p": process("p", "a"), "q": process("q", "b")}
    processes["q"].add("b", task(1), is_active=True)
    processes["p"].add("a", task(0), is_active=True)
    queue = ProcessQueue(processes)
    assert queue.add_standby(task(0)) == 2
    assert processes["q"].standby == {"b": [task(0)]}
    assert queue.add_standby(task(0)) is None
    assert queue.add_standby(task(5)) == 2
    assert processes["p"].standby == {"a": [task(5)]}


def test_the_queue_is_in_the_order_of_loads() -> None:
    rng = random.Random(5)
    processes = {f"p{i}": process(f"p{i}", *(f"m{i}{j}" for j in range(i + 1))) for i in range(4)}
    queue = ProcessQueue(processes)
    for i in range(300):
        expected = min(processes.values(), key=lambda found: (found.load, found.process_id))
        before = len(expected.tasks)
        if rng.random() < 0.5:
            queue.add_active(task(i))
        else:
            queue.add_standby(task(i))
        assert len(expected.tasks) == before + 1
