"""When the cleaner gives way to requests."""

from __future__ import annotations

import itertools

from barnabas.broker.storage.cleaner import CleaningAbortedError
from barnabas.broker.storage.courtesy import PAUSE_MS, SLICE_NS, Courtesy, no_traffic
from barnabas.common.clock import FakeClock
from tests.broker.storage.test_log_cleaner import Room, values

SLICE_MS = 1  # a fake clock counts whole milliseconds


class Traffic:
    """A count of requests, and of who asked for it."""

    def __init__(self) -> None:
        self.count = 0
        self.asked = 0

    def __call__(self) -> int:
        self.asked += 1
        return self.count


def test_the_count_is_asked_once_a_slice() -> None:
    assert SLICE_MS * 1_000_000 >= SLICE_NS
    clock, traffic = FakeClock(), Traffic()
    clock.advance_ms(1000)
    courtesy = Courtesy(traffic, clock)
    courtesy.begin()
    for _ in range(100):
        assert courtesy.pause_ms() == 0
    assert traffic.asked == 0
    clock.advance_ms(SLICE_MS)
    assert courtesy.pause_ms() == 0
    assert traffic.asked == 1


def test_there_is_a_pause_after_each_slice_in_which_or_since_which_a_request_came() -> None:
    clock, traffic = FakeClock(), Traffic()
    courtesy = Courtesy(traffic, clock)
    for came, pause_ms in ((0, 0), (1, PAUSE_MS), (0, 0), (5, PAUSE_MS), (1, PAUSE_MS), (0, 0)):
        courtesy.begin()
        traffic.count += came
        clock.advance_ms(SLICE_MS)
        assert courtesy.pause_ms() == pause_ms
    courtesy.begin()
    clock.advance_ms(SLICE_MS)
    assert courtesy.pause_ms() == 0
    traffic.count += 1
    assert courtesy.pause_ms() == 0, "a slice has begun by itself"


def test_a_broker_without_requests_is_cleaned_without_pauses() -> None:
    clock = FakeClock()
    courtesy = Courtesy(no_traffic, clock)
    for _ in range(10):
        clock.advance_ms(SLICE_MS)
        assert courtesy.pause_ms() == 0


class PassingClock(FakeClock):
    """Each look at it takes longer than a slice."""

    def monotonic_ns(self) -> int:
        self.advance_ms(1)
        return super().monotonic_ns()


def test_a_round_on_a_busy_broker_pauses_and_can_be_ended_in_a_pause() -> None:
    room = Room(clock=PassingClock(), traffic=itertools.count().__next__)
    target = room.filled()
    waits: list[float] = []

    def end(wait_ms: float) -> None:
        if wait_ms:
            raise CleaningAbortedError("the broker stops")

    assert room.cleaner.clean_filthiest(end) is None
    assert room.cleaner.clean_filthiest(waits.append) is not None
    assert PAUSE_MS in waits
    assert values(target) == ["27", "28", "29"]
