"""BrokerSenders: waiting items go together, and a slow broker delays no other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from barnabas.broker.channels.broker_senders import BrokerSenders
from barnabas.broker.metadata.metadata_cache import Node
from barnabas.client.connection import NodeConnection
from barnabas.common.clock import FakeClock

WAIT_S = 60


class SendersRig:
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
            raise ValueError("on purpose")
        if destination in self.may_go_on:
            self.may_go_on[destination].wait(WAIT_S)

    def next(self) -> tuple[int, str | None, list[str]]:
        return self.carried.get(timeout=WAIT_S)


@pytest.fixture
def rig() -> Iterator[SendersRig]:
    rig = SendersRig()
    yield rig
    for event in rig.may_go_on.values():
        event.set()
    rig.senders.shutdown()
    assert not [t for t in threading.enumerate() if t.name.startswith("Sender")]


def test_waiting_items_go_together_and_a_slow_broker_delays_no_other(rig: SendersRig) -> None:
    rig.senders.send(1, "a")
    assert rig.next() == (1, "b1", ["a"])
    for item in "bcd":
        rig.senders.send(1, item)
    assert rig.senders.queue_size(1) == 3
    rig.senders.send(2, "x")
    assert rig.next() == (2, "b2", ["x"])
    rig.may_go_on[1].set()
    assert rig.next() == (1, "b1", ["b", "c", "d"])


def test_a_broker_that_moves_gets_another_connection(rig: SendersRig) -> None:
    rig.may_go_on[1].set()
    rig.senders.send(1, "a")
    assert rig.next()[1] == "b1"
    rig.nodes[1] = Node(1, "elsewhere", 9, None)
    rig.senders.send(1, "b")
    assert rig.next() == (1, "elsewhere", ["b"])
    del rig.nodes[1]
    rig.senders.send(1, "c")
    assert rig.next() == (1, None, ["c"])


def test_an_unexpected_exception_does_not_end_the_thread(rig: SendersRig, caplog: pytest.LogCaptureFixture) -> None:
    rig.may_go_on[1].set()
    rig.senders.send(1, "fails")
    rig.next()
    rig.senders.send(1, "b")
    assert rig.next() == (1, "b1", ["b"])
    assert "on purpose" in caplog.text


def test_this_broker_and_an_unknown_one_have_a_thread_but_no_connection(rig: SendersRig) -> None:
    rig.senders.send(0, "here")
    assert rig.next() == (0, None, ["here"])
    rig.senders.send(-1, "nowhere")
    assert rig.next() == (-1, None, ["nowhere"])
    assert rig.senders.queue_size(7) == 0


def test_after_shutdown_nothing_is_sent(rig: SendersRig) -> None:
    rig.senders.shutdown()
    rig.senders.send(1, "late")
    assert rig.carried.empty()
