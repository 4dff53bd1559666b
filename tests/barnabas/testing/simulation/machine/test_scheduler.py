"""Tests scheduler.py, process.py and digest.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.testing.simulation.machine import times
from barnabas.testing.simulation.machine.locks import Lock
from barnabas.testing.simulation.machine.scheduler import NS_PER_S, Pace, Reason, SimulationError
from tests.barnabas.testing.simulation.machine.conftest import Machine


def racing(machine: Machine) -> tuple[list[int], str]:
    """The order in which two tasks got through their points, and the digest."""
    order: list[int] = []

    def worker(number: int) -> Callable[[], None]:
        def body() -> None:
            for _ in range(20):
                machine.scheduler.point()
                order.append(number)

        return body

    machine.run(worker(1), worker(2))
    return order, machine.scheduler.digest.hex()


def test_the_same_seed_gives_the_same_history(make_machine: Callable[..., Machine]) -> None:
    assert racing(make_machine(7)) == racing(make_machine(7))


def test_other_seeds_give_other_histories(make_machine: Callable[..., Machine]) -> None:
    pace = Pace(2.0, 0.0, 1)
    histories = {racing(make_machine(seed, pace))[1] for seed in range(20)}
    assert len(histories) == 20


def test_time_passes_only_when_all_wait(machine: Machine) -> None:
    seen: list[int] = []

    def sleeper() -> None:
        machine.scheduler.sleep_ns(3600 * NS_PER_S)
        seen.append(machine.scheduler.now_ns)

    machine.run(sleeper)
    assert 3600 * NS_PER_S <= seen[0] < 3601 * NS_PER_S


def test_a_wake_up_and_a_deadline_are_told_apart(machine: Machine) -> None:
    results: list[bool] = []

    def waiting() -> None:
        task = machine.scheduler.current
        assert task is not None
        machine.scheduler.call_at(5_000, lambda: machine.scheduler.wake(task))
        results.append(machine.scheduler.park(Reason("a"), NS_PER_S))
        results.append(machine.scheduler.park(Reason("b"), 2 * NS_PER_S))

    machine.run(waiting)
    assert results == [True, False]


def test_a_paused_process_gets_no_turn_and_keeps_its_wake_ups(machine: Machine) -> None:
    seen: list[int] = []
    paused = machine.process()

    def sleeper() -> None:
        machine.scheduler.sleep_ns(NS_PER_S)
        seen.append(machine.scheduler.now_ns // NS_PER_S)

    def main() -> None:
        machine.scheduler.spawn(paused, "sleeper", sleeper)
        machine.scheduler.pause(paused)
        machine.scheduler.sleep_ns(5 * NS_PER_S)
        assert seen == []
        machine.scheduler.resume(paused)
        machine.scheduler.sleep_ns(5 * NS_PER_S)

    machine.run(main)
    assert seen == [6] or seen == [5]


def test_a_killed_process_runs_nothing_more(machine: Machine) -> None:
    seen: list[str] = []
    victim = machine.process()

    def body() -> None:
        try:
            machine.scheduler.sleep_ns(NS_PER_S)
        finally:
            seen.append("its finally block")

    def main() -> None:
        machine.scheduler.spawn(victim, "body", body)
        machine.scheduler.sleep_ns(1_000_000)
        victim.kill()
        machine.scheduler.sleep_ns(5 * NS_PER_S)
        assert seen == []

    machine.run(main)


def test_a_process_can_kill_itself(machine: Machine) -> None:
    seen: list[str] = []
    victim = machine.process()

    def body() -> None:
        victim.kill()
        seen.append("after its end")

    def main() -> None:
        machine.scheduler.spawn(victim, "body", body)
        machine.scheduler.sleep_ns(NS_PER_S)

    machine.run(main)
    assert seen == []


def test_a_circle_of_locks_is_told(machine: Machine) -> None:
    first, second = Lock(), Lock()

    def taking(one: Lock, other: Lock) -> Callable[[], None]:
        def body() -> None:
            with one:
                machine.scheduler.sleep_ns(1000)
                with other:
                    pass

        return body

    with pytest.raises(SimulationError, match=r"(?s)a deadlock:.*waits for a lock of .*test_scheduler.py"):
        machine.run(taking(first, second), taking(second, first))


def test_a_run_that_can_never_go_on_is_told(machine: Machine) -> None:
    def body() -> None:
        machine.scheduler.park(Reason("Godot"))

    with pytest.raises(SimulationError, match=r"(?s)nothing can ever happen again.*waits for Godot"):
        machine.scheduler.run(machine.process(), body)


def test_a_loop_that_polls_the_clock_ends(machine: Machine) -> None:
    def body() -> None:
        while machine.scheduler.now_ns < 1_000_000:
            machine.scheduler.point()

    machine.run(body, body)


def test_the_exception_of_the_main_task_is_raised_and_those_of_others_are_kept(machine: Machine) -> None:
    def failing() -> None:
        raise ValueError("of another task")

    def main() -> None:
        machine.scheduler.spawn(machine.process(), "other", failing)
        machine.scheduler.sleep_ns(NS_PER_S)
        raise KeyError("of main")

    with pytest.raises(KeyError, match="of main"):
        machine.scheduler.run(machine.process(), main)
    assert "ValueError: of another task" in machine.scheduler.failures[0]


def test_code_outside_of_tasks_must_not_wait(machine: Machine) -> None:
    lock = Lock()
    lock.acquire()
    with pytest.raises(SimulationError, match="outside of the simulation"):
        lock.acquire()


def test_tasks_that_start_each_other_do_not_nest(machine: Machine) -> None:
    started: list[int] = []

    def starting(number: int, depth: int = 20) -> None:
        if depth:
            starting(number, depth - 1)
        elif number:
            started.append(number)
            machine.scheduler.spawn(machine.process(), "next", lambda: starting(number - 1))
            machine.scheduler.sleep_ns(1000 * NS_PER_S)

    def main() -> None:
        starting(200)

    machine.run(main)
    assert len(started) == 200


def test_the_lowest_free_descriptor_is_used(machine: Machine) -> None:
    class Opened:
        def __init__(self) -> None:
            self.releases = 0

        def release(self) -> None:
            self.releases += 1

    process = machine.process()
    opened = [Opened() for _ in range(3)]
    numbers = [process.open(each) for each in opened]
    process.close(numbers[1])
    assert process.open(Opened()) == numbers[1]
    again = process.open(opened[0])
    process.close(numbers[0])
    assert opened[0].releases == 0
    process.close(again)
    assert [each.releases for each in opened] == [1, 1, 0]
    with pytest.raises(OSError, match="is not open"):
        process.find(again)


def test_an_observer_belongs_to_a_process_and_never_waits(machine: Machine) -> None:
    process = machine.process()

    def body() -> None:
        lock = Lock()
        with machine.scheduler.observing(process):
            assert times.monotonic_ns() == process.monotonic_ns()
            with lock:
                assert lock.locked()
        with lock, machine.scheduler.observing(process), pytest.raises(SimulationError, match="outside of"):
            lock.acquire()

    machine.run(body)


def test_the_first_turn_of_each_task_begins_with_a_function(machine: Machine) -> None:
    machine.scheduler.on_first_turn = lambda: order.append("first")
    order: list[str] = []
    machine.run(lambda: order.append("body"))
    assert order == ["first", "first", "body"]
