"""Background work of a broker: flushes, retention, checkpoints, deletions (Kafka's `kafka-scheduler-N` threads).

Tasks wait in a heap by due time. A thread is started when a task is due and all others are busy, up to
`background_threads`. An exception in a task is logged; a periodic task runs again next time.

An idle thread sleeps until the first task is due, unless another one wakes up for that task; then it sleeps until it is
told. So a due task wakes one thread, not all of them.

Threads: `schedule` and `schedule_once` from any thread. Tasks run on the scheduler's threads, or in tests on the thread
that calls `ManualScheduler.run_due`.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable
from typing import Protocol

from barnabas.common.clock import Clock
from barnabas.common.threads import ServiceThread

log = logging.getLogger("barnabas.storage.scheduler")

MS_PER_S = 1000
WAIT_S_MAX = 3600

Job = Callable[[], object]


class Task:
    """A scheduled job; tasks are ordered by due time, then by order of scheduling."""

    __slots__ = ("_order", "cancelled", "due_ms", "job", "name", "period_ms")

    def __init__(self, name: str, job: Job, due_ms: int, period_ms: int, order: int) -> None:
        self.name = name
        self.job = job
        self.due_ms = due_ms  # guarded by: the scheduler's lock
        self.period_ms = period_ms  # 0: runs once; its own job may change it
        self.cancelled = False  # set once
        self._order = order

    def cancel(self) -> None:
        """Do not run (again); a run in progress continues."""
        self.cancelled = True

    def __lt__(self, other: Task) -> bool:
        return (self.due_ms, self._order) < (other.due_ms, other._order)


class TaskScheduler(Protocol):
    """A scheduler, as its users see it."""

    def schedule_once(self, name: str, job: Job, delay_ms: int = 0) -> Task:
        """Run `job` once, `delay_ms` from now."""

    def schedule(self, name: str, job: Job, period_ms: int, initial_delay_ms: int = 0) -> Task:
        """Run `job` every `period_ms`, first after `initial_delay_ms`."""


class _TaskHeap:
    """Tasks by due time; not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tasks: list[Task] = []
        self._orders = itertools.count()

    def add(self, name: str, job: Job, delay_ms: int, period_ms: int) -> Task:
        """Add a task that is due in `delay_ms`."""
        task = Task(name, job, self.clock.monotonic_ms() + max(0, delay_ms), period_ms, next(self._orders))
        heapq.heappush(self.tasks, task)
        return task

    def pop_due(self) -> Task | None:
        """Return the next task that is due, dropping cancelled ones."""
        while self.tasks and (self.tasks[0].cancelled or self.tasks[0].due_ms <= self.clock.monotonic_ms()):
            task = heapq.heappop(self.tasks)
            if not task.cancelled:
                return task
        return None

    def due(self) -> list[Task]:
        """Return the tasks that are due now."""
        now_ms = self.clock.monotonic_ms()
        return [task for task in self.tasks if task.due_ms <= now_ms and not task.cancelled]

    def make_due(self) -> None:
        """Have every periodic task be due now, in the order in which they would be."""
        now_ms = self.clock.monotonic_ms()
        for task in self.tasks:
            if task.period_ms:
                task.due_ms = min(task.due_ms, now_ms)
        heapq.heapify(self.tasks)

    def repeat(self, task: Task) -> None:
        """Put a periodic task back after its run."""
        if task.period_ms > 0 and not task.cancelled:
            task.due_ms = max(task.due_ms + task.period_ms, self.clock.monotonic_ms())
            heapq.heappush(self.tasks, task)


