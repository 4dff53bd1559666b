"""Purgatories: an operation completes exactly once, by whichever thread comes first."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from barnabas.broker import purgatory as purgatory_module
from barnabas.broker.purgatory import Deferred, DelayedOperation, Purgatory
from barnabas.broker.requests.answers import NO_REPLY, NoReply, Outcome
from barnabas.common.clock import FakeClock, SystemClock


class Waiting(DelayedOperation):
    """Is satisfied once `is_ready` is true."""

    def __init__(self, delay_ms: int | None = 1000, is_ready: bool = False) -> None:
        super().__init__(delay_ms)
        self.is_ready = is_ready
        self.tries = 0
        self.completions = 0
        self.expirations = 0

    def try_complete(self) -> bool:
        self.tries += 1
        return self.is_ready and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1

    def on_expiration(self) -> None:
        self.expirations += 1

    def response(self) -> Outcome:
        return NO_REPLY


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def purgatory(clock: FakeClock) -> Purgatory:
    return Purgatory("Fetch", clock, purge_interval=10)


def test_a_satisfied_operation_is_not_watched(purgatory: Purgatory) -> None:
    operation = Waiting(is_ready=True)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.completions, purgatory.watched(), purgatory.delayed()) == (1, 0, 0)


def test_what_its_maker_has_tried_is_tried_once_more_when_it_is_watched(purgatory: Purgatory) -> None:
    waiting, changed = Waiting(), Waiting(is_ready=True)
    waiting.was_tried = changed.was_tried = True
    assert not purgatory.try_complete_else_watch(waiting, ["a"])
    assert purgatory.try_complete_else_watch(changed, ["a"]), "what changed meanwhile must not be missed"
    assert (waiting.tries, changed.tries, changed.completions) == (1, 1, 1)


def test_a_moved_key_completes_the_operations_that_wait_for_it(purgatory: Purgatory) -> None:
    first, second = Waiting(), Waiting()
    assert not purgatory.try_complete_else_watch(first, ["a", "b"])
    assert not purgatory.try_complete_else_watch(second, ["b"])
    assert (purgatory.watched(), purgatory.delayed()) == (3, 2)
    assert purgatory.check_and_complete("b") == 0
    first.is_ready = True
    assert purgatory.check_and_complete("unwatched") == 0
    assert purgatory.check_and_complete("b") == 1
    assert (first.completions, second.completions) == (1, 0)
    assert (purgatory.watched(), purgatory.delayed()) == (2, 1), "the first stays under its other key"
    assert purgatory.check_and_complete("a") == 0
    assert purgatory.watched() == 1


def test_of_several_moved_keys_an_operation_is_tried_once(purgatory: Purgatory) -> None:
    both, other = Waiting(), Waiting()
    purgatory.try_complete_else_watch(both, ["a", "b"])
    purgatory.try_complete_else_watch(other, ["b"])
    assert purgatory.check_all(["a", "unwatched", "b"]) == 0
    assert (both.tries, other.tries) == (3, 3)
    both.is_ready = other.is_ready = True
    assert purgatory.check_all(["a", "b"]) == 2
    assert (both.tries, other.tries) == (4, 4)
    assert (purgatory.watched(), purgatory.delayed()) == (0, 0)


def test_a_key_that_moved_often_is_looked_up_once(purgatory: Purgatory) -> None:
    """A client decides how often its request names a partition; the lock is not held for longer then."""

    class Counted(Waiting):
        lookups = 0

        def __hash__(self) -> int:
            self.lookups += 1
            return id(self)

    operation = Counted()
    purgatory.try_complete_else_watch(operation, ["a"])
    operation.lookups = 0
    purgatory.check_all(["a"])
    once = operation.lookups
    purgatory.check_all(["a"] * 100)
    assert operation.lookups == 2 * once


def test_a_bug_in_an_operation_holds_no_other_back(purgatory: Purgatory, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Waiting):
        def try_complete(self) -> bool:
            if self.is_ready:
                raise RuntimeError("our bug in trying")
            return super().try_complete()

    broken, sound = Broken(), Waiting()
    purgatory.try_complete_else_watch(broken, ["a"])
    purgatory.try_complete_else_watch(sound, ["a"])
    broken.is_ready = sound.is_ready = True
    assert purgatory.check_and_complete("a") == 1
    assert "our bug in trying" in caplog.text


def test_a_view_of_the_waiting_operations(purgatory: Purgatory, clock: FakeClock) -> None:
    """Oldest first, each once with its keys; bounded, without completed ones."""
    operations = [Waiting() for _ in range(5)]
    for number, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, ["a", number])
        clock.advance_ms(10)
    operations[0].force_complete()
    looked_at = purgatory.waiting(3)
    assert [operation for operation, _ in looked_at] == operations[1:4]
    assert set(looked_at[0][1]) == {"a", 1}
    assert looked_at[0][0].started_ms == clock.monotonic_ms() - 40
    assert [keys for _, keys in purgatory.waiting(10, lambda key: key == "a")] == [["a"]] * 4


def test_the_view_finds_operations_behind_completed_ones(clock: FakeClock) -> None:
    purgatory = Purgatory("Fetch", clock, purge_interval=1000)
    for _ in range(100):
        operation = Waiting()
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.force_complete()
    waiting = Waiting()
    purgatory.try_complete_else_watch(waiting, ["a"])
    assert purgatory.watched() == 101
    assert purgatory.waiting(5) == [(waiting, ["a"])]


def test_the_view_is_bounded_however_many_wait(purgatory: Purgatory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purgatory_module, "LOOKS_MAX", 20)
    for _ in range(60):
        purgatory.try_complete_else_watch(Waiting(), ["a"])
    assert len(purgatory.waiting(1000)) == 20
    assert len(purgatory.waiting(7)) == 7


def test_time_runs_out(purgatory: Purgatory, clock: FakeClock) -> None:
    operation = Waiting(delay_ms=500)
    purgatory.try_complete_else_watch(operation, ["a"])
    clock.advance_ms(499)
    assert purgatory.advance() == 0
    clock.advance_ms(1)
    assert purgatory.advance() == 1
    assert (operation.completions, operation.expirations) == (1, 1)
    operation.is_ready = True
    assert purgatory.check_and_complete("a") == 0
    assert purgatory.watched() == 0


@pytest.mark.parametrize("delay_ms", [0, -1, -(2**31)])
def test_no_delay_expires_at_once(purgatory: Purgatory, delay_ms: int) -> None:
    operation = Waiting(delay_ms)
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.completions, operation.expirations) == (1, 1)


def test_waits_without_end_and_with_the_longest_timeout(purgatory: Purgatory, clock: FakeClock) -> None:
    for_ever, longest = Waiting(None), Waiting(2**31 - 1)
    for operation in (for_ever, longest):
        assert not purgatory.try_complete_else_watch(operation, ["a"])
    assert purgatory.delayed() == 1
    clock.advance_ms(2**31 - 2)
    purgatory.advance()
    assert purgatory.delayed() == 1
    clock.advance_ms(1)
    purgatory.advance()
    assert (for_ever.expirations, longest.expirations) == (0, 1)


def test_a_change_between_the_tries_is_not_missed(purgatory: Purgatory) -> None:
    """Rule 3: the state changes after the first try, and its check comes before the operation is watched."""

    class Late(Waiting):
        def try_complete(self) -> bool:
            done = super().try_complete()
            self.is_ready = True
            return done

    operation = Late()
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert (operation.tries, operation.completions) == (2, 1)


def test_completed_operations_are_purged(purgatory: Purgatory) -> None:
    for _ in range(30):
        operation = Waiting()
        purgatory.try_complete_else_watch(operation, ["busy", "idle"])
        operation.is_ready = True
        purgatory.check_and_complete("busy")
    assert purgatory.watched() == 30
    purgatory.advance()
    assert (purgatory.watched(), purgatory.delayed()) == (0, 0)


def test_the_callback_is_called_once_whenever_it_is_bound(purgatory: Purgatory) -> None:
    called: list[DelayedOperation] = []
    early = Waiting()
    early.bind(called.append)
    assert called == []
    assert early.force_complete()
    assert not early.force_complete()
    late = Waiting()
    late.force_complete()
    late.bind(called.append)
    assert called == [early, late]
    with pytest.raises(AssertionError):
        late.bind(called.append)


def test_a_deferred_answer_comes_from_its_owner() -> None:
    deferred = Deferred()
    answer = NoReply()
    assert deferred.complete(answer)
    assert not deferred.complete(NoReply(5))
    assert deferred.response() is answer


def test_a_late_deferred_answer_is_replaced_by_the_timeouts(purgatory: Purgatory, clock: FakeClock) -> None:
    late = NoReply(1)
    deferred = Deferred(300, lambda: late)
    called: list[Any] = []
    deferred.bind(lambda operation: called.append(operation.response()))
    assert not purgatory.try_complete_else_watch(deferred, ())
    clock.advance_ms(300)
    purgatory.advance()
    assert called == [late]
    assert not deferred.complete(NO_REPLY)
    with pytest.raises(AssertionError, match="timeout"):
        Deferred(300)


def test_threads_complete_each_operation_exactly_once() -> None:
    """Many threads watch, check and expire the same operations; each completes, and calls back, once."""
    purgatory = Purgatory("Stress", SystemClock(), purge_interval=50)
    purgatory.start()
    told_lock = threading.Lock()
    called: list[DelayedOperation] = []
    made: list[Waiting] = []

    def tell(operation: DelayedOperation) -> None:
        with told_lock:
            called.append(operation)

    def work(number: int) -> None:
        for index in range(400):
            operation = Waiting(delay_ms=index % 7 + 1)
            operation.bind(tell)
            with told_lock:
                made.append(operation)
            purgatory.try_complete_else_watch(operation, [index % 5, (number, index % 3)])
            operation.is_ready = index % 3 == 0
            purgatory.check_and_complete(index % 5)
            if index % 11 == 0:
                operation.force_complete()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    finished = threading.Event()
    last = Waiting(delay_ms=50)
    last.bind(lambda _: finished.set())
    purgatory.try_complete_else_watch(last, ["last"])
    assert finished.wait(20), "all shorter delays end before this one"
    purgatory.shutdown()
    assert len(called) == len(made) == 2400
    assert {id(operation) for operation in called} == {id(operation) for operation in made}
    assert all(operation.completions == 1 and operation.expirations <= 1 for operation in made)
    assert purgatory.delayed() == 0
    assert not any("ExpirationReaper-0-Stress" in thread.name for thread in threading.enumerate())
