"""Which processes have which tasks of a streams group, in each role. Pure.

A process (an instance of the application) may have several members, its threads. All of them use one state directory,
so a process must not have a task twice, in whatever roles.

Invariant: the counts are those of the tasks that members have, or have yet to revoke.

Threads: owner is the group's shard, under its lock.
Source: Kafka's StreamsGroup (4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from barnabas.broker.coordinators.streams_groups.values import Member, TaskId

Counts: TypeAlias = dict[TaskId, dict[str, int]]  # task -> process id -> members


class TaskOwners:
    """Counts members by task and process."""

    __slots__ = ("_active", "_passive")

    def __init__(self) -> None:
        self._active: Counts = {}
        self._passive: Counts = {}  # of standby and warm-up tasks

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskOwners):
            return NotImplemented
        return self._active == other._active and self._passive == other._passive

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, members: Iterable[Member]) -> TaskOwners:
        """Return the owners of these members' tasks."""
        found = cls()
        for member in members:
            found.add(member)
        return found

    def is_free_for_active(self, task: TaskId, process_id: str) -> bool:
        """Return whether a member of the process may get a task as active: no member processes it."""
        return task not in self._active and process_id not in self._passive.get(task, ())

    def is_free_for_passive(self, task: TaskId, process_id: str) -> bool:
        """Return whether a member of the process may get a task as standby or warm-up: its process does not have it."""
        return process_id not in self._active.get(task, ()) and process_id not in self._passive.get(task, ())

    def add(self, member: Member) -> None:
        """Count a member's tasks."""
        for counts, task in self._places(member):
            processes = counts.setdefault(task, {})
            processes[member.process_id] = processes.get(member.process_id, 0) + 1

    def remove(self, member: Member) -> None:
        """Count a member's tasks no longer."""
        for counts, task in self._places(member):
            processes = counts[task]
            processes[member.process_id] -= 1
            if not processes[member.process_id]:
                del processes[member.process_id]
                if not processes:
                    del counts[task]

    def _places(self, member: Member) -> Iterator[tuple[Counts, TaskId]]:
        """Yield the tasks of a member, each with the counts that it belongs to."""
        for tasks in (member.assigned, member.pending_revocation):
            for id_, epochs in tasks.active.items():
                for partition in epochs:
                    yield self._active, TaskId(id_, partition)
            for passive in (tasks.standby, tasks.warmup):
                for id_, partitions in passive.items():
                    for partition in partitions:
                        yield self._passive, TaskId(id_, partition)