class Scheduler:
    """A pool of threads for background work."""

    def __init__(self, background_threads: int, clock: Clock, name: str = "kafka-scheduler") -> None:
        self._lock = threading.Lock()  # guards all below
        self._threads_max = background_threads  # see `resize`
        self._name = name
        self._heap = _TaskHeap(clock)
        self._threads: list[ServiceThread] = []
        self._running: list[Task] = []
        self._started = 0
        self._alarms: list[int] = []  # when the threads that wait at `_timed` wake up, in ms
        self._timed = threading.Condition(self._lock)
        self._spares = 0  # threads that wait at `_told`
        self._told = threading.Condition(self._lock)
        self._stopped = False

    def schedule_once(self, name: str, job: Job, delay_ms: int = 0) -> Task:
        """Run `job` once, `delay_ms` from now."""
        return self._add(name, job, delay_ms, 0)

    def schedule(self, name: str, job: Job, period_ms: int, initial_delay_ms: int = 0) -> Task:
        """Run `job` every `period_ms`, first after `initial_delay_ms`."""
        return self._add(name, job, initial_delay_ms, period_ms)

    def _add(self, name: str, job: Job, delay_ms: int, period_ms: int) -> Task:
        with self._lock:
            task = self._heap.add(name, job, delay_ms, period_ms)
            if self._stopped:
                task.cancel()
                return task
            self._watch()
        return task

    def resize(self, background_threads: int) -> None:
        """Use at most `background_threads` from now on; excess threads end when their tasks end."""
        with self._lock:
            self._threads_max = background_threads
            self._tell_all()

    def _watch(self) -> None:
        """Have a thread wake up for the first task, if none will."""
        if not self._is_first_unwatched():
            return
        if self._spares:
            self._told.notify()
        elif len(self._threads) < self._threads_max:
            self._start_thread()
        else:
            self._timed.notify()  # it waits anew, for the first task; what it waited for comes later

    def _is_first_unwatched(self) -> bool:
        tasks = self._heap.tasks
        return bool(tasks) and (not self._alarms or tasks[0].due_ms < min(self._alarms))

    def _start_thread(self) -> None:
        number = self._started
        self._started += 1
        name = f"{self._name}-{number}"
        thread = ServiceThread(name, name.removeprefix("kafka-"), self._run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (task := self._next_task()) is not None:
            try:
                task.job()
            except Exception:
                log.exception("background task %s failed", task.name)
            with self._lock:
                self._running.remove(task)
                self._heap.repeat(task)

    def clock_moved(self, *, runs_all: bool = False) -> None:
        """Have the threads read the clock again, which jumped; with `runs_all` every periodic task is due now."""
        with self._lock:
            if runs_all:
                self._heap.make_due()
            if not self._stopped:
                self._watch()
            self._tell_all()

    def behind(self) -> list[str]:
        """Return the names of the tasks that run now, or are due and wait for a thread."""
        with self._lock:
            return sorted({task.name for task in (*self._running, *self._heap.due())})

    def next_once_ms(self) -> int | None:
        """Return when the first task that runs only once is due (monotonic); None without such a task."""
        with self._lock:
            once = (task.due_ms for task in self._heap.tasks if not task.period_ms and not task.cancelled)
            return min(once, default=None)

    def _next_task(self) -> Task | None:
        """Wait for a task that is due; None if the scheduler stops or has too many threads."""
        with self._lock:
            while not self._stopped:
                if len(self._threads) > self._threads_max:
                    current = threading.current_thread()
                    self._threads = [thread for thread in self._threads if thread is not current]
                    self._watch()  # Why: this thread may have been told of a task
                    return None
                task = self._heap.pop_due()
                if task is not None:
                    self._running.append(task)
                    self._watch()  # of the next task, while this one runs
                    return task
                self._wait()
        return None

    def _wait(self) -> None:
        """Sleep until the first task is due, or until told if another thread wakes up for it."""
        if self._is_first_unwatched():
            due_ms = self._heap.tasks[0].due_ms
            wait_ms = max(0, due_ms - self._heap.clock.monotonic_ms())
            self._alarms.append(due_ms)
            try:
                self._timed.wait(min(wait_ms / MS_PER_S, WAIT_S_MAX))
            finally:
                self._alarms.remove(due_ms)
        else:
            self._spares += 1
            try:
                self._told.wait()
            finally:
                self._spares -= 1

    def _tell_all(self) -> None:
        self._timed.notify_all()
        self._told.notify_all()

    def shutdown(self, timeout_s: float = 10) -> None:
        """Drop waiting tasks, let running ones finish, join the threads for up to `timeout_s` each."""
        with self._lock:
            self._stopped = True
            self._heap.tasks.clear()
            self._tell_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout_s)


class ManualScheduler:
    """A scheduler without threads: the owner moves the clock and calls `run_due`."""

    def __init__(self, clock: Clock) -> None:
        self._heap = _TaskHeap(clock)

    def schedule_once(self, name: str, job: Job, delay_ms: int = 0) -> Task:
        """Run `job` once, `delay_ms` from now."""
        return self._heap.add(name, job, delay_ms, 0)

    def schedule(self, name: str, job: Job, period_ms: int, initial_delay_ms: int = 0) -> Task:
        """Run `job` every `period_ms`, first after `initial_delay_ms`."""
        return self._heap.add(name, job, initial_delay_ms, period_ms)

    def run_due(self) -> int:
        """Run the tasks that are due now, each once; returns how many ran."""
        ran = []
        while (task := self._heap.pop_due()) is not None:
            ran.append(task)
            task.job()
        for task in ran:
            self._heap.repeat(task)
        return len(ran)

    def shutdown(self, timeout_s: float = 10) -> None:
        """Drop waiting tasks."""
        self._heap.tasks.clear()
