"""Steps for clients that are not authenticated: their order, and when they stop."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator

import pytest

from barnabas.broker.network.connection import Connection
from barnabas.broker.network.connections import Accepted
from barnabas.broker.network.secure.ssl_transport import SslTransport
from barnabas.broker.network.selector import BROKEN, HUNG_UP, WRITABLE
from barnabas.broker.network.transport import PlainTransport
from barnabas.broker.network.unauthenticated.share import SAVED_NS, CpuTime, Share
from barnabas.broker.network.unauthenticated.steps import MANY, STEPS_OF_MANY, TURN_NS, Steps
from barnabas.broker.requests.request import RequestContext
from barnabas.common.clock import FakeClock


class Rig:
    """Steps that write down what they do; each costs a tenth of a turn."""

    def __init__(self) -> None:
        self.clock, self.used_ns = FakeClock(), 0
        self.done: list[str] = []
        self.urgent = False
        share = Share(10, self, self.clock.monotonic_ns, CpuTime(lambda: self.used_ns, lambda: self.used_ns))
        self.steps = Steps(share, lambda accepted: self.do("open " + accepted.address), self.go_on, lambda: self.urgent)
        self.sock = socket.socket()

    def is_idle(self) -> bool:
        return False

    def last_take_ns(self) -> int:
        return self.clock.monotonic_ns()

    def do(self, what: str) -> None:
        self.done.append(what)
        self.used_ns += TURN_NS // 10

    def go_on(self, connection: Connection) -> None:
        self.do("go on " + connection.context.client_address)

    def connection(self, address: str) -> Connection:
        context = RequestContext("SSL", "SSL", address, 1, "a-b-0-1")
        return Connection(0, PlainTransport(self.sock), None, context, 100)

    def accept(self, address: str) -> None:
        self.steps.accept(Accepted(self.sock, address, 1))


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.sock.close()


def test_new_sockets_and_connections_alternate(rig: Rig) -> None:
    for address in ("a", "b"):
        rig.accept(address)
    for address in ("c", "d"):
        rig.steps.resume(rig.connection(address))
    rig.steps.do()
    assert rig.done == ["go on c", "open a", "go on d", "open b"]
    assert rig.steps.wait_ns() is None


def test_while_many_can_go_on_few_are_taken_over(rig: Rig) -> None:
    rig.accept("new")
    for number in range(MANY + STEPS_OF_MANY):
        rig.steps.resume(rig.connection(f"{number}"))
    rig.steps.do()
    assert rig.done.index("open new") == STEPS_OF_MANY


def test_a_connection_waits_for_one_step_only(rig: Rig) -> None:
    connection = rig.connection("a")
    for _ in range(2):
        rig.steps.resume(connection)
    rig.steps.do()
    rig.steps.resume(connection)
    rig.steps.do()
    assert rig.done == ["go on a"] * 2


def test_a_turn_ends_when_its_time_is_over_or_others_wait(rig: Rig) -> None:
    for number in range(20):
        rig.steps.resume(rig.connection(f"{number}"))
    rig.steps.do()
    assert len(rig.done) == 10
    rig.urgent = True
    rig.steps.do()
    assert len(rig.done) == 11


def test_without_a_share_of_time_nothing_is_done(rig: Rig) -> None:
    for number in range(10 + 10 * SAVED_NS // TURN_NS):
        rig.steps.resume(rig.connection(f"{number}"))
    for _ in range(2 + SAVED_NS // TURN_NS):
        rig.steps.do()
    done = len(rig.done)
    rig.steps.do()
    assert len(rig.done) == done
    assert rig.steps.wait_ns()


@pytest.mark.parametrize(
    ("event", "follows"), [(select.EPOLLIN, True), (HUNG_UP, True), (BROKEN, True), (WRITABLE, False)]
)
def test_events_are_remembered(rig: Rig, event: int, follows: bool) -> None:
    connection = rig.connection("a")
    connection.is_muted = True
    handshake = connection.handshake = SslTransport(rig.sock, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), memoryview(b""))
    assert not handshake.has_begun()
    rig.steps.note(connection, event)
    assert connection.may_have_input == (event in (select.EPOLLIN, HUNG_UP))
    assert connection.is_hung_up == (event == HUNG_UP)
    assert connection.is_broken == (event == BROKEN)
    assert connection.is_waiting_for_step == follows


def test_sockets_that_no_step_took_over_are_given_back(rig: Rig) -> None:
    rig.accept("a")
    assert rig.steps.waiting_sockets() == 1
    assert [accepted.address for accepted in rig.steps.take_accepted()] == ["a"]
    assert rig.steps.waiting_sockets() == 0
