"""The sticky assignor of streams groups: balanced, and as many tasks as possible stay where they are. Pure.

Rules
1. An active task stays with its member, else it goes to the member that had it as standby, as long as that member has
   fewer tasks than its share. A share is the tasks that are left, divided by the members that have not their share.
2. The other active tasks go to the least loaded process, in order of subtopology and partition. So a member gets
   neighbouring partitions of a subtopology.
3. Stateful tasks have standby tasks, each in another process. One goes to the member that had the task as active or
   standby, by rule 1; else to the least loaded process that does not have the task. If there are too few processes,
   there are fewer standby tasks.
4. The assignment depends on ids, loads and the previous assignment only; equal inputs have equal outputs.

Source: Kafka's StickyTaskAssignor (4.3).

Different from Apache Kafka: where it takes the first of several equals in the order of a hash table, the least id; a
previous standby member is considered although another one's process has the task (Kafka then looks at none of them).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from barnabas.broker.coordinators.streams_groups.assignment.processes import Process, ProcessQueue
from barnabas.broker.coordinators.streams_groups.values import TaskId, Tasks

log = logging.getLogger("barnabas.group")


class MemberSpec(NamedTuple):
    """A member: its process, and the tasks that it had."""

    process_id: str
    previous: Tasks


class SubtopologySpec(NamedTuple):
    """A subtopology: its tasks, and whether they keep state."""

    number_of_tasks: int
    is_stateful: bool


class _Share:
    """How many tasks a member should have: what is left, divided by the members that do not have their share."""

    __slots__ = ("_members", "_tasks", "of_member")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks = tasks
        self._members = members
        self._divide()

    def note(self, count: int) -> None:
        """Note that a member has `count` tasks now."""
        if count == self.of_member:
            self._members -= 1
            self._tasks -= count
            self._divide()

    def _divide(self) -> None:
        self.of_member = -(-self._tasks // self._members) if self._members > 0 else 0


def assign(
    members: Mapping[str, MemberSpec], subtopologies: Mapping[str, SubtopologySpec], num_standby_replicas: int
) -> dict[str, Tasks]:
    """Return the tasks of each member, by member id; there must be members."""
    assignment = _Assignment(members, subtopologies, num_standby_replicas)
    assignment.assign_active()
    if num_standby_replicas > 0:
        assignment.assign_standby()
    return assignment.result()


class _Assignment:
    """An assignment that is being made."""

    def __init__(
        self, members: Mapping[str, MemberSpec], subtopologies: Mapping[str, SubtopologySpec], num_standby_replicas: int
    ) -> None:
        self._members = members
        self._subtopologies = subtopologies
        self._num_standby_replicas = num_standby_replicas
        active = sum(found.number_of_tasks for found in subtopologies.values())
        stateful = sum(found.number_of_tasks for found in subtopologies.values() if found.is_stateful)
        self._active_share = _Share(active, len(members))
        self._share = _Share(active + stateful * num_standby_replicas, len(members))
        self._processes: dict[str, Process] = {}
        self._was_active: dict[TaskId, str] = {}  # task -> member id
        self._was_standby: dict[TaskId, list[str]] = {}  # task -> member ids
        for member_id, member in sorted(members.items()):
            self._processes.setdefault(member.process_id, Process(member.process_id)).add_member(member_id)
            for id_, partitions in member.previous.active.items():
                self._was_active |= {TaskId(id_, partition): member_id for partition in partitions}
            for id_, partitions in member.previous.standby.items():
                for partition in partitions:
                    self._was_standby.setdefault(TaskId(id_, partition), []).append(member_id)

    def result(self) -> dict[str, Tasks]:
        """Return what is assigned."""
        found = {}
        for member_id, member in self._members.items():
            process = self._processes[member.process_id]
            found[member_id] = Tasks(
                _by_subtopology(process.active[member_id]), _by_subtopology(process.standby[member_id])
            )
        return found

    # Active tasks

    def assign_active(self) -> None:
        """Assign every task, by rules 1 and 2."""
        tasks = [task for id_ in self._subtopologies for task in self._tasks_of(id_)]
        tasks.sort(key=_by_partition)
        left = [task for task in tasks if not self._keep_active(task, self._was_active.get(task))]
        moved = [
            task for task in left if not self._keep_active(task, self._least_loaded(self._was_standby.get(task, ())))
        ]
        queue = ProcessQueue(self._processes)
        for task in sorted(moved):
            self._note(queue.add_active(task), is_active=True)

    def _tasks_of(self, id_: str) -> Iterable[TaskId]:
        return (TaskId(id_, partition) for partition in range(self._subtopologies[id_].number_of_tasks))

    def _keep_active(self, task: TaskId, member_id: str | None) -> bool:
        if member_id is None:
            return False
        process = self._process_of(member_id)
        if process.counts[member_id] >= self._active_share.of_member:
            return False
        self._note(process.add(member_id, task, is_active=True), is_active=True)
        return True

    def _note(self, count: int, *, is_active: bool) -> None:
        if is_active:
            self._active_share.note(count)
        self._share.note(count)

    # Standby tasks

    def assign_standby(self) -> None:
        """Assign standby tasks, by rule 3."""
        stateful = [id_ for id_, found in self._subtopologies.items() if found.is_stateful]
        tasks = [task for id_ in stateful for task in self._tasks_of(id_)]
        left = []
        for task in sorted(tasks, key=_by_partition, reverse=True):
            missing = self._num_standby_replicas
            while missing and self._keep_standby(task):
                missing -= 1
            if missing:
                left.append((task, missing))
        queue = ProcessQueue(self._processes)
        unassigned = sum(self._add_standby(queue, task, missing) for task, missing in sorted(left, reverse=True))
        if unassigned:
            log.warning(
                "%d of %d standby tasks are not assigned: more instances of the application are needed",
                unassigned, len(tasks) * self._num_standby_replicas,
            )  # fmt: skip

    def _keep_standby(self, task: TaskId) -> bool:
        was_active = self._was_active.get(task)
        candidates = [was_active] if was_active is not None else []
        was_standby = self._was_standby.get(task, ())
        for member_ids in (candidates, was_standby):
            member_id = self._least_loaded(name for name in member_ids if task not in self._process_of(name).tasks)
            if member_id is not None:
                process = self._process_of(member_id)
                if process.counts[member_id] < self._share.of_member:
                    self._note(process.add(member_id, task, is_active=False), is_active=False)
                    return True
        return False

    def _add_standby(self, queue: ProcessQueue, task: TaskId, missing: int) -> int:
        """Give standby tasks to the least loaded processes; returns how many there is no process for."""
        for done in range(missing):
            count = queue.add_standby(task)
            if count is None:
                return missing - done
            self._note(count, is_active=False)
        return 0

    # Members

    def _process_of(self, member_id: str) -> Process:
        return self._processes[self._members[member_id].process_id]

    def _least_loaded(self, member_ids: Iterable[str]) -> str | None:
        """Return the first of these members, unless one has a less loaded process, and fewer tasks itself."""
        best, best_load, best_count = None, 0.0, 0
        for member_id in member_ids:
            process = self._process_of(member_id)
            load, count = process.load, process.counts[member_id]
            if best is None or (load < best_load and count < best_count):
                best, best_load, best_count = member_id, load, count
        return best


def _by_partition(task: TaskId) -> tuple[int, str]:
    """Sort so that tasks of one partition, which may be together in a range assignment, are neighbours."""
    return task.partition, task.subtopology_id


def _by_subtopology(tasks: Iterable[TaskId]) -> dict[str, frozenset[int]]:
    found: dict[str, set[int]] = {}
    for task in tasks:
        found.setdefault(task.subtopology_id, set()).add(task.partition)
    return {id_: frozenset(partitions) for id_, partitions in found.items()}
