"""ControllerChannel: order, other addresses, timeouts and shutdown."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.channels.controller_channel import ControllerChannel
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock, SystemClock
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from barnabas.protocol.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.protocol.push_tags import Attempt, attempt_of
from tests.support.waiting import eventually

WAIT_S = 20
ADDRESSES = [("a", 1), ("b", 2)]


class Numbered:
    """Connections that note which request an envelope is, and break `breaks` times."""

    def __init__(self, breaks: int) -> None:
        self.breaks = breaks
        self.attempts: list[Attempt | None] = []

    def connect(self, _host: str, _port: int, **_: Any) -> Any:
        """Open a connection."""
        return self

    def send(self, message: Any, _version: int, *, timeout_ms: int) -> Any:
        """Note the attempt, and respond or break."""
        assert timeout_ms > 0
        decoded = type(message).decode(message.encode(0), 0)
        self.attempts.append(attempt_of(decoded) if isinstance(decoded, EnvelopeRequest) else None)
        if len(self.attempts) <= self.breaks:
            raise NodeConnectionError("it is gone")
        return EnvelopeResponse(response_data=b"")

    def abort(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is open."""


class Controllers:
    """Connections to scripted controllers: `active` responds, the others are not the controller or unreachable."""

    def __init__(self) -> None:
        self.active = "a"
        self.unreachable: set[str] = set()
        self.sent: list[tuple[str, int]] = []  # (host, broker epoch of the request)
        self.closed: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def connect(self, host: str, _port: int, **_: Any) -> Any:
        """Open a connection."""
        return Connection(self, host)


class Connection:
    """One connection; `abort` opens the gate."""

    def __init__(self, controllers: Controllers, host: str) -> None:
        self.controllers, self.host = controllers, host

    def send(self, message: Any, version: int, *, timeout_ms: int) -> Any:
        """Respond, or raise NodeConnectionError."""
        assert (version, timeout_ms > 0) == (0, True)
        assert self.controllers.gate.wait(WAIT_S)
        self.controllers.sent.append((self.host, message.broker_epoch))
        if self.host in self.controllers.unreachable:
            raise NodeConnectionError("unreachable")
        error = ErrorCode.NONE if self.host == self.controllers.active else ErrorCode.NOT_CONTROLLER
        return AllocateProducerIdsResponse(error_code=error, producer_id_start=message.broker_epoch)

    def abort(self) -> None:
        """Make a waiting `send` go on."""
        self.controllers.gate.set()

    def close(self) -> None:
        """Note the close."""
        self.controllers.closed.append(self.host)


def request(number: int) -> AllocateProducerIdsRequest:
    """A request that its broker epoch identifies."""
    return AllocateProducerIdsRequest(broker_id=0, broker_epoch=number)


@pytest.fixture
def controllers() -> Controllers:
    return Controllers()


@pytest.fixture
def channel(controllers: Controllers) -> Iterator[ControllerChannel]:
    made = ControllerChannel(
        "test",
        0,
        ADDRESSES,
        SystemClock(),
        request_timeout_ms=WAIT_S * 1000,
        cluster_id="c",
        connect=controllers.connect,
    )
    made.start()
    yield made
    made.shutdown()


def test_requests_go_out_in_order(channel: ControllerChannel, controllers: Controllers) -> None:
    done: queue.Queue[Any] = queue.Queue()
    for number in range(5):
        channel.send(request(number), done.put)
    assert [done.get(timeout=WAIT_S).producer_id_start for _ in range(5)] == [0, 1, 2, 3, 4]
    assert controllers.sent == [("a", number) for number in range(5)]


@pytest.mark.parametrize("is_unreachable", [True, False], ids=["unreachable", "not the controller"])
def test_another_address_is_tried(channel: ControllerChannel, controllers: Controllers, is_unreachable: bool) -> None:
    controllers.active = "b"
    controllers.unreachable = {"a"} if is_unreachable else set()
    assert channel.call(request(1)).producer_id_start == 1
    assert channel.call(request(2)).producer_id_start == 2
    assert controllers.sent == [("a", 1), ("b", 1), ("b", 2)], "the channel stays with the active controller"
    assert controllers.closed == ["a"]


def test_a_request_ends_when_its_time_is_up(controllers: Controllers) -> None:
    controllers.unreachable = {"a", "b"}
    clock, done = FakeClock(), queue.SimpleQueue[Any]()
    channel = ControllerChannel(
        "test", 0, ADDRESSES, clock, request_timeout_ms=1, cluster_id="c", connect=controllers.connect
    )
    channel.start()
    channel.send(request(1), done.put, timeout_ms=200)
    eventually("both are tried", lambda: {host for host, _ in controllers.sent} == {"a", "b"})
    assert done.empty()
    clock.advance_ms(200)
    assert done.get(timeout=WAIT_S) is None
    channel.shutdown()


def test_a_callback_that_raises_does_not_end_the_thread(
    channel: ControllerChannel, caplog: pytest.LogCaptureFixture
) -> None:
    channel.send(request(1), lambda _: 1 / 0)
    assert channel.call(request(2)).producer_id_start == 2
    assert "AllocateProducerIdsRequest failed" in caplog.text


def test_an_envelope_has_its_number_and_says_how_often_it_was_sent() -> None:
    controllers = Numbered(breaks=2)
    channels = [
        ControllerChannel(
            "test", 0, ADDRESSES, SystemClock(), request_timeout_ms=WAIT_S * 1000, cluster_id="c",
            connect=controllers.connect,
        )
        for _ in range(2)
    ]  # fmt: skip
    first, second = channels
    for channel in channels:
        channel.start()
    for message in (EnvelopeRequest(request_data=b"a"), request(1), EnvelopeRequest(request_data=b"b")):
        first.call(message)
    second.call(EnvelopeRequest(request_data=b"a"))
    for channel in channels:
        channel.shutdown()
    *sent, other = controllers.attempts
    senders = {attempt.sender for attempt in sent if attempt is not None}
    assert len(senders) == 1
    assert [None if each is None else each[1:] for each in sent] == [(1, 1), (1, 2), (1, 3), None, (3, 1)]
    assert other is not None
    assert (other.sender in senders, other[1:]) == (False, (1, 1))


def test_at_shutdown_queued_requests_complete_without_a_response(
    channel: ControllerChannel, controllers: Controllers
) -> None:
    done: queue.Queue[Any] = queue.Queue()
    channel.call(request(0))
    controllers.gate.clear()
    controllers.unreachable = {"a", "b"}
    for number in range(3):
        channel.send(request(number), done.put)
    channel.shutdown()
    channel.send(request(9), done.put)
    assert [done.get(timeout=WAIT_S) for _ in range(4)] == [None] * 4
    assert channel.queue_size() == 0
