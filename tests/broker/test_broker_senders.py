"""Threads that send to brokers: what waits goes together, and no broker holds up another."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from barnabas.broker.broker_senders import BrokerSenders
from barnabas.broker.metadata_cache import Node
from barnabas.client.connection import NodeConnection
from barnabas.common.clock import FakeClock

WAIT_S = 10


class Room:
    def __init__(self) -> None:
        self.carried: queue.Queue[tuple[int, str | None, list[str]]] = queue.Queue()
        self.may_go_on = {1: threading.Event(), 2: threading.Event()}
        self.nodes = {1: Node(1, "b1", 9, None), 2: Node(2, "b2", 9, None)}
        self.senders: BrokerSenders[str] = BrokerSenders(
            "Sender", "sender", 0, FakeClock(), node_of=self.nodes.get, carry=self.carry, request_timeout_ms=1000
        )

    def carry(self, destination: int, connection: NodeConnection | None, items: list[str]) -> None:
        self.carried.put((destination, None if connection is None else connection.host, items))
        if "fails" in items:
            raise ValueError("as told")
        if destination in self.may_go_on:
            self.may_go_on[destination].wait(WAIT_S)

    def next(self) -> tuple[int, str | None, list[str]]:
        return self.carried.get(timeout=WAIT_S)


@pytest.fixture
def room() -> Iterator[Room]:
    room = Room()
    yield room
    for event in room.may_go_on.values():
        event.set()
    room.senders.shutdown()
    assert not [t for t in threading.enumerate() if t.name.startswith("Sender")]


def test_what_waits_goes_together_and_no_broker_holds_up_another(room: Room) -> None:
    room.senders.send(1, "a")
    assert room.next() == (1, "b1", ["a"])
    for item in "bcd":
        room.senders.send(1, item)
    assert room.senders.queue_size(1) == 3
    room.senders.send(2, "x")
    assert room.next() == (2, "b2", ["x"])
    room.may_go_on[1].set()
    assert room.next() == (1, "b1", ["b", "c", "d"])


def test_a_broker_that_moves_gets_another_connection(room: Room) -> None:
    room.may_go_on[1].set()
    room.senders.send(1, "a")
    assert room.next()[1] == "b1"
    room.nodes[1] = Node(1, "elsewhere", 9, None)
    room.senders.send(1, "b")
    assert room.next() == (1, "elsewhere", ["b"])
    del room.nodes[1]
    room.senders.send(1, "c")
    assert room.next() == (1, None, ["c"])


def test_a_mistake_does_not_end_the_thread(room: Room, caplog: pytest.LogCaptureFixture) -> None:
    room.may_go_on[1].set()
    room.senders.send(1, "fails")
    room.next()
    room.senders.send(1, "b")
    assert room.next() == (1, "b1", ["b"])
    assert "as told" in caplog.text


def test_this_broker_and_nobody_have_a_thread_but_no_connection(room: Room) -> None:
    room.senders.send(0, "here")
    assert room.next() == (0, None, ["here"])
    room.senders.send(-1, "nowhere")
    assert room.next() == (-1, None, ["nowhere"])
    assert room.senders.queue_size(7) == 0


def test_after_the_end_nothing_is_sent(room: Room) -> None:
    room.senders.shutdown()
    room.senders.send(1, "late")
    assert room.carried.empty()
