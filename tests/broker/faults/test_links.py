"""Cut links between nodes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.faults.armed import Armed
from barnabas.broker.faults.links import Links
from barnabas.broker.faults.matching import sending_node
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.client.connection import NodeConnectionError
from barnabas.common.clock import FakeClock, SystemClock
from barnabas.faults.definition import Fault
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k18_api_versions import ApiVersionsRequest
from barnabas.protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from tests.broker.faults.fault_rig import CLOSED, PENDING, FaultRig
from tests.support.broker.broker_rig import fetch, state
from tests.support.broker.network import Network
from tests.support.waiting import eventually

HOST = "127.0.0.1"
CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", HOST, 1, "c")


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of a node that answers."""
    with Network() as network:
        yield network.server.port("PLAINTEXT")


def links_to(port: int, *names: int | str) -> Links:
    links = Links()
    links.names_at = lambda _host, at: names if at == port else ()
    return links


def cut(links: Links, **fault: Any) -> Armed:
    armed = Armed("f1", Fault(**fault), SystemClock())
    links.cut(armed)
    return armed


@pytest.mark.parametrize("direction", ["to", "both", None])
def test_requests_over_a_cut_link_fail_until_it_is_healed(port: int, direction: str | None) -> None:
    links = links_to(port, 7)
    with links.connect(HOST, port) as connection:
        assert connection.send(ApiVersionsRequest(), 0).error_code == 0
        armed = cut(links, cut=7, direction=direction, mode="refuse")
        for _ in range(2):
            with pytest.raises(NodeConnectionError, match="is cut by fault f1"):
                connection.send(ApiVersionsRequest(), 0)
        assert not connection.is_connected
        assert armed.trigger.fired == 2
        links.heal(armed)
        assert connection.send(ApiVersionsRequest(), 0).error_code == 0


@pytest.mark.parametrize("fault", [{"cut": 8}, {"cut": 7, "direction": "from"}])
def test_other_links_work(port: int, fault: dict[str, Any]) -> None:
    links = links_to(port, 7)
    cut(links, mode="refuse", **fault)
    with links.connect(HOST, port) as connection:
        assert connection.send(ApiVersionsRequest(), 0).error_code == 0


def test_the_controller_has_a_name(port: int) -> None:
    links = links_to(port, "controller", 100)
    cut(links, cut="controller", mode="refuse")
    with pytest.raises(NodeConnectionError), links.connect(HOST, port) as connection:
        connection.connect()


def test_a_sender_in_a_black_hole_waits_for_its_timeout(port: int) -> None:
    links = links_to(port, 7)
    cut(links, cut=7)
    clock = SystemClock()
    begun_ms = clock.monotonic_ms()
    with pytest.raises(NodeConnectionError), links.connect(HOST, port, timeout_ms=120) as connection:
        connection.send(ApiVersionsRequest(), 0)
    assert clock.monotonic_ms() - begun_ms >= 120


@pytest.mark.parametrize("end", ["heal", "abort"])
def test_a_sender_in_a_black_hole_is_released(port: int, end: str) -> None:
    links = links_to(port, 7)
    armed = cut(links, cut=7)
    connection = links.connect(HOST, port, timeout_ms=60_000)
    failed: list[Exception] = []

    def send() -> None:
        try:
            connection.send(ApiVersionsRequest(), 0)
        except NodeConnectionError as error:
            failed.append(error)

    thread = threading.Thread(target=send)
    thread.start()
    eventually("it waits", lambda: armed.trigger.fired == 1)
    if end == "heal":
        links.heal(armed)
        armed.remove()
    else:
        connection.abort()
    thread.join(30)
    assert len(failed) == 1
    connection.close()


def test_a_response_over_a_link_cut_meanwhile_is_lost() -> None:
    with socket.create_server((HOST, 0)) as server:
        links = links_to(server.getsockname()[1], 7)

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                cut(links, cut=7, mode="refuse")
                peer.sendall(b"\0\0\0\x0a\0\0\0\x01\0\0\0\0\0\0")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(NodeConnectionError, match="cut by fault"), links.connect(*server.getsockname()) as node:
            node.send(ApiVersionsRequest(), 0)
        thread.join(30)


def test_requests_received_over_a_cut_link() -> None:
    rig = FaultRig()
    rig.push({"t": [state(1, (1, 2))]})
    try:
        asked: dict[str, Any] = {"client_id": "broker-2-fetcher-0"}
        request = fetch(0, replica_id=2)
        armed = rig.add(cut=2, direction="from", mode="refuse")
        assert rig.ask(request, 12, **asked) == CLOSED
        assert rig.ask(request, 12, client_id="broker-3-fetcher-0") != CLOSED
        assert rig.ask(fetch(0), 12).responses[0].partitions[0].error_code == 0, "clients go on"
        assert armed.trigger.fired == 1
        rig.engine.remove(armed.id)
        assert rig.ask(request, 12, **asked).error_code == 0
        armed = rig.add(cut=2)
        sent = rig.send(request, 12, **asked)
        assert sent.answer() == PENDING
        rig.engine.remove(armed.id)
        assert sent.answer() == CLOSED
        rig.add(cut=2, direction="to")
        assert rig.ask(request, 12, **asked).error_code == 0
    finally:
        rig.engine.remove_all()
        rig.close()


def test_a_cut_has_its_time() -> None:
    clock, links = FakeClock(), Links()
    links.names_at = lambda _host, _port: (7,)
    links.cut(Armed("f1", Fault(cut=7, after_ms=10, for_ms=10), clock))
    told = []
    for _ in range(3):
        told.append((links.cut_to("h", 1) is not None, links.cut_from(7) is not None))
        clock.advance_ms(10)
    assert told == [(False, False), (True, True), (False, False)]


@pytest.mark.parametrize(
    ("client_id", "message", "version", "sender"),
    [
        ("broker-3-fetcher-0", fetch(0), 12, 3),
        ("broker-3-lag-exporter", ApiVersionsRequest(), 3, 3),
        ("3", BrokerHeartbeatRequest(), 0, 3),
        ("3", fetch(0), 12, None),
        ("my-broker-3-fetcher-0", fetch(0), 12, None),
        (None, fetch(0), 12, None),
    ],
)
def test_nodes_are_known_by_their_client_ids(
    client_id: str | None, message: Any, version: int, sender: int | None
) -> None:
    header = RequestHeader(message.API_KEY, version, 1, client_id)
    assert sending_node(Request.for_message(header, message, CONTEXT)) == sender
