"""When a ticket is renewed, and what happens when it cannot be."""

from __future__ import annotations

import logging
import threading

import pytest

from barnabas.common.clock import FakeClock
from barnabas.security.sasl.gssapi.errors import GssError
from barnabas.security.sasl.gssapi.library import Ticket
from barnabas.security.sasl.gssapi.tickets import RETRY_MS, KeytabTickets, Renewal

LIFE_MS = 100_000
MIN_MS = 5_000
WAIT_S = 60


class Kdc:
    """Gives tickets that count up."""

    def __init__(self) -> None:
        self.asked = 0
        self.lifetime_ms = LIFE_MS
        self.error: GssError | None = None

    def __call__(self) -> Ticket:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Ticket(self.asked, self.lifetime_ms)


class Rig:
    """Tickets with a clock."""

    def __init__(self, window: float = 0.8, jitter: float = 0.1, chance: float = 0.5) -> None:
        self.clock = FakeClock()
        self.kdc = Kdc()
        self.tickets = KeytabTickets(self.kdc, self.clock, Renewal(window, jitter, MIN_MS), lambda: chance)

    def after(self, ms: int) -> int:
        self.clock.advance_ms(ms)
        number: int = self.tickets().credentials
        return number


def test_a_ticket_is_used_for_its_share_of_its_life() -> None:
    rig = Rig()
    assert [rig.after(0), rig.after(84_999), rig.after(1), rig.after(84_999), rig.after(1)] == [1, 1, 2, 2, 3]
    assert rig.kdc.asked == 3


def test_a_share_above_one_is_the_whole_life() -> None:
    rig = Rig(window=1.5)
    assert [rig.after(0), rig.after(LIFE_MS - 1), rig.after(1)] == [1, 1, 2]


def test_without_a_ticket_the_kdcs_reason_is_shown_and_the_kdc_spared() -> None:
    rig = Rig()
    rig.kdc.error = GssError("no KDC")
    for _ in range(3):
        with pytest.raises(GssError, match="no KDC"):
            rig.tickets()
    assert rig.kdc.asked == 1
    rig.kdc.error = None
    assert rig.after(RETRY_MS) == 2


def test_a_kdc_that_does_not_answer_keeps_one_login_waiting_not_each_in_turn() -> None:
    clock, asked = FakeClock(), []

    def get() -> Ticket:
        asked.append(clock.monotonic_ms())
        clock.advance_ms(30_000)
        raise GssError("no KDC answers")

    tickets = KeytabTickets(get, clock, Renewal(0.8, 0, MIN_MS))
    for _ in range(3):  # those that waited for the first one come now
        with pytest.raises(GssError, match="no KDC answers"):
            tickets()
    assert len(asked) == 1


def test_a_good_ticket_outlives_failed_renewals(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig()
    assert rig.after(0) == 1
    rig.kdc.error = GssError("no KDC")
    with caplog.at_level(logging.WARNING, "barnabas.sasl"):
        assert [rig.after(90_000), rig.after(MIN_MS - 1), rig.after(1)] == [1, 1, 1]
    assert rig.kdc.asked == 3
    assert [record.getMessage() for record in caplog.records] == [
        "the Kerberos ticket could not be renewed, and ends in 10 s: no KDC",
        "the Kerberos ticket could not be renewed, and ends in 5 s: no KDC",
    ]
    with pytest.raises(GssError):
        rig.after(5_000)
    rig.kdc.error = None
    assert rig.after(RETRY_MS) == 5


def test_a_ticket_that_libkrb5_had_kept_is_no_progress() -> None:
    rig = Rig(window=0.2)
    assert rig.after(0) == 1
    rig.kdc.lifetime_ms = LIFE_MS - 40_000
    assert [rig.after(40_000), rig.after(MIN_MS - 1)] == [1, 1]
    assert rig.kdc.asked == 2
    rig.kdc.lifetime_ms = LIFE_MS
    assert rig.after(1) == 3


def test_a_clock_that_is_set_forward_ends_a_ticket() -> None:
    rig = Rig()
    assert rig.after(0) == 1
    assert rig.after(LIFE_MS * 3) == 2


def test_one_thread_asks_while_others_use_the_last_ticket() -> None:
    clock = FakeClock()
    asking, answered = threading.Event(), threading.Event()
    asked = []

    def get() -> Ticket:
        asked.append(threading.get_ident())
        if len(asked) > 1:
            asking.set()
            assert answered.wait(WAIT_S)
        return Ticket(len(asked), LIFE_MS)

    tickets = KeytabTickets(get, clock, Renewal(0.5, 0, 0))
    assert tickets().credentials == 1
    clock.advance_ms(LIFE_MS // 2)
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(tickets().credentials))
    thread.start()
    assert asking.wait(WAIT_S)
    assert tickets().credentials == 1
    answered.set()
    thread.join()
    assert found == [2]
    assert tickets().credentials == 2
    assert len(asked) == 2
