"""Threads and queues on the live page: a real network layer with held handlers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.broker.live import network as view
from barnabas.broker.live.look import Look
from barnabas.broker.live.network import NetworkLayer
from barnabas.broker.live.requests import RequestViews
from barnabas.broker.live.waiting import parked
from barnabas.broker.quotas.throttle import Throttle
from barnabas.common.clock import SystemClock
from tests.support.broker.network import HEARTBEAT, HEARTBEAT_VERSION, TIMEOUT_S, Client, Network, fetch, heartbeat
from tests.support.waiting import eventually

Connect = Callable[[Network], Client]


@pytest.fixture
def network() -> Iterator[Network]:
    with Network(handlers=2, num_network_threads=2) as made:
        yield made


@pytest.fixture
def layer(network: Network) -> NetworkLayer:
    views = RequestViews(network.table, network.request_log)
    return NetworkLayer(network.server, network.pool, views, network.registry)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Return a function that makes clients, which are closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda network: stack.enter_context(network.client())


def look(limit: int = 50) -> Look:
    return Look.of({"limit": str(limit)}, SystemClock())


def held_up(network: Network, clients: list[Client]) -> None:
    """Let both handlers wait in a request, with the other clients' requests behind them."""
    for number, client in enumerate(clients[:2]):
        client.send(heartbeat("wait", client_id=f"held-{number}"))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
    for number, client in enumerate(clients[2:]):
        client.send(heartbeat("ok", 100 + number, client_id=f"queued-{number}"))
        eventually("it is queued", lambda number=number: network.channel.request_queue_size() == number + 1)


def test_an_idle_process(network: Network, layer: NetworkLayer) -> None:
    shown = eventually("both sleep", lambda: (h := view.handlers(layer, look()))["sleeping"] == 2 and h)
    assert shown["total"] == 2
    assert {(handler["state"], handler["doing"]) for handler in shown["items"]} == {("idle", "waits for a request")}
    (acceptor,) = view.acceptors(layer)
    assert (acceptor["listener"], acceptor["port"]) == ("PLAINTEXT", network.server.port("PLAINTEXT"))
    assert (acceptor["connections"], acceptor["processors"]) == (0, [0, 1])
    eventually("all sleep", lambda: {p["state"] for p in view.processors(layer, look())} == {"sleeping"})
    assert view.request_queue(layer, look()) == {"capacity": 500, "total": 0, "items": [], "blocked_processors": 0}


def test_requests_with_handlers_and_in_the_queue(network: Network, layer: NetworkLayer, connect: Connect) -> None:
    clients = [connect(network) for _ in range(5)]
    held_up(network, clients)
    began_ms = network.clock.monotonic_ms()
    handlers = view.handlers(layer, look())
    assert sorted(handler["doing"] for handler in handlers["items"]) == [
        "handles heartbeat of client held-0",
        "handles heartbeat of client held-1",
    ]
    assert {handler["state"] for handler in handlers["items"]} == {"busy"}
    in_hand = handlers["items"][0]["request"]
    assert in_hand is not None
    assert in_hand["place"] == "handler"
    assert in_hand["times_ms"].keys() == {"request_queue", "local"}
    queue = view.request_queue(layer, look(2))
    assert queue["total"] == 3
    names = [(r["api"], r["version"], r["correlation_id"], r["client_id"], r["place"]) for r in queue["items"]]
    assert names == [
        ("Heartbeat", 4, 100, "queued-0", "request_queue"),
        ("Heartbeat", 4, 101, "queued-1", "request_queue"),
    ]
    assert len(view.in_progress(layer)) == 5
    assert sum(processor["muted"] for processor in view.processors(layer, look())) == 5
    held_ms = network.clock.monotonic_ms() - began_ms - 1  # both ends are rounded
    network.services.gate.set()
    for number, client in enumerate(clients[2:]):
        client.receive(HEARTBEAT, HEARTBEAT_VERSION, 100 + number)
    done = layer.views.done(look())
    eventually("all are counted", lambda: layer.views.done(look())["finished"] == {"Heartbeat": 5})
    assert {request["place"] for request in done["recent"]} <= {"done"}

    def held() -> list[Any]:
        return [request for request in layer.views.done(look())["slow"] if request["client_id"].startswith("held-")]

    slow = eventually("one that was held up is known as slow", held)
    assert slow[0]["times_ms"]["local"] >= held_ms


