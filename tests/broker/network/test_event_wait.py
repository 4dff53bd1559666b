"""How a processor waits: asleep at first, spinning once its client has come back soon many times in a row."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.network.busy_poll import STREAK, BusyPollTurn
from barnabas.broker.network.event_wait import EventWait
from barnabas.broker.network.network_metrics import IdleMeter
from barnabas.broker.network.selector import EdgeSelector
from barnabas.broker.request_channel import RequestQueue, ResponseQueue
from barnabas.common.clock import FakeClock

MAX_NS = 100_000
STEP_NS = 1_000


class WaitBench:
    """A wait with its environment: time advances by a step at each reading of the clock."""

    def __init__(self) -> None:
        self.selector = EdgeSelector()
        self.requests = RequestQueue(10)
        self.responses = ResponseQueue(self.selector.wake)
        self.turn = BusyPollTurn(MAX_NS)
        self.clock = FakeClock()
        self.readings = 0
        self.then: Callable[[], None] | None = None  # called at the third reading
        idle = IdleMeter(self.clock)
        self.wait = EventWait(self.selector, self.requests, self.responses, self.turn, idle, self.now_ns)

    def now_ns(self) -> int:
        self.readings += 1
        if self.readings == 3 and self.then is not None:
            self.then()
        return self.readings * STEP_NS

    def events(self, timeout_s: float = 0) -> int:
        """Return how many events a wait brings."""
        assert self.responses.may_sleep()
        return len(self.wait.for_events(self.now_ns(), timeout_s))

    def become_awake(self) -> None:
        """Make the client come back soon so often that it is expected."""
        for _ in range(STREAK):
            self.selector.wake()
            assert self.events() == 1
        self.readings = 0

    def leave_a_request_in_progress(self) -> None:
        queue: Any = self.requests.queue
        queue.append(object())


@pytest.fixture
def bench() -> Iterator[WaitBench]:
    bench = WaitBench()
    yield bench
    bench.selector.close()


def test_it_sleeps_in_the_selector(bench: WaitBench) -> None:
    bench.then = bench.selector.wake  # at a reading that does not happen
    assert bench.events() == 0
    assert bench.readings <= 3


def test_it_spins_for_an_expected_client(bench: WaitBench) -> None:
    bench.become_awake()
    bench.then = bench.selector.wake
    assert bench.events(timeout_s=60) == 1
    assert bench.turn.holder is not None


def test_it_spins_no_longer_than_the_maximum(bench: WaitBench) -> None:
    bench.become_awake()
    assert bench.events() == 0
    assert MAX_NS <= bench.readings * STEP_NS < 2 * MAX_NS
    assert bench.turn.holder is None, "one spin in vain ends the streak"


def test_it_lets_another_processor_spin(bench: WaitBench) -> None:
    bench.become_awake()
    bench.then = bench.selector.wake
    bench.events()
    bench.wait.stop()
    assert bench.turn.holder is None


def test_it_spins_for_an_answer(bench: WaitBench) -> None:
    bench.become_awake()
    bench.leave_a_request_in_progress()
    answers: Any = bench.responses.queue
    bench.then = lambda: answers.append(object())
    assert bench.wait.for_answer() == []
    assert bench.readings < 10, "it came at the third reading"


def test_events_before_the_answer_are_returned(bench: WaitBench) -> None:
    bench.become_awake()
    bench.leave_a_request_in_progress()
    bench.then = bench.selector.wake
    assert len(bench.wait.for_answer()) == 1


@pytest.mark.parametrize("is_awake", [False, True])
def test_it_does_not_spin_for_an_answer_without_reason(bench: WaitBench, is_awake: bool) -> None:
    if is_awake:
        bench.become_awake()  # but no request is in progress
    else:
        bench.leave_a_request_in_progress()
    bench.readings = 0
    assert bench.wait.for_answer() == []
    assert bench.readings == 0


def test_while_a_response_is_sent_another_processor_may_spin(bench: WaitBench) -> None:
    near, far = socket.socketpair()
    bench.become_awake()
    assert bench.wait.for_answer() == []
    bench.turn.holder = None
    bench.leave_a_request_in_progress()
    bench.selector.wake()
    bench.wait.for_answer()
    assert bench.turn.holder is not None
    bench.wait.while_sending(bench.now_ns(), 0, [near.fileno()], [[b"rest"]])
    assert bench.turn.holder is None
    near.close()
    far.close()
