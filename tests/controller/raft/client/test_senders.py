"""Senders: one request in flight to a node, whose response, or the lack of it, is reported."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from barnabas.controller.raft.client.senders import SENDERS_MAX, Senders
from barnabas.controller.raft.effects import Send
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k52_vote import VoteRequest, VoteResponse
from barnabas.protocol.schema import Message

WAIT_S = 30


class FakeConnection:
    """A connection whose far end is a function."""

    def __init__(self, host: str, port: int, answer: Callable[[Any], Any]) -> None:
        self.host = host
        self.port = port
        self.aborted = threading.Event()
        self.is_closed = False
        self._answer = answer

    def send(self, message: Any, version: int) -> Any:
        assert version == message.MAX_VERSION
        return self._answer(message)

    def abort(self) -> None:
        self.aborted.set()

    def close(self) -> None:
        self.is_closed = True


class Rig:
    """Senders and what they report."""

    def __init__(self) -> None:
        self.connections: list[FakeConnection] = []
        self.reports: SimpleQueue[tuple[int, int, Message | None]] = SimpleQueue()
        self.answer: Callable[[Any], Any] = lambda _: VoteResponse()
        self.senders = Senders(1, self._connect)

    def _connect(self, host: str, port: int) -> FakeConnection:
        self.connections.append(FakeConnection(host, port, lambda message: self.answer(message)))
        return self.connections[-1]

    def send(self, correlation_id: int, request: Message | None = None, port: int = 1, node_id: int = 2) -> None:
        effect = Send(node_id, "h", port, correlation_id, request or VoteRequest())
        self.senders.send(effect, lambda *report: self.reports.put(report))

    def report(self) -> tuple[int, int, Message | None]:
        return self.reports.get(timeout=WAIT_S)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.senders.stop()


def test_responses_come_over_one_connection(rig: Rig) -> None:
    for correlation_id in (7, 8):
        rig.send(correlation_id)
        assert rig.report() == (2, correlation_id, VoteResponse())
    assert len(rig.connections) == 1


def test_another_address_gets_another_connection(rig: Rig) -> None:
    for port in (1, 2):
        rig.send(port, port=port)
        rig.report()
    assert [(found.port, found.is_closed) for found in rig.connections] == [(1, True), (2, False)]


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), ValueError("nonsense")])
def test_a_failure_is_reported_and_the_next_request_connects_again(rig: Rig, error: Exception) -> None:
    def fail(_: Any) -> None:
        raise error

    rig.answer = fail
    rig.send(7)
    assert rig.report() == (2, 7, None)
    rig.answer = lambda _: VoteResponse()
    rig.send(8)
    assert rig.report() == (2, 8, VoteResponse())
    assert [found.is_closed for found in rig.connections] == [True, False]


def test_a_newer_request_does_not_wait_for_an_older_one(rig: Rig) -> None:
    has_begun = threading.Event()

    def wait(_: Any) -> None:
        has_begun.set()
        rig.connections[0].aborted.wait(WAIT_S)
        raise ConnectionAbortedError

    rig.answer = wait
    rig.send(7)
    has_begun.wait(WAIT_S)
    rig.answer = lambda _: VoteResponse()
    rig.send(8)
    assert rig.report() == (2, 7, None)
    assert rig.report() == (2, 8, VoteResponse())
    assert [found.is_closed for found in rig.connections] == [True, False]


def test_api_versions_names_this_software(rig: Rig) -> None:
    rig.answer = lambda message: VoteResponse() if message.client_software_name else None
    rig.send(7, ApiVersionsRequest())
    assert rig.report()[2] == VoteResponse()


def test_any_number_of_nodes_has_a_bounded_number_of_senders(rig: Rig) -> None:
    for node_id in range(SENDERS_MAX + 5):
        rig.send(node_id, node_id=node_id)
        assert rig.report() == (node_id, node_id, VoteResponse())
        rig.send(node_id, node_id=0)
        assert rig.report() == (0, node_id, VoteResponse())
    closed = [connection.is_closed for connection in rig.connections]
    assert closed.count(False) == SENDERS_MAX
    assert closed.index(True) == 1, "the one that was idle for longest"
