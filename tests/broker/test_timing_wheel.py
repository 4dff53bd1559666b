"""The timing wheel, with a fake clock."""

from __future__ import annotations

import random
import threading

import pytest

from barnabas.broker.timing_wheel import CallbackTask, Timer
from barnabas.common.clock import FakeClock, SystemClock

WAIT_S = 30  # less than the task that it sleeps for


class Recorder:
    """Adds tasks and remembers when they ran."""

    def __init__(self) -> None:
        self.clock = FakeClock(monotonic_ms=0)
        self.timer = Timer(self.clock)
        self.ran: list[tuple[int, int]] = []

    def add(self, delay_ms: int) -> CallbackTask:
        due_ms = self.clock.monotonic_ms() + delay_ms
        task = CallbackTask(delay_ms, lambda: self.ran.append((due_ms, self.clock.monotonic_ms())))
        self.timer.add(task)
        return task

    def advance_ms(self, ms: int) -> None:
        self.clock.advance_ms(ms)
        self.timer.advance()


@pytest.mark.parametrize("delay_ms", [1, 7, 19, 20, 21, 399, 400, 401, 7_999, 8_000, 123_456])
def test_a_task_runs_when_due_and_not_before(delay_ms: int) -> None:
    recorder = Recorder()
    recorder.add(delay_ms)
    recorder.advance_ms(delay_ms - 1)
    assert recorder.ran == []
    assert len(recorder.timer) == 1
    recorder.advance_ms(1)
    assert recorder.ran == [(delay_ms, delay_ms)]
    assert len(recorder.timer) == 0


def test_a_task_without_delay_runs_at_once() -> None:
    recorder = Recorder()
    recorder.add(0)
    assert recorder.ran == [(0, 0)]


def test_cancelled_tasks_never_run() -> None:
    recorder = Recorder()
    kept, gone = recorder.add(50), recorder.add(50)
    assert recorder.timer.cancel(gone)
    assert not recorder.timer.cancel(gone)
    assert len(recorder.timer) == 1
    recorder.advance_ms(1000)
    assert recorder.ran == [(50, 1000)]
    assert not recorder.timer.cancel(kept)


def test_an_idle_wheel_catches_up() -> None:
    recorder = Recorder()
    recorder.advance_ms(10_000_000)
    recorder.add(5)
    recorder.advance_ms(4)
    assert recorder.ran == []
    recorder.advance_ms(1)
    assert recorder.ran == [(10_000_005, 10_000_005)]


@pytest.mark.parametrize("seed", range(5))
def test_random_tasks_run_in_time_and_order(seed: int) -> None:
    """Compared with a simple model: each task runs in the first step that reaches its time."""
    random_ = random.Random(seed)
    recorder = Recorder()
    expected: list[int] = []
    for _ in range(300):
        for _ in range(random_.randrange(4)):
            task = recorder.add(random_.choice((random_.randrange(30), random_.randrange(20_000))))
            if random_.random() < 0.2 and recorder.timer.cancel(task):
                continue
            expected.append(task.expiration_ms)
        recorder.advance_ms(random_.choice((0, 1, 3, 17, 250, 1_500)))
    recorder.advance_ms(30_000)
    assert sorted(due for due, _ in recorder.ran) == sorted(expected)
    assert all(ran_at >= due for due, ran_at in recorder.ran)
    assert [ran_at for _, ran_at in recorder.ran] == sorted(ran_at for _, ran_at in recorder.ran)


def test_one_failing_task_does_not_stop_others(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    recorder.timer.add(CallbackTask(5, lambda: 1 / 0))
    recorder.add(5)
    recorder.advance_ms(5)
    assert recorder.ran == [(5, 5)]
    assert "a timed task failed" in caplog.text


def test_a_sleeping_reaper_is_woken_for_an_earlier_task() -> None:
    timer = Timer(SystemClock())
    ran = threading.Event()
    ended = threading.Event()

    def reap() -> None:
        while not ran.is_set():
            timer.wait_and_advance(60_000)
        timer.wait_and_advance(60_000)
        ended.set()

    thread = threading.Thread(target=reap)
    thread.start()
    timer.add(CallbackTask(50_000, lambda: None))
    timer.add(CallbackTask(20, ran.set))
    assert ran.wait(WAIT_S)
    timer.close()
    assert ended.wait(WAIT_S)
    thread.join()


def test_a_timer_whose_clock_jumped_is_behind_until_it_advances() -> None:
    recorder = Recorder()
    assert (recorder.timer.is_behind(), recorder.timer.next_due_ms()) == (False, None)
    recorder.add(50)
    recorder.add(1_000_000)
    assert (recorder.timer.is_behind(), recorder.timer.next_due_ms()) == (False, 40)  # its bucket
    recorder.clock.advance_ms(70)
    assert recorder.timer.is_behind()
    recorder.timer.advance()
    due_ms = recorder.timer.next_due_ms()
    assert not recorder.timer.is_behind()
    assert due_ms is not None
    assert 70 < due_ms <= 1_000_000


def test_a_timer_is_behind_while_a_task_runs() -> None:
    recorder, seen = Recorder(), list[bool]()
    recorder.timer.add(CallbackTask(5, lambda: seen.append(recorder.timer.is_behind())))
    recorder.advance_ms(5)
    assert seen == [True]
    assert not recorder.timer.is_behind()


def test_a_sleeping_reaper_wakes_when_the_clock_jumps() -> None:
    recorder = Recorder()
    recorder.add(600_000)
    reaper = threading.Thread(target=lambda: recorder.timer.wait_and_advance(600_000))
    reaper.start()
    recorder.clock.advance_ms(600_000)
    while reaper.is_alive():
        recorder.timer.clock_moved()
        reaper.join(0.01)
    assert recorder.ran == [(600_000, 600_000)]
