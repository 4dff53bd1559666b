"""Background tasks: order, repetition, errors, threads, shutdown."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import pytest

from barnabas.broker.storage.scheduler import ManualScheduler, Scheduler
from barnabas.common.clock import FakeClock, SystemClock
from tests.support.waiting import eventually

WAIT_S = 60


def meet(scheduler: Scheduler, count: int) -> None:
    """Run so many tasks that wait for each other, each on its own thread."""
    together = threading.Barrier(count + 1)
    for number in range(count):
        scheduler.schedule_once(f"meet-{number}", lambda: together.wait(WAIT_S))
    together.wait(WAIT_S)


def test_tasks_run_when_due_and_in_order() -> None:
    clock = FakeClock()
    scheduler = ManualScheduler(clock)
    ran: list[str] = []
    scheduler.schedule_once("late", lambda: ran.append("late"), 20)
    scheduler.schedule_once("soon", lambda: ran.append("soon"), 10)
    scheduler.schedule("often", lambda: ran.append("often"), 10, initial_delay_ms=10)
    cancelled = scheduler.schedule_once("never", lambda: ran.append("never"), 5)
    cancelled.cancel()
    scheduler.run_due()
    assert ran == []
    clock.advance_ms(10)
    assert scheduler.run_due() == 2
    assert ran == ["soon", "often"]
    clock.advance_ms(10)
    scheduler.run_due()
    assert ran == ["soon", "often", "late", "often"]


def test_threads_run_tasks_and_stop() -> None:
    scheduler = Scheduler(2, SystemClock())
    meet(scheduler, 2)
    repeated = threading.Semaphore(0)
    scheduler.schedule("often", repeated.release, 1)
    for _ in range(3):
        assert repeated.acquire(timeout=WAIT_S)
    scheduler.shutdown()
    assert scheduler.schedule_once("too late", lambda: None).cancelled


@pytest.mark.parametrize(("name", "os_name"), [("kafka-scheduler", "scheduler-0"), ("fault", "fault-0")])
def test_threads_have_the_name_of_their_scheduler(name: str, os_name: str) -> None:
    scheduler = Scheduler(1, SystemClock(), name)
    names: list[str] = []
    done = threading.Event()

    def note() -> None:
        own = threading.current_thread()
        names.extend((own.name, Path(f"/proc/self/task/{own.native_id}/comm").read_text().strip()))
        done.set()

    scheduler.schedule_once("note", note)
    assert done.wait(WAIT_S)
    scheduler.shutdown()
    assert names == [f"{name}-0", os_name]


def test_a_failing_task_is_logged_and_runs_again(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler(1, SystemClock())
    runs = threading.Semaphore(0)

    def fail() -> None:
        runs.release()
        raise ValueError("on purpose")

    with caplog.at_level(logging.ERROR):
        scheduler.schedule("failing", fail, 1)
        for _ in range(2):
            assert runs.acquire(timeout=WAIT_S)
        scheduler.shutdown()
    assert "background task failing failed" in caplog.text


def test_threads_start_only_when_needed() -> None:
    scheduler = Scheduler(10, SystemClock())
    scheduler.schedule_once("far", lambda: None, 3_600_000)
    scheduler.schedule_once("farther", lambda: None, 2**62)
    assert len(scheduler._threads) <= 2
    scheduler.shutdown()


def test_a_due_task_wakes_one_of_the_idle_threads() -> None:
    scheduler = Scheduler(3, SystemClock())
    meet(scheduler, 3)
    eventually("all are idle", lambda: scheduler._spares == 3)
    scheduler.schedule_once("far", lambda: None, 3_600_000)
    scheduler.schedule_once("farther", lambda: None, 3_700_000)
    eventually("one waits for the first task", lambda: (len(scheduler._alarms), scheduler._spares) == (1, 2))
    ran = threading.Event()
    scheduler.schedule_once("now", ran.set)
    assert ran.wait(WAIT_S)
    eventually("one waits again", lambda: (len(scheduler._alarms), scheduler._spares) == (1, 2))
    scheduler.shutdown()


def test_a_nearer_task_is_waited_for_by_the_only_thread() -> None:
    scheduler = Scheduler(1, SystemClock())
    scheduler.schedule_once("far", lambda: None, 3_600_000)
    eventually("it waits", lambda: len(scheduler._alarms) == 1)
    ran = threading.Event()
    scheduler.schedule_once("now", ran.set)
    assert ran.wait(WAIT_S)
    scheduler.shutdown()


def test_a_task_runs_in_time_while_the_thread_that_waited_for_it_is_busy() -> None:
    scheduler = Scheduler(2, SystemClock())
    begun, ended = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        ended.wait(WAIT_S)

    scheduler.schedule("often", ended.set, 60, initial_delay_ms=60)
    scheduler.schedule_once("holds", hold)
    assert begun.wait(WAIT_S)
    assert ended.wait(WAIT_S)
    scheduler.shutdown()


def test_the_number_of_threads_can_change() -> None:
    scheduler = Scheduler(3, SystemClock())
    meet(scheduler, 3)
    scheduler.resize(1)
    eventually("two threads end", lambda: len(scheduler._threads) == 1)
    meet(scheduler, 1)
    scheduler.resize(4)
    meet(scheduler, 4)
    scheduler.shutdown()
