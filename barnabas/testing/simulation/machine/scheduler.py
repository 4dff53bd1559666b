"""The scheduler: runs the threads of simulated processes as greenlets, in virtual time, one at a time.

Rules
1. One seed decides everything: which runnable task is next, when a task is interrupted, and for how long. So a history
   can be repeated. Nothing here reads a clock, an address of memory or the order of a set.
2. A task may lose its turn only at a *point*: an operation of a lock, a queue, a clock, a file or a socket. Python code
   between two points is atomic.
3. Virtual time moves by the step time of a process whenever a task gets its turn, and jumps to the next timer when no
   task can run. So a loop that polls a clock ends.
4. A task that waits is *parked*: it states what it waits for (`Wait`), and until when. `wake` or the deadline makes it
   runnable again.
5. Tasks of a paused process keep their state, and wake-ups are kept for them. Tasks of a dead process never run again.
   Their greenlets are kept until the interpreter ends: a discarded greenlet would run its `finally` blocks.
6. A circle of locks, a run in which nothing can ever happen again, and one that makes no progress in virtual time end
   with a `SimulationError` that names each task, what it waits for and where.

Threads: one operating-system thread. Code outside of tasks (imports, tests) runs in the hub: it may use free locks, but
must not wait.
"""

from __future__ import annotations

import contextlib
import heapq
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, Protocol

try:
    import greenlet
except ImportError:
    raise ImportError("the simulation needs greenlet: pip install 'barnabas[simulation]'") from None

from barnabas.testing.simulation.machine.digest import Digest

if TYPE_CHECKING:
    from barnabas.testing.simulation.machine.process import Process

NS_PER_S: Final = 1_000_000_000
#: A task gets at most so many turns within a virtual second; more is a livelock (rule 6).
TURNS_PER_S_MAX: Final = 20_000_000
FRAMES_SHOWN: Final = 6
OBSERVER: Final = 0  # no task has this number

RUNNABLE, RUNNING, PARKED, DELAYED, ENDED = "runnable", "running", "parked", "delayed", "ended"


class SimulationError(Exception):
    """The simulated program cannot go on, or used the simulation wrongly; the message tells the story."""


class Wait(Protocol):
    """The event that a parked task waits for."""

    def describe(self) -> str:
        """Return what is waited for, in words."""

    def blocker(self) -> Task | None:
        """Return the task that alone can end the wait; None if any can."""


