"""Tests locks.py and threads.py."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.testing.simulation.machine.locks import Lock, RLock
from barnabas.testing.simulation.machine.scheduler import NS_PER_S, Pace
from barnabas.testing.simulation.machine.threads import Local, Thread, current_thread, enumerate_threads, get_ident
from tests.barnabas.testing.simulation.machine.conftest import Machine


def test_a_lock_lets_one_task_in_at_a_time(machine: Machine) -> None:
    lock = Lock()
    inside = [0, 0]  # now, at most

    def worker() -> None:
        for _ in range(30):
            with lock:
                inside[0] += 1
                inside[1] = max(inside)
                machine.scheduler.point()
                inside[0] -= 1

    machine.run(worker, worker, worker)
    assert inside == [0, 1]


def test_a_lock_is_not_taken_in_vain_for_ever(machine: Machine) -> None:
    lock = Lock()
    results: list[Any] = []

    def holder() -> None:
        with lock:
            machine.scheduler.sleep_ns(NS_PER_S)

    def taker() -> None:
        machine.scheduler.sleep_ns(100_000_000)
        results.append(lock.acquire(blocking=False))
        results.append(lock.acquire(timeout=0.1))
        results.append(machine.scheduler.now_ns // 200_000_000)
        results.append(lock.acquire(timeout=5))
        lock.release()

    machine.run(holder, taker)
    assert results == [False, False, 1, True]
    with pytest.raises(RuntimeError, match="unlocked"):
        lock.release()


def test_a_reentrant_lock_counts(machine: Machine) -> None:
    lock = RLock()
    order: list[str] = []

    def first() -> None:
        with lock, lock:
            machine.scheduler.sleep_ns(NS_PER_S)
            order.append("first")

    def second() -> None:
        machine.scheduler.sleep_ns(NS_PER_S // 10)
        with lock:
            order.append("second")
        with pytest.raises(RuntimeError, match="un-acquired"):
            lock.release()

    machine.run(first, second)
    assert order == ["first", "second"]


@pytest.mark.parametrize("kind", [Lock, RLock])
def test_conditions_of_the_standard_library_work(
    machine: Machine, kind: type[Lock], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "_allocate_lock", Lock)
    changed = threading.Condition(kind())  # type: ignore[arg-type]
    values: list[int] = []
    taken: list[int] = []

    def consumer() -> None:
        with changed:
            while not values:
                changed.wait()
            taken.append(values.pop())

    def producer() -> None:
        for value in (1, 2):
            machine.scheduler.sleep_ns(1_000_000)
            with changed:
                values.append(value)
                changed.notify()

    machine.run(consumer, consumer, producer)
    assert sorted(taken) == [1, 2]


def test_queues_of_the_standard_library_work(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "_allocate_lock", Lock)
    monkeypatch.setattr(threading, "Lock", Lock)
    waiting: queue.Queue[int] = queue.Queue(2)
    simple = queue._PySimpleQueue()  # type: ignore[attr-defined]
    got: list[int] = []

    def producer() -> None:
        for number in range(50):
            waiting.put(number)

    def between() -> None:
        for _ in range(50):
            simple.put(waiting.get())

    def consumer() -> None:
        got.extend(simple.get() for _ in range(50))

    machine.run(producer, between, consumer)
    assert got == list(range(50))


def test_threads_are_joined_and_know_themselves(machine: Machine) -> None:
    seen: list[Any] = []

    def body() -> None:
        machine.scheduler.sleep_ns(NS_PER_S)
        seen.append((current_thread().name, get_ident()))

    def main() -> None:
        thread = Thread(target=body, name="worker")
        assert not thread.is_alive()
        thread.start()
        thread.join(0.1)
        assert thread.is_alive()
        assert thread in enumerate_threads()
        thread.join()
        assert not thread.is_alive()
        assert seen == [("worker", thread.ident)]
        assert current_thread().name == "MainThread"

    machine.run(main)


def test_each_thread_has_its_own_values(machine: Machine) -> None:
    local = Local()
    seen: list[Any] = []

    def worker(number: int) -> None:
        local.number = number
        machine.scheduler.sleep_ns(1000)
        seen.append(local.number == number)

    def main() -> None:
        threads = [Thread(target=worker, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not hasattr(local, "number")

    machine.run(main)
    assert seen == [True] * 3


def test_a_wake_up_is_not_lost_to_a_task_whose_time_is_up(make_machine: Callable[..., Machine]) -> None:
    for seed in range(60):
        machine = make_machine(seed, Pace(1.0, 0.0, 1))
        lock = Lock()
        taken: list[bool] = []

        def holder(machine: Machine = machine, lock: Lock = lock) -> None:
            with lock:
                machine.scheduler.sleep_ns(1_000_000)

        def impatient(lock: Lock = lock) -> None:
            if lock.acquire(timeout=0.001):
                lock.release()

        def patient(lock: Lock = lock, taken: list[bool] = taken) -> None:
            taken.append(lock.acquire())
            lock.release()

        machine.run(holder, impatient, patient)
        assert taken == [True]
