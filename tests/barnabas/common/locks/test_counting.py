"""Locks that count: what they count, beside other threads and in conditions, and what the ended ones leave."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from barnabas.common.clock import NS_PER_S, FakeClock
from barnabas.common.locks.counting import CountedLock, CountedRLock, LockTally, Totals
from tests.support.waiting import eventually

TIMEOUT_S = 60

Make = Callable[[str, LockTally], CountedLock]


def plain(name: str, tally: LockTally) -> CountedLock:
    return CountedLock(name, tally, threading.Lock())


def reentrant(name: str, tally: LockTally) -> CountedLock:
    return CountedRLock(name, tally, threading.RLock())


class Asked:
    """A clock that tells when it is asked: a thread asks it once before it waits for a lock, and once after."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.times = 0

    def now_ns(self) -> int:
        self.times += 1
        return self.clock.monotonic_ns()


@pytest.fixture
def asked() -> Asked:
    return Asked()


@pytest.fixture
def tally(asked: Asked) -> LockTally:
    return LockTally(asked.now_ns)


@contextmanager
def beside(work: Callable[[], object]) -> Iterator[None]:
    """Run `work` on another thread meanwhile."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    yield
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("make", [plain, reentrant])
def test_a_free_lock_is_taken_without_contention(make: Make, tally: LockTally, asked: Asked) -> None:
    lock = make("x", tally)
    with lock:
        assert tally.totals() == {"x": Totals(1, 0, 0.0)}
    assert lock.acquire(timeout=1)
    lock.release()
    assert tally.totals() == {"x": Totals(2, 0, 0.0)}
    assert asked.times == 0  # no clock is read


@pytest.mark.parametrize("make", [plain, reentrant])
def test_a_wait_is_counted(make: Make, tally: LockTally, asked: Asked) -> None:
    lock = make("x", tally)

    def wait() -> None:
        with lock:
            pass

    lock.acquire()
    with beside(wait):
        eventually("the other thread waits", lambda: asked.times == 1)
        asked.clock.advance_ms(3000)
        lock.release()
    assert tally.totals() == {"x": Totals(2, 1, 3.0)}


def test_what_was_not_taken_is_not_counted(tally: LockTally) -> None:
    lock = plain("x", tally)
    with lock:
        assert lock.locked()
        assert not lock.acquire(blocking=False)
        assert not lock.acquire(timeout=0.001)
    assert not lock.locked()
    assert tally.totals() == {"x": Totals(1, 0, 0.0)}


def test_misuse_is_that_of_a_plain_lock(tally: LockTally) -> None:
    lock = plain("x", tally)
    with pytest.raises(RuntimeError):
        lock.release()
    with pytest.raises(ValueError, match="timeout"):
        lock.acquire(False, 1)
    assert not lock.locked()


def test_a_lock_may_be_taken_again_by_its_owner(tally: LockTally) -> None:
    lock = reentrant("x", tally)
    with lock, lock:
        pass
    assert tally.totals() == {"x": Totals(2, 0, 0.0)}


@pytest.mark.parametrize("make", [plain, reentrant])
def test_a_condition_uses_it(make: Make, tally: LockTally) -> None:
    lock = make("x", tally)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    waiting, woken = threading.Event(), threading.Event()

    def wait() -> None:
        with condition:
            waiting.set()
            assert condition.wait(TIMEOUT_S)
            woken.set()

    with beside(wait):
        assert waiting.wait(TIMEOUT_S)
        with condition:  # only while the other thread waits for the notification
            condition.notify()
    assert woken.is_set()
    assert tally.totals()["x"].taken == 3  # the waiting thread takes it a second time when it goes on


def test_a_condition_gives_back_a_lock_that_is_held_twice(tally: LockTally, asked: Asked) -> None:
    lock = reentrant("x", tally)
    condition = threading.Condition(lock)  # type: ignore[arg-type]
    waiting = threading.Event()

    def wait() -> None:
        with condition, condition:
            waiting.set()
            assert condition.wait(TIMEOUT_S)
        assert not lock._is_owned()  # type: ignore[attr-defined]

    with beside(wait):
        assert waiting.wait(TIMEOUT_S)
        with condition:
            condition.notify()
            eventually("the other thread wants the lock back", lambda: asked.times >= 1)
    assert tally.totals()["x"].contended >= 1


def test_locks_of_a_name_count_together_and_ended_ones_stay_counted(tally: LockTally) -> None:
    first, second, other = plain("x", tally), plain("x", tally), plain("y", tally)
    for lock in (first, second, second, other):
        with lock:
            pass
    expected = {"x": Totals(3, 0, 0.0), "y": Totals(1, 0, 0.0)}
    assert tally.totals() == expected
    del first, second, other, lock
    gc.collect()
    assert tally.totals() == expected
    assert tally.living() == 0


def test_ten_thousand_ended_locks_leave_nothing_but_their_sum(tally: LockTally) -> None:
    for _ in range(10_000):
        with plain("x", tally):
            pass
    gc.collect()
    assert len(tally._ended) <= 2  # each new lock adds up those that ended before it
    assert tally.totals() == {"x": Totals(10_000, 0, 0.0)}
    assert tally.living() == 0


def test_a_lock_may_end_while_the_tally_is_held(tally: LockTally) -> None:
    lock = plain("x", tally)
    with lock:
        pass
    with tally._lock:  # as if the collector of garbage ran there
        del lock
        gc.collect()
    assert tally.totals() == {"x": Totals(1, 0, 0.0)}


def test_no_acquisition_is_lost(asked: Asked) -> None:
    tally = LockTally(asked.clock.monotonic_ns)
    lock = plain("x", tally)
    start = threading.Barrier(4)

    def work() -> None:
        start.wait(TIMEOUT_S)
        for _ in range(2000):
            with lock:
                pass

    with beside(work), beside(work), beside(work), beside(work):
        pass
    assert tally.totals()["x"].taken == 8000


def test_the_wait_is_told_in_seconds(tally: LockTally) -> None:
    lock = plain("x", tally)
    lock._counts.waited_ns = NS_PER_S // 2
    assert tally.totals()["x"].waited_s == 0.5
