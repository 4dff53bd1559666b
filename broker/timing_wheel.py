"""Hierarchical timing wheel: the cost of adding or cancelling a timeout does not depend on their number.

Theory
A wheel is a ring of buckets, each one tick wide. A task goes into the bucket of its expiration. Tasks beyond the ring
go to an overflow wheel, whose tick is the whole ring below. Example with tick 1 ms and 20 buckets, at time 0: a task
due at 7 is in bucket [7,8) of the first wheel; one due at 45 in [40,60) of the second (tick 20); one due at 700 in
[400,800) of the third (tick 400). When the clock reaches 40, bucket [40,60) is emptied and its tasks are added again:
the one due at 45 now lands in the first wheel. So a task moves down at most once a level. Time advances from bucket to
bucket through a heap of the non-empty ones, not tick by tick.

Rules
1. A task expires in [expiration, expiration + tick): never early.
2. A bucket that holds tasks is in the heap exactly once.
3. Expired tasks run on the thread that called `advance`, which holds no lock of the timer.

Threads: any thread may call `Timer.add`, `cancel` and `len`; only the reaper calls `advance` and `wait_and_advance`.
Source: Kafka's TimingWheel, TimerTaskList and SystemTimer (4.3). Different: one short lock guards the wheels. Kafka's
read-write lock lets threads add at the same time, which costs more in Python than it gains. Buckets are dicts. The
reaper sleeps until the next bucket is due, not 200 ms at a time, so an idle process does not tick.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable

from barnabas.common.clock import Clock
from barnabas.common.extendable import mypyc_attr
from barnabas.common.locks.factory import new_lock

log = logging.getLogger("barnabas.timer")

TICK_MS = 1
WHEEL_SIZE = 20


@mypyc_attr(allow_interpreted_subclasses=True)
class TimerTask:
    """Something to run once, `delay_ms` after it was added to a timer, unless cancelled before."""

    __slots__ = ("_bucket", "delay_ms", "expiration_ms")

    def __init__(self, delay_ms: int) -> None:
        self.delay_ms = delay_ms  # fixed before start
        self.expiration_ms = -1  # guarded by: the timer's lock
        self._bucket: Bucket | None = None  # guarded by: the timer's lock

    @property
    def is_waiting(self) -> bool:
        """Return whether the task is in a timer; without the timer's lock, a hint."""
        return self._bucket is not None

    @property
    def started_ms(self) -> int:
        """When the task was added to a timer (monotonic); -1 before. Without the timer's lock, a hint."""
        expiration_ms = self.expiration_ms
        return -1 if expiration_ms < 0 else expiration_ms - self.delay_ms

    def run(self) -> None:
        """Do the task; on the reaper's thread, which holds no lock of the timer."""
        raise NotImplementedError


class CallbackTask(TimerTask):
    """A task that calls a function."""

    __slots__ = ("_callback",)

    def __init__(self, delay_ms: int, callback: Callable[[], object]) -> None:
        super().__init__(delay_ms)
        self._callback = callback  # fixed before start

    def run(self) -> None:
        """Call the function."""
        self._callback()


class Bucket:
    """The tasks of one tick of one wheel. Guarded by the timer's lock."""

    __slots__ = ("expiration_ms", "tasks")

    def __init__(self) -> None:
        self.expiration_ms = -1  # start of the tick that the tasks fall into
        self.tasks: dict[TimerTask, None] = {}  # insertion-ordered set

    def set_expiration(self, expiration_ms: int) -> bool:
        """Use the bucket for a tick; true if that is a new one, so that the bucket must be queued."""
        if self.expiration_ms == expiration_ms:
            return False
        assert not self.tasks, "a bucket is reused only after it was flushed"
        self.expiration_ms = expiration_ms
        return True


class TimingWheel:
    """One level of the wheel. Guarded by the timer's lock.

    Invariant: `current_ms` is a multiple of `tick_ms`, and tasks of this wheel are due in [current_ms + tick_ms,
    current_ms + interval_ms).
    """

    __slots__ = ("_buckets", "_overflow", "_queue", "current_ms", "interval_ms", "tick_ms", "wheel_size")

    def __init__(self, tick_ms: int, wheel_size: int, start_ms: int, queue: BucketQueue) -> None:
        assert tick_ms > 0
        assert wheel_size > 1
        self.tick_ms = tick_ms
        self.wheel_size = wheel_size
        self.interval_ms = tick_ms * wheel_size
        self.current_ms = start_ms - start_ms % tick_ms
        self._queue = queue
        self._buckets = [Bucket() for _ in range(wheel_size)]
        self._overflow: TimingWheel | None = None  # created when first needed

    def add(self, task: TimerTask) -> bool:
        """Put the task into its bucket; false if it is due already."""
        expiration_ms = task.expiration_ms
        if expiration_ms < self.current_ms + self.tick_ms:
            return False
        if expiration_ms >= self.current_ms + self.interval_ms:
            if self._overflow is None:
                self._overflow = TimingWheel(self.interval_ms, self.wheel_size, self.current_ms, self._queue)
            return self._overflow.add(task)
        tick = expiration_ms // self.tick_ms
        bucket = self._buckets[tick % self.wheel_size]
        if bucket.set_expiration(tick * self.tick_ms):
            self._queue.push(bucket)
        bucket.tasks[task] = None
        task._bucket = bucket
        return True

    def advance(self, time_ms: int) -> None:
        """Move the wheel, and those above it, to the tick that `time_ms` falls into."""
        if time_ms >= self.current_ms + self.tick_ms:
            self.current_ms = time_ms - time_ms % self.tick_ms
            if self._overflow is not None:
                self._overflow.advance(self.current_ms)


