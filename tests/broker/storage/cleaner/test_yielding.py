"""The cleaner yields to request threads: it pauses after a slice in which a request came."""

from __future__ import annotations

import itertools

from barnabas.broker.storage.cleaner.cleaner import CleaningAbortedError
from barnabas.broker.storage.cleaner.yielding import PAUSE_MS, SLICE_NS, Yielding, no_traffic
from barnabas.common.clock import FakeClock
from tests.broker.storage.cleaner.test_log_cleaner import CleanerRig, values

SLICE_MS = 1  # a fake clock counts whole milliseconds


class Traffic:
    """A count of requests, and of its reads."""

    def __init__(self) -> None:
        self.count = 0
        self.reads = 0

    def __call__(self) -> int:
        self.reads += 1
        return self.count


def test_the_traffic_is_read_once_a_slice() -> None:
    assert SLICE_MS * 1_000_000 >= SLICE_NS
    clock, traffic = FakeClock(), Traffic()
    clock.advance_ms(1000)
    yielding = Yielding(traffic, clock)
    yielding.begin()
    for _ in range(100):
        assert yielding.pause_ms() == 0
    assert traffic.reads == 0
    clock.advance_ms(SLICE_MS)
    assert yielding.pause_ms() == 0
    assert traffic.reads == 1


def test_a_pause_follows_each_slice_during_or_since_which_a_request_came() -> None:
    clock, traffic = FakeClock(), Traffic()
    yielding = Yielding(traffic, clock)
    for came, pause_ms in ((0, 0), (1, PAUSE_MS), (0, 0), (5, PAUSE_MS), (1, PAUSE_MS), (0, 0)):
        yielding.begin()
        traffic.count += came
        clock.advance_ms(SLICE_MS)
        assert yielding.pause_ms() == pause_ms
    yielding.begin()
    clock.advance_ms(SLICE_MS)
    assert yielding.pause_ms() == 0
    traffic.count += 1
    assert yielding.pause_ms() == 0, "a new slice has begun"


def test_a_broker_without_requests_is_cleaned_without_pauses() -> None:
    clock = FakeClock()
    yielding = Yielding(no_traffic, clock)
    for _ in range(10):
        clock.advance_ms(SLICE_MS)
        assert yielding.pause_ms() == 0


class PassingClock(FakeClock):
    """A clock on which each read takes longer than a slice."""

    def monotonic_ns(self) -> int:
        self.advance_ms(1)
        return super().monotonic_ns()


def test_a_round_on_a_busy_broker_pauses_and_can_be_ended_in_a_pause() -> None:
    rig = CleanerRig(clock=PassingClock(), traffic=itertools.count().__next__)
    target = rig.filled()
    waits: list[float] = []

    def end(wait_ms: float) -> None:
        if wait_ms:
            raise CleaningAbortedError("the broker stops")

    assert rig.cleaner.clean_filthiest(end) is None
    assert rig.cleaner.clean_filthiest(waits.append) is not None
    assert PAUSE_MS in waits
    assert values(target) == ["27", "28", "29"]
