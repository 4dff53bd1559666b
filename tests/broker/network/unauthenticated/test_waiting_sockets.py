"""Accepted sockets that wait: how many, how long, and whose turn it is."""

from __future__ import annotations

from typing import Any

from barnabas.broker.network.connections import Accepted
from barnabas.broker.network.unauthenticated.waiting_sockets import WAIT_NS, WAITING_MAX, WaitingSockets
from barnabas.common.clock import NS_PER_S

SOCKET: Any = None


def accepted(address: str, port: int = 1) -> Accepted:
    return Accepted(SOCKET, address, port)


def test_a_flood_of_one_address_costs_only_itself() -> None:
    waiting = WaitingSockets()
    lost = [waiting.add(accepted("10.0.0.1", port), 0) for port in range(WAITING_MAX + 5)]
    assert lost == [None] * WAITING_MAX + [accepted("10.0.0.1", WAITING_MAX + number) for number in range(5)]
    assert waiting.add(accepted("10.0.0.2"), 0) == accepted("10.0.0.1", WAITING_MAX - 1)
    assert len(waiting) == WAITING_MAX
    assert [waiting.take(), waiting.take()] == [accepted("10.0.0.1", 0), accepted("10.0.0.2")]


def test_a_flood_of_one_networks_addresses_costs_only_that() -> None:
    """2,000 addresses of eight networks fill the queue; clients of others come, and the flood goes on."""
    waiting = WaitingSockets()

    def flood() -> None:
        for number in range(8 * 250):
            waiting.add(accepted(f"10.0.{number // 250}.{number % 250}"), 0)

    flood()
    honest = [accepted(f"192.0.{number}.1") for number in range(20)]
    for each in honest:
        lost = waiting.add(each, 0)
        assert lost is not None
        assert lost.address.startswith("10.")
    flood()
    assert len(waiting) == WAITING_MAX
    taken = [waiting.take() for _ in range(8 + len(honest))]
    assert [each for each in taken if each in honest] == honest


def test_those_of_many_addresses_are_bounded_too() -> None:
    waiting = WaitingSockets()
    for number in range(3 * WAITING_MAX):
        waiting.add(accepted(f"10.0.{number // 256}.{number % 256}"), 0)
    assert len(waiting) == WAITING_MAX
    assert waiting.take() == accepted("10.0.0.0"), "the first to come keeps its turn"


def test_none_waits_for_ever() -> None:
    waiting = WaitingSockets()
    assert waiting.take_late(0) == []
    waiting.add(accepted("10.0.0.1"), 0)
    waiting.add(accepted("10.0.0.2"), NS_PER_S)
    assert waiting.take_late(WAIT_NS - 1) == []
    assert waiting.take_late(WAIT_NS) == [], "it looks once a second"
    assert waiting.take_late(WAIT_NS + NS_PER_S - 1) == [accepted("10.0.0.1")]
    assert waiting.take_all() == [accepted("10.0.0.2")]
    assert len(waiting) == 0