class BucketQueue:
    """Buckets in order of expiration. Guarded by the timer's lock."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Bucket]] = []
        self._sequence = 0  # breaks ties, so that buckets need no order

    def push(self, bucket: Bucket) -> None:
        """Add a bucket."""
        self._sequence += 1
        heapq.heappush(self._heap, (bucket.expiration_ms, self._sequence, bucket))

    def next_expiration_ms(self) -> int | None:
        """Return the expiration of the first bucket; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Bucket | None:
        """Remove and return the first bucket if its tick has begun; else None."""
        if self._heap and self._heap[0][0] <= now_ms:
            return heapq.heappop(self._heap)[2]
        return None


class Timer:
    """Runs tasks when they are due, on the thread that advances it."""

    def __init__(self, clock: Clock, tick_ms: int = TICK_MS, wheel_size: int = WHEEL_SIZE) -> None:
        self._clock = clock
        self._lock = new_lock("timer")
        self._changed = threading.Condition(self._lock)  # an earlier bucket was queued, or closing
        self._queue = BucketQueue()  # guarded by: _lock
        self._wheel = TimingWheel(tick_ms, wheel_size, clock.monotonic_ms(), self._queue)  # guarded by: _lock
        self._task_count = 0  # guarded by: _lock
        self._wakeup_ms: int | None = None  # guarded by: _lock; when the sleeping reaper wakes without a notification
        self._is_sleeping = False  # guarded by: _lock
        self._is_closed = False  # guarded by: _lock
        self._is_expiring = False  # guarded by: _lock; tasks that were due run now

    def __len__(self) -> int:
        """Return how many tasks wait."""
        return self._task_count

    def add(self, task: TimerTask) -> None:
        """Start the task's delay; one that is due already runs at once, on the calling thread."""
        with self._lock:
            assert task._bucket is None, "a task is added once"
            now_ms = self._clock.monotonic_ms()
            if self._queue.next_expiration_ms() is None:
                self._wheel.advance(
                    now_ms
                )  # Why: the wheels of an idle timer lag, and the task would go to a high level.
            task.expiration_ms = now_ms + task.delay_ms
            is_waiting = self._wheel.add(task)
            if is_waiting:
                self._task_count += 1
                self._wake_reaper_if_earlier_locked()
        if not is_waiting:
            task.run()

    def cancel(self, task: TimerTask) -> bool:
        """Remove the task; false if it is not waiting: it ran, runs now, or was never added."""
        if not task.is_waiting:  # Why: most operations complete before they are timed.
            return False
        with self._lock:
            bucket = task._bucket
            if bucket is None:
                return False
            del bucket.tasks[task]
            task._bucket = None
            self._task_count -= 1
            return True

    def advance(self) -> int:
        """Run everything that is due now; return how many tasks ran."""
        ran = 0
        while due := self._take_due():
            for task in due:
                try:
                    task.run()
                except Exception:  # Why: one task's bug must not make the others wait for ever.
                    log.exception("a timed task failed: %r", task)
            ran += len(due)
        return ran

    def wait_and_advance(self, timeout_ms: int) -> int:
        """Sleep until something is due (at most `timeout_ms`), then run it; return how many tasks ran."""
        with self._lock:
            if self._is_closed:
                return 0
            now_ms = self._clock.monotonic_ms()
            next_ms = self._queue.next_expiration_ms()
            wait_ms = timeout_ms if next_ms is None else min(timeout_ms, next_ms - now_ms)
            if wait_ms > 0:
                self._wakeup_ms = now_ms + wait_ms
                self._is_sleeping = True
                self._changed.wait(wait_ms / 1000)
                self._is_sleeping = False
        return self.advance()

    def now_ms(self) -> int:
        """Return the time of the timer's clock (monotonic)."""
        return self._clock.monotonic_ms()

    def clock_moved(self) -> None:
        """Have the reaper read the clock again, which jumped."""
        with self._lock:
            self._changed.notify_all()

    def is_behind(self) -> bool:
        """Return whether a bucket is due that the reaper has not emptied, or tasks that were due still run."""
        with self._lock:
            next_ms = self._queue.next_expiration_ms()
            return self._is_expiring or (next_ms is not None and next_ms <= self._clock.monotonic_ms())

    def next_due_ms(self) -> int | None:
        """Return when the reaper looks next (monotonic): no later than the first task is due. None without tasks."""
        with self._lock:
            return self._queue.next_expiration_ms() if self._task_count else None

    def close(self) -> None:
        """Wake a sleeping reaper; waiting tasks are dropped."""
        with self._lock:
            self._is_closed = True
            self._changed.notify_all()

    def _wake_reaper_if_earlier_locked(self) -> None:
        if not self._is_sleeping:
            return
        next_ms = self._queue.next_expiration_ms()
        if next_ms is not None and self._wakeup_ms is not None and next_ms < self._wakeup_ms:
            self._wakeup_ms = next_ms
            self._changed.notify()

    def _take_due(self) -> list[TimerTask]:
        """Empty every bucket whose tick has begun; tasks of upper wheels move down, the due ones are returned."""
        due: list[TimerTask] = []
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            while (bucket := self._queue.pop_due(now_ms)) is not None:
                self._wheel.advance(bucket.expiration_ms)
                self._flush_locked(bucket, due)
            self._is_expiring = bool(due)
        return due

    def _flush_locked(self, bucket: Bucket, due: list[TimerTask]) -> None:
        tasks = list(bucket.tasks)
        bucket.tasks.clear()
        bucket.expiration_ms = -1
        for task in tasks:
            task._bucket = None
            if not self._wheel.add(task):
                self._task_count -= 1
                due.append(task)
