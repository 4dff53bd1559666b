"""The share of time for connections that are not authenticated, on a fake clock."""

from __future__ import annotations

from barnabas.broker.network.unauthenticated.share import (
    FULL_PERCENT,
    IDLE_NS,
    LOOK_AGAIN_NS,
    MEASURE_NS,
    PORTION_NS,
    SAVED_NS,
    CpuTime,
    Share,
)
from barnabas.common.clock import NS_PER_MS, FakeClock


class Rig:
    """A share of at least 10 %, and a process that always has requests, and needs all of a core for them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.idle = False
        self.taken_ns = self.clock.monotonic_ns()
        self.used_ns = 0
        self.share = Share(10, self, self.clock.monotonic_ns, CpuTime(lambda: 0, lambda: self.used_ns))

    def is_idle(self) -> bool:
        return self.idle

    def last_take_ns(self) -> int:
        return self.taken_ns

    def pass_time(self, ns: int, used_percent: int = 100) -> None:
        self.clock.advance_ns(ns)
        self.used_ns += ns * used_percent // 100
        if not self.idle:
            self.taken_ns = self.clock.monotonic_ns()

    def begin(self, used_percent: int = 100) -> None:
        """Let it measure what requests use, and spend all that is saved."""
        self.share.wait_ns()
        self.pass_time(MEASURE_NS, used_percent)
        self.share.wait_ns()
        self.work(SAVED_NS)
        assert self.share.wait_ns() > 0

    def work(self, ns: int) -> None:
        self.used_ns += ns
        self.share.charge(ns)

    def run(self, ns: int, piece_ns: int, used_percent: int = 100) -> int:
        """Work in pieces whenever it is allowed; return the time worked."""
        worked_ns = 0
        end_ns = self.clock.monotonic_ns() + ns
        while self.clock.monotonic_ns() < end_ns:
            wait_ns = self.share.wait_ns()
            if wait_ns:
                self.pass_time(wait_ns, used_percent)
                continue
            self.clock.advance_ns(piece_ns)
            self.work(piece_ns)
            worked_ns += piece_ns
        return worked_ns


def test_beside_requests_it_is_a_tenth() -> None:
    for piece_ns in (NS_PER_MS // 10, NS_PER_MS, 3 * NS_PER_MS):
        rig = Rig()
        rig.begin()
        worked_ns = rig.run(2_000 * NS_PER_MS, piece_ns)
        assert 180 * NS_PER_MS <= worked_ns <= 205 * NS_PER_MS


def test_a_single_login_does_not_wait() -> None:
    rig = Rig()
    rig.begin()
    rig.pass_time(100 * SAVED_NS)
    for _ in range(5):
        assert rig.share.wait_ns() == 0
        rig.work(SAVED_NS // 6)
    assert rig.share.wait_ns() == 0


def test_after_its_end_nothing_is_done_before_there_is_a_portion() -> None:
    rig = Rig()
    rig.begin()
    waited_ns = 0
    while wait_ns := rig.share.wait_ns():
        assert wait_ns <= LOOK_AGAIN_NS
        rig.pass_time(wait_ns)
        waited_ns += wait_ns
    assert waited_ns >= 10 * PORTION_NS
    rig.work(PORTION_NS // 2)
    assert rig.share.wait_ns() == 0
    rig.work(PORTION_NS // 2 + 1)
    assert rig.share.wait_ns() > 0


def test_without_requests_the_work_is_free() -> None:
    rig = Rig()
    rig.begin()
    rig.idle = True
    rig.pass_time(IDLE_NS - 1, 0)
    rig.share.charge(1000 * SAVED_NS)
    assert rig.share.wait_ns() > 0
    rig.pass_time(1, 0)
    for _ in range(100):
        rig.share.charge(SAVED_NS)
        assert rig.share.wait_ns() == 0
    rig.idle = False
    assert rig.share.wait_ns() > 0, "the work before was not free"


def test_it_grows_with_what_requests_leave() -> None:
    rig = Rig()
    rig.idle = True  # at the moments when it is asked; requests came just before
    rig.begin(20)
    worked_ns = 0
    began_ns = rig.clock.monotonic_ns()
    for _ in range(20):
        rig.taken_ns = rig.clock.monotonic_ns()
        worked_ns += rig.run(MEASURE_NS, NS_PER_MS, 20)
    took_ns = rig.clock.monotonic_ns() - began_ns
    assert FULL_PERCENT - 22 <= worked_ns * 100 // took_ns <= FULL_PERCENT - 10


def test_requests_that_get_no_time_count_as_well() -> None:
    """On a machine that does other work, a process uses little; its handlers are busy all the same."""
    rig = Rig()
    rig.begin(5)
    worked_ns = rig.run(1_000 * NS_PER_MS, NS_PER_MS, 5)
    assert worked_ns <= 105 * NS_PER_MS