class Reason:
    """A wait that any task or timer may end."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def describe(self) -> str:
        """See Wait."""
        return self._text

    def blocker(self) -> Task | None:
        """See Wait."""
        return None


_SLEEP: Final = Reason("the end of its sleep")
_UNTIL: Final = (PARKED, DELAYED)  # a timer may end these


class Task:
    """A thread of a simulated process."""

    __slots__ = (
        "deadline_ns",
        "greenlet",
        "holds",
        "ident",
        "name",
        "parks",
        "process",
        "state",
        "thread",
        "waits_for",
        "woken",
    )

    def __init__(self, ident: int, name: str, process: Process) -> None:
        self.ident = ident  # from 1, in order of creation
        self.name = name
        self.process = process
        self.greenlet: greenlet.greenlet | None = None
        self.thread: object | None = None  # what `threading.current_thread` returns
        self.state = RUNNABLE
        self.holds = 0  # calls of `hold_turn` that have not ended
        self.parks = 0  # how often it was parked or delayed: recognises timers of earlier waits
        self.woken = False  # whether `wake` ended the last wait, not its deadline
        self.waits_for: Wait | None = None
        self.deadline_ns: int | None = None

    def __repr__(self) -> str:
        return f"{self.process.name}/{self.name}"


class Pace:
    """How a run interrupts its tasks. Drawn from the seed, since faults hide at different paces."""

    __slots__ = ("delay_chance", "delay_ns_max", "points_mean")

    def __init__(self, points_mean: float, delay_chance: float, delay_ns_max: int) -> None:
        self.points_mean = points_mean  # points that a task passes, on average, before it loses its turn
        self.delay_chance = delay_chance  # how often it then also loses the processor for a time
        self.delay_ns_max = delay_ns_max

    @classmethod
    def draw(cls, rng: random.Random) -> Pace:
        """Return a random pace."""
        return cls(
            rng.choice((2.0, 8.0, 40.0, 200.0)), rng.choice((0.0, 0.001, 0.01)), rng.choice((1, 5, 50)) * 1_000_000
        )


class Scheduler:
    """See the module."""

    def __init__(self, seed: int, pace: Pace | None = None, digest: Digest | None = None) -> None:
        self.begin(seed, pace, digest)

    def begin(self, seed: int, pace: Pace | None = None, digest: Digest | None = None, order: int = 0) -> None:
        """Begin the history of a seed. What was created by code outside of tasks stays; no task may be there.

        Another `order` gives another history, in which all else that is drawn from the seed stays the same.
        """
        self.seed = seed
        self.random = random.Random(f"{seed}/scheduler/{order}" if order else f"{seed}/scheduler")
        self.pace = pace or Pace.draw(self.random)
        self.digest = digest or Digest()
        self.now_ns = 0  # only the scheduler moves it
        self.current: Task | None = None  # None: the hub, or a timer's function
        self.turns = 0
        self.tasks: list[Task] = []  # those that have not ended, of living processes
        self.failures: list[str] = []  # tasks that ended with an exception, in order
        self.on_first_turn: Callable[[], None] | None = None  # called in each greenlet before anything else
        self._runnable: list[Task] = []
        self._timers: list[tuple[int, int, Task | None, int, Callable[[], None] | None]] = []
        self._timer_count = 0
        self._idents = 0
        self._dead: list[Task] = []  # rule 5
        self._hub = greenlet.getcurrent()
        self._error: SimulationError | None = None  # ends `run`
        self._starting: Task | None = None  # its first turn is now; the hub gives it
        self.countdown = self._draw_countdown()  # points until the next interruption
        self._second_end_ns = 0  # of the livelock check
        self._turns_max = 0  # before that time

    # -- for the program that simulates

    def run(self, process: Process, body: Callable[[], None], name: str = "main") -> None:
        """Run a task, and all that it starts, until it ends. Raises SimulationError, and what the task raised."""
        assert self.current is None, "the simulation is started from outside of it"
        raised: list[BaseException] = []

        def catching() -> None:
            try:
                body()
            except BaseException as error:
                raised.append(error)

        self._hub = greenlet.getcurrent()
        main = self.spawn(process, name, catching)
        while main.state is not ENDED:
            self._turn()
            self.current = None
            if self._error is not None:
                error, self._error = self._error, None
                raise error
        if raised:
            raise raised[0]

    def spawn(self, process: Process, name: str, body: Callable[[], None]) -> Task:
        """Start a task of a process."""
        self._idents += 1
        task = Task(self._idents, name, process)
        task.greenlet = greenlet.greenlet(lambda: self._body(task, body), self._hub)
        self.tasks.append(task)
        self._make_runnable(task)
        return task

    def call_at(self, due_ns: int, function: Callable[[], None]) -> None:
        """Call a function at a time; it must not wait."""
        self._timer_count += 1
        heapq.heappush(self._timers, (due_ns, self._timer_count, None, 0, function))

    def pause(self, process: Process) -> None:
        """Give the tasks of a process no turn until `resume`, as SIGSTOP does."""
        assert self.current is None or self.current.process is not process, "a process cannot pause itself"
        process.is_paused = True
        process.held += [task for task in self._runnable if task.process is process]
        self._runnable = [task for task in self._runnable if task.process is not process]

    def resume(self, process: Process) -> None:
        """End a pause."""
        process.is_paused = False
        held, process.held = process.held, []
        for task in held:
            self._make_runnable(task)

    def end(self, process: Process) -> None:
        """End a process at once, as SIGKILL does: no task of it gets another turn. Returns unless it is one's own."""
        process.is_dead = True
        process.held.clear()
        self._runnable = [task for task in self._runnable if task.process is not process]
        self._dead += [task for task in self.tasks if task.process is process]
        self.tasks = [task for task in self.tasks if task.process is not process]
        if self.current is not None and self.current.process is process:
            self._turn()

    @contextlib.contextmanager
    def observing(self, process: Process | None) -> Iterator[None]:
        """Run the body as a task of a process (None: as code outside of all) that gets no turn but this one.

        An operation that would have to wait fails.

        It changes the history, if it releases a lock that others wait for; so it belongs into a fork.
        """
        before, countdown = self.current, self.countdown
        self.current = None if process is None else Task(OBSERVER, "observer", process)
        self.countdown = sys.maxsize
        try:
            yield
        finally:
            self.current, self.countdown = before, countdown

    def fail(self, why: str) -> None:
        """End `run` with a SimulationError; the calling timer's function returns."""
        self._error = SimulationError(f"{why}:\n{self.story()}")

    # -- for the primitives

    def point(self) -> None:
        """Let other tasks run here, if the seed says so (rule 2).

        Locks and clocks do the same themselves, since most points are theirs and a call costs more than the rest.
        """
        self.countdown -= 1
        if self.countdown <= 0:
            self.interrupt()

    def interrupt(self) -> None:
        """Take the turn from the calling task, which has passed its last point (rule 2)."""
        self.countdown = self._draw_countdown()
        task = self.current
        if task is None or task.holds:
            return
        pace = self.pace
        if pace.delay_chance and self.random.random() < pace.delay_chance:
            task.parks += 1
            task.state = DELAYED
            # Why the cube: most delays are short, few long.
            self._set_timer(task, self.now_ns + int(self.random.random() ** 3 * pace.delay_ns_max))
        else:
            self._make_runnable(task)
        self._turn()

    def hold_turn(self) -> Task | None:
        """Pass the points of the calling task without an interruption, until `release_turn`; return the task."""
        task = self.current
        if task is not None:
            task.holds += 1
        return task

    def release_turn(self, task: Task | None) -> None:
        """End what `hold_turn` began."""
        if task is not None:
            task.holds -= 1

    def park(self, wait: Wait, deadline_ns: int | None = None) -> bool:
        """Wait until `wake` or the deadline; return whether it was `wake`."""
        task = self.current
        if task is None or task.ident == OBSERVER:
            raise SimulationError(f"code outside of the simulation waits for {wait.describe()}")
        task.waits_for = wait
        task.deadline_ns = deadline_ns
        task.woken = False
        task.parks += 1
        task.state = PARKED
        if deadline_ns is None:
            self._find_circle(task)
        else:
            self._set_timer(task, deadline_ns)
        self._turn()
        task.waits_for = None
        return task.woken

    def wake(self, task: Task) -> None:
        """Make a parked task runnable; no effect on another one."""
        if task.state is PARKED:
            task.woken = True
            self._make_runnable(task)

    def sleep_ns(self, duration_ns: int) -> None:
        """Wait for a time."""
        self.park(_SLEEP, self.now_ns + max(0, duration_ns))

    def deadline_ns(self, timeout_s: float | None) -> int | None:
        """Return the time at which a timeout that starts now ends; None for none, or a negative one."""
        if timeout_s is None or timeout_s < 0:
            return None
        return self.now_ns + int(timeout_s * NS_PER_S)

    # -- the story of a run

    def story(self) -> str:
        """Return what each task does or waits for, and where, one task after the other."""
        return "\n".join(map(self._tell, self.tasks)) or "no task is left"

    def _tell(self, task: Task) -> str:
        text = f"{task!r} (task {task.ident}) is {task.state}"
        if task.waits_for is not None:
            text += f", waits for {task.waits_for.describe()}"
            if task.deadline_ns is not None:
                text += f" until {task.deadline_ns / NS_PER_S:.6f} s"
        frame = None if task.greenlet is None else task.greenlet.gr_frame
        if frame is not None:
            found = traceback.extract_stack(frame)
            outside = [each for each in found if "/simulation/machine/" not in each.filename] or found
            text += "".join(f"\n    {each.filename}:{each.lineno} {each.name}" for each in outside[-FRAMES_SHOWN:])
        return text

    # -- turns

    def _body(self, task: Task, body: Callable[[], None]) -> None:
        try:
            if self.on_first_turn is not None:
                self.on_first_turn()
            body()
        except greenlet.GreenletExit:
            raise
        except BaseException:
            self.failures.append(f"{task!r} ended with an exception:\n{traceback.format_exc()}")
        task.state = ENDED
        if not task.process.is_dead:
            self.tasks.remove(task)
        # Returning switches to the hub, which gives the next turn.

    def _draw_countdown(self) -> int:
        return 1 + int(self.random.random() * 2 * self.pace.points_mean)

    def _make_runnable(self, task: Task) -> None:
        task.state = RUNNABLE
        process = task.process
        if process.is_dead:
            return
        if process.is_paused:
            process.held.append(task)
        else:
            self._runnable.append(task)

    def _set_timer(self, task: Task, due_ns: int) -> None:
        self._timer_count += 1
        heapq.heappush(self._timers, (due_ns, self._timer_count, task, task.parks, None))

    def _turn(self) -> None:
        """Give the next task its turn; returns when the calling task, or the hub, is next."""
        me, self.current = self.current, None
        timers = self._timers
        if not self._runnable or (timers and timers[0][0] <= self.now_ns):
            self._fire()
        runnable = self._runnable  # after the timers, which may replace it
        if self._error is not None or not runnable or self._is_livelock():
            self._end(me)
            return
        index = int(self.random.random() * len(runnable))
        chosen = runnable[index]
        runnable[index] = runnable[-1]
        runnable.pop()
        chosen.state = RUNNING
        self.current = chosen
        self.turns += 1
        self.now_ns = now_ns = self.now_ns + chosen.process.step_ns
        self.digest.switch(now_ns, chosen.ident)
        if me is None:
            self._enter(chosen)
        elif chosen is not me:
            assert chosen.greenlet is not None
            if chosen.greenlet:
                chosen.greenlet.switch()
            else:
                self._starting = chosen
                self._hub.switch()

    def _enter(self, task: Task | None) -> None:
        """Give a task its turn, and start new ones; for the hub.

        Why here: a greenlet begins at the depth of recursion from which it is started. Tasks that started each other
        would reach the interpreter's limit.
        """
        while task is not None:
            self._starting = None
            assert task.greenlet is not None
            task.greenlet.switch()
            task = self._starting

    def _is_livelock(self) -> bool:
        """Return whether the tasks get turns without end within one virtual second, and end the run then (rule 6)."""
        if self.now_ns >= self._second_end_ns:
            self._second_end_ns = (self.now_ns // NS_PER_S + 1) * NS_PER_S
            self._turns_max = self.turns + TURNS_PER_S_MAX
        elif self.turns > self._turns_max:
            self._error = SimulationError(f"a livelock at {self.now_ns / NS_PER_S:.6f} s:\n{self.story()}")
        return self._error is not None

    def _end(self, task: Task | None) -> None:
        """End the run; returns to the hub only."""
        if self._error is None:
            self._error = SimulationError(f"nothing can ever happen again:\n{self.story()}")
        if task is not None:
            self._hub.switch()
            raise AssertionError("a task got a turn after the end")

    def _fire(self) -> None:
        """Fire the timers that are due, and further ones until a task can run or none is left."""
        timers = self._timers
        while timers and self._error is None and (timers[0][0] <= self.now_ns or not self._runnable):
            due_ns, _, task, parks, function = heapq.heappop(timers)
            if task is None:
                assert function is not None
                self.now_ns = max(self.now_ns, due_ns)
                function()
            elif task.parks == parks and task.state in _UNTIL and not task.process.is_dead:
                self.now_ns = max(self.now_ns, due_ns)
                self._make_runnable(task)

    def _find_circle(self, task: Task) -> None:
        """End the run if tasks wait for each other in a circle (rule 6)."""
        circle = [task]
        blocker = task.waits_for.blocker() if task.waits_for is not None else None
        while blocker is not None and blocker not in circle:
            circle.append(blocker)
            if blocker.state is not PARKED or blocker.deadline_ns is not None or blocker.waits_for is None:
                return
            blocker = blocker.waits_for.blocker()
        # Why not a circle of one: a lock that its owner takes again may be a signal, which another task releases.
        if blocker is task and len(circle) > 1:
            self._error = SimulationError("a deadlock:\n" + "\n".join(map(self._tell, circle)))


_active: Scheduler | None = None  # replaced by `activate`


def activate(scheduler: Scheduler | None) -> None:
    """Make this the scheduler of the primitives that are created from now on."""
    global _active
    _active = scheduler


def active() -> Scheduler:
    """Return the scheduler of this interpreter."""
    if _active is None:
        raise SimulationError("no simulation runs in this interpreter")
    return _active
