"""The processes of an application while their tasks are being assigned: loads of processes and members. Pure.

The load of a process is its tasks, of any role, for each of its members. Equal loads are in the order of the ids.

Source: Kafka's ProcessState (4.3).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from barnabas.broker.coordinators.streams_groups.values import TaskId


class Process:
    """A process with its members, and the tasks that they have so far."""

    __slots__ = ("_least_loaded", "active", "counts", "process_id", "standby", "tasks")

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.counts: dict[str, int] = {}  # tasks by member id
        self.tasks: set[TaskId] = set()
        self.active: dict[str, list[TaskId]] = {}  # by member id
        self.standby: dict[str, list[TaskId]] = {}  # by member id
        self._least_loaded: list[tuple[int, str]] = []  # a heap of (tasks, member id); empty: to be built

    @property
    def load(self) -> float:
        """Tasks for each member."""
        return len(self.tasks) / len(self.counts)

    def add_member(self, member_id: str) -> None:
        """Add a member without tasks."""
        self.counts[member_id] = 0
        self.active[member_id] = []
        self.standby[member_id] = []

    def add(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        """Give a task to a member; returns how many it has now."""
        self._least_loaded = []
        return self._add(member_id, task, is_active=is_active)

    def add_to_least_loaded(self, task: TaskId, *, is_active: bool) -> int:
        """Give a task to the member with the fewest; returns how many it has now."""
        heap = self._least_loaded
        if not heap:
            heap = self._least_loaded = sorted((count, member_id) for member_id, count in self.counts.items())
        member_id = heap[0][1]
        count = self._add(member_id, task, is_active=is_active)
        heapq.heapreplace(heap, (count, member_id))
        return count

    def _add(self, member_id: str, task: TaskId, *, is_active: bool) -> int:
        self.tasks.add(task)
        (self.active if is_active else self.standby)[member_id].append(task)
        self.counts[member_id] += 1
        return self.counts[member_id]


class ProcessQueue:
    """Processes by load, the least loaded one first."""

    def __init__(self, processes: Mapping[str, Process]) -> None:
        self._processes = processes
        self._heap = sorted((process.load, process_id) for process_id, process in processes.items())

    def add_active(self, task: TaskId) -> int:
        """Give an active task to the least loaded member; returns how many tasks that one has now."""
        process = self._processes[self._heap[0][1]]
        count = process.add_to_least_loaded(task, is_active=True)
        heapq.heapreplace(self._heap, (process.load, process.process_id))
        return count

    def add_standby(self, task: TaskId) -> int | None:
        """Give a standby task to the least loaded process without this task; returns as `add_active`, None if all
        processes have it.
        """
        passed = []
        count = None
        while self._heap and count is None:
            load, process_id = heapq.heappop(self._heap)
            process = self._processes[process_id]
            if task not in process.tasks:
                count = process.add_to_least_loaded(task, is_active=False)
                load = process.load
            passed.append((load, process_id))
        self._push(passed)
        return count

    def _push(self, entries: Iterable[tuple[float, str]]) -> None:
        for entry in entries:
            heapq.heappush(self._heap, entry)
