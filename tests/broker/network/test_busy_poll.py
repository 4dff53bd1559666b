"""Busy polling: when a processor spins instead of sleeping."""

from __future__ import annotations

from barnabas.broker.network.busy_poll import STREAK, BusyPoll, BusyPollTurn
from barnabas.protocol.errors import ErrorCode
from tests.support.broker.network import Network

MAX_NS = 100_000


def test_it_spins_after_many_short_waits_in_a_row() -> None:
    poll = BusyPoll(BusyPollTurn(MAX_NS))
    for _ in range(STREAK):
        assert poll.budget_ns() == 0
        poll.waited(MAX_NS - 1)
    for _ in range(100):
        assert poll.budget_ns() == MAX_NS
        poll.waited(1)


def test_one_spin_in_vain_ends_the_streak() -> None:
    poll = BusyPoll(BusyPollTurn(MAX_NS))
    for _ in range(3):
        for _ in range(STREAK):
            poll.waited(5)
        assert poll.budget_ns() == MAX_NS
        poll.waited(MAX_NS)
        for _ in range(STREAK):
            assert poll.budget_ns() == 0
            poll.waited(5)
        poll.waited(MAX_NS)


def test_a_maximum_of_zero_never_spins() -> None:
    poll = BusyPoll(BusyPollTurn(0))
    for _ in range(2 * STREAK):
        poll.waited(1)
        assert poll.budget_ns() == 0


def test_one_processor_spins_at_a_time() -> None:
    turn = BusyPollTurn(MAX_NS)
    first, second = BusyPoll(turn), BusyPoll(turn)
    for _ in range(STREAK):
        first.waited(1)
        second.waited(1)
    assert (first.budget_ns(), second.budget_ns(), first.budget_ns()) == (MAX_NS, 0, MAX_NS)
    first.waited(MAX_NS)
    assert (second.budget_ns(), first.budget_ns()) == (MAX_NS, 0)
    second.stop()
    assert turn.holder is None


def test_requests_are_answered_and_shutdown_works_while_it_spins() -> None:
    with Network(barnabas_busy_poll_max_us=10_000) as network, network.client() as client, network.client() as other:
        for number in range(10 * STREAK):
            assert client.heartbeat("ok", number) == ErrorCode.NONE
            if number % 7 == 0:
                assert other.heartbeat("park:1", number) == ErrorCode.REQUEST_TIMED_OUT
    assert all(not processor.connections() for processor in network.server.processors())