def test_a_full_queue_blocks_a_processor(connect: Connect) -> None:
    with Network(handlers=2, queued_max_requests=1, num_network_threads=1) as network:
        layer = NetworkLayer(
            network.server, network.pool, RequestViews(network.table, network.request_log), network.registry
        )
        clients = [connect(network) for _ in range(3)]
        held_up(network, clients)
        more = connect(network)
        more.send(heartbeat("ok"))
        (processor,) = eventually(
            "it waits for room",
            lambda: (shown := view.processors(layer, look())) and shown[0]["state"] == "waiting_for_room" and shown,
        )
        assert processor["doing"] == "waits for space in the request queue for 1 request"
        assert view.request_queue(layer, look())["blocked_processors"] == 1
        network.services.gate.set()
        more.receive(HEARTBEAT, HEARTBEAT_VERSION, 1)


def test_a_response_that_its_client_does_not_read_is_being_sent(network: Network, layer: NetworkLayer) -> None:
    with network.client() as client:
        client.send(fetch(50_000_000, client_id="slow reader"))
        processor = eventually(
            "it is being sent",
            lambda: next((p for p in view.processors(layer, look()) if p["sending"]["total"] == 1), None),
        )
        (request,) = processor["sending"]["items"]
        assert (request["api"], request["client_id"], request["place"]) == ("Fetch", "slow reader", "sending")
        eventually(
            "the processor sleeps meanwhile",
            lambda: "waits for 1 client to read" in [p["doing"] for p in view.processors(layer, look())],
        )


def test_an_operation_in_a_purgatory_has_its_request(network: Network, layer: NetworkLayer) -> None:
    with network.client() as client:
        client.send(heartbeat("park", client_id="patient"))
        assert network.services.arrived.acquire(timeout=TIMEOUT_S)
        eventually("it is parked", lambda: network.services.purgatory.delayed() == 1)
        listing = parked(view.in_progress(layer), lambda _api, _message: [], layer.views, look())
        assert listing["total"] == 0, "it is in a purgatory"
        ((operation, _),) = network.services.purgatory.waiting(5)
        assert operation.request is not None
        assert layer.views.in_progress(operation.request, look())["client_id"] == "patient"


def test_ended_handlers_are_not_shown(network: Network, layer: NetworkLayer) -> None:
    network.pool.resize(1)
    eventually("one has ended", lambda: view.handlers(layer, look())["total"] == 1)


def test_a_throttled_client_is_shown_with_its_reason(network: Network, layer: NetworkLayer) -> None:
    with network.client() as client:
        client.send(heartbeat("throttle:60000"))
        client.receive(HEARTBEAT, HEARTBEAT_VERSION, 1)
        listed = eventually("it waits", lambda: (shown := view.throttled(layer, look()))["total"] and shown)
        (item,) = listed["items"]
        assert (item["principal"], item["quota"]) == ("User:ANONYMOUS", "")
        assert 0 < item["left_ms"] <= 60_000
        assert "goes on in" in item["sentence"]
        (connection,) = network.server.throttled()
        connection.throttle = Throttle(60_000, "producer_byte_rate", "alice", "app", 1e6, 1234567.4)
        (item,) = view.throttled(layer, look())["items"]
        assert item["sentence"].startswith("user alice with client id app goes on in ")
        assert item["sentence"].endswith(" s: its producer_byte_rate is 1234567.4, and its limit 1000000")
        connection.throttle = Throttle(60_000, "controller_mutation_rate", "", "app", 5, -12)
        (item,) = view.throttled(layer, look())["items"]
        assert "client id app goes on" in item["sentence"]
        assert item["sentence"].endswith("it is 12 partitions ahead of its controller_mutation_rate, 5")
