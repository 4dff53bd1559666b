"""Where a processor waits: asleep at first, awake once its client has come back soon many times in a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.busy_poll import STREAK, BusyPollTurn
from barnabas.broker.event_wait import EventWait
from barnabas.broker.network_metrics import IdleMeter
from barnabas.broker.request_channel import RequestQueue, ResponseQueue
from barnabas.broker.selector import EdgeSelector
from barnabas.common.clock import FakeClock

MAX_NS = 100_000
STEP_NS = 1_000


class Room:
    """The surroundings of a wait: time goes on by a step whenever somebody looks at the clock."""

    def __init__(self) -> None:
        self.selector = EdgeSelector()
        self.requests = RequestQueue(10)
        self.responses = ResponseQueue(self.selector.wake)
        self.turn = BusyPollTurn(MAX_NS)
        self.clock = FakeClock()
        self.looks = 0
        self.then: Callable[[], None] | None = None  # what happens at the third look
        idle = IdleMeter(self.clock)
        self.wait = EventWait(self.selector, self.requests, self.responses, self.turn, idle, self.now_ns)

    def now_ns(self) -> int:
        self.looks += 1
        if self.looks == 3 and self.then is not None:
            self.then()
        return self.looks * STEP_NS

    def events(self, timeout_s: float = 0) -> int:
        """How many events a wait brings."""
        assert self.responses.may_sleep()
        return len(self.wait.for_events(self.now_ns(), timeout_s))

    def become_awake(self) -> None:
        """Let the client come back soon so often that it is expected."""
        for _ in range(STREAK):
            self.selector.wake()
            assert self.events() == 1
        self.looks = 0

    def leave_a_request_in_hand(self) -> None:
        queue: Any = self.requests.queue
        queue.append(object())


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    room.selector.close()


def test_it_sleeps_in_the_selector(room: Room) -> None:
    room.then = room.selector.wake  # at a look that nobody takes
    assert room.events() == 0
    assert room.looks <= 3


def test_an_expected_client_is_looked_for(room: Room) -> None:
    room.become_awake()
    room.then = room.selector.wake
    assert room.events(timeout_s=60) == 1
    assert room.turn.holder is not None


def test_it_is_not_looked_for_longer_than_that(room: Room) -> None:
    room.become_awake()
    assert room.events() == 0
    assert MAX_NS <= room.looks * STEP_NS < 2 * MAX_NS
    assert room.turn.holder is None, "one time in vain ends it"


def test_it_leaves_staying_awake_to_others(room: Room) -> None:
    room.become_awake()
    room.then = room.selector.wake
    room.events()
    room.wait.stop()
    assert room.turn.holder is None


def test_an_answer_is_looked_for(room: Room) -> None:
    room.become_awake()
    room.leave_a_request_in_hand()
    answers: Any = room.responses.queue
    room.then = lambda: answers.append(object())
    assert room.wait.for_answer() == []
    assert room.looks < 10, "it came at the third look"


def test_what_comes_before_the_answer_is_told(room: Room) -> None:
    room.become_awake()
    room.leave_a_request_in_hand()
    room.then = room.selector.wake
    assert len(room.wait.for_answer()) == 1


@pytest.mark.parametrize("is_awake", [False, True])
def test_no_answer_is_looked_for_without_reason(room: Room, is_awake: bool) -> None:
    if is_awake:
        room.become_awake()  # but no request is in hand
    else:
        room.leave_a_request_in_hand()
    room.looks = 0
    assert room.wait.for_answer() == []
    assert room.looks == 0
