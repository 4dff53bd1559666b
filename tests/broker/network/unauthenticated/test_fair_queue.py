"""Networks take turns."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from barnabas.broker.network.unauthenticated.fair_queue import FairQueue, network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.7", "10.0.0"),
        ("2001:db8::1", "20010db800000000"),
        ("2001:db8:0:0:1::", "20010db800000000"),
        ("fe80::1%eth0", "fe80000000000000"),
        ("no:address", "no:address"),
    ],
)
def test_the_network_of_an_address(address: str, network: str) -> None:
    assert network_of(address) == network


def test_a_client_does_not_wait_behind_those_of_another_network() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(1000):
        queue.add("10.0.0.1", f"flood-{number}")
    queue.add("10.0.1.1", "first")
    queue.add("10.0.1.1", "second")
    assert [queue.take() for _ in range(5)] == ["flood-0", "first", "flood-1", "second", "flood-2"]
    assert len(queue) == 997


def test_the_addresses_of_a_network_share_its_turn() -> None:
    queue: FairQueue[str] = FairQueue()
    for number in range(200):
        queue.add(f"10.0.0.{number}", f"flood-{number}")
        queue.add(f"2001:db8::{number}", f"six-{number}")
    queue.add("10.0.0.7", "again")
    queue.add("10.0.1.1", "alone")
    queue.add("10.0.0.200", "neighbour")
    assert [queue.take() for _ in range(5)] == ["flood-0", "six-0", "alone", "flood-1", "six-1"]
    taken = [queue.take() for _ in range(len(queue))]
    assert taken.index("again") > taken.index("neighbour"), "addresses take turns, too"


def test_the_newest_of_a_network_with_many_makes_place() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(10):
        queue.add("10.0.0.1", number)
    queue.add("10.0.1.1", 10)
    assert queue.take_for("10.0.0.1") is None, "it has too many itself"
    assert queue.take_for("10.0.1.1") == 9
    assert queue.take_for("10.0.2.1") == 8
    assert queue.take_for("10.0.0.2") == 7, "its neighbour has many"
    only: FairQueue[int] = FairQueue()
    for number in range(3):
        only.add(f"10.0.{number}.1", number)
    assert only.take_for("10.0.9.1") == 2, "the one whose turn is last"
    assert only.take_for("10.0.0.1") is None
    assert only.take_for("10.0.0.2") == 0, "within its network it has less"
    assert [only.take(), len(only)] == [1, 0]


def test_whatever_is_done_nothing_is_lost() -> None:
    chance = random.Random(7)
    queue: FairQueue[int] = FairQueue()
    there: Counter[int] = Counter()
    for number in range(1600):
        deed = chance.randrange(8)
        address = f"10.0.{chance.randrange(4)}.{chance.randrange(4)}"
        if deed < 5 or not queue:
            queue.add(address, number)
            there[number] += 1
            gone = []
        elif deed == 7:
            gone = queue.take_all(lambda item: item % 7 == 0)
        elif deed == 6:
            found = queue.take_for(address)
            gone = [] if found is None else [found]
        else:
            gone = [queue.take()]
        there.subtract(gone)
        assert len(queue) == there.total()
        assert min(there.values()) >= 0
    assert sorted(queue.take_all(lambda _: True)) == sorted(there.elements())
    assert len(queue) == 0
