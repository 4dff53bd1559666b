"""Slow motion: which stage pauses for which key, which requests never pause, and no cost when it is off."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.request_channel import RequestQueue, ResponseQueue
from barnabas.broker.requests.answers import NO_REPLY
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.requests.slow_motion import UNDELAYED, SlowMotion
from barnabas.common.clock import FakeClock
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from tests.support.broker.network import FETCH, FETCH_VERSION, Network, fetch
from tests.support.waiting import eventually

STAGES = ("network", "request_queue", "handler", "response")
CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "10.0.0.1", 4711, "a-b-0-1")
TIMEOUT_S = 60


def config(**pauses_s: int) -> Any:
    return SimpleNamespace(**{f"barnabas_slow_motion_{stage}_ms": pauses_s.get(stage, 0) * 1000 for stage in STAGES})


class Pauses(threading.Event):
    """Replaces time: a pause records its length, and lasts until the test ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[int] = []  # seconds
        self._gate = threading.Semaphore(0)

    def wait(self, timeout: float | None = None) -> bool:
        if timeout and not self.is_set():
            self.waiting.append(round(timeout))
            assert self._gate.acquire(timeout=TIMEOUT_S)
        return True

    def let_go(self) -> int:
        self._gate.release()
        return self.waiting.pop(0)

    def set(self) -> None:
        super().set()
        self._gate.release(100)


def stopped_network() -> Network:
    """A network on whose clock no time passes, so that the length of each pause is known."""
    return Network(clock=FakeClock(), handlers=1, num_network_threads=1, barnabas_busy_poll_max_us=0)


def request(api_key: int, message: Any = None) -> Request:
    message = request_class(api_key)() if message is None else message
    return Request.for_message(RequestHeader(api_key, 4, 1, "client"), message, CONTEXT)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


def test_a_request_is_seen_at_every_stage(pauses: Pauses) -> None:
    settings = config(network=10, request_queue=200, handler=30, response=40)
    with stopped_network() as network, network.client() as client:
        channel = network.channel
        SlowMotion(settings, channel.requests, network.table, network.clock, pauses)
        client.send(fetch(10))
        eventually("the network thread pauses", lambda: pauses.waiting == [10])
        assert channel.requests.waiting() == []
        pauses.let_go()
        eventually("a handler pauses", lambda: pauses.waiting == [210])
        assert len(channel.requests.waiting()) == 1
        pauses.let_go()
        eventually("it pauses with the request", lambda: pauses.waiting == [30])
        assert channel.requests.waiting() == []
        pauses.let_go()
        eventually("the network thread pauses again", lambda: pauses.waiting == [40])
        assert channel.response_queue_size() == 1
        pauses.let_go()
        assert len(client.receive(FETCH, FETCH_VERSION, 1).responses[0].partitions[0].records) == 10
        pauses.set()


def test_a_response_does_not_wait_for_the_next_request(pauses: Pauses) -> None:
    """At full speed, a handler with more requests wakes processors only after some answers."""
    with stopped_network() as network, network.client() as one, network.client() as other:
        SlowMotion(config(request_queue=100), network.channel.requests, network.table, network.clock, pauses)
        one.send(fetch(10))
        eventually("the handler sees the first", lambda: pauses.waiting == [100])
        other.send(fetch(10, 2))
        eventually("the second waits too", lambda: len(network.channel.requests.waiting()) == 2)
        pauses.let_go()
        eventually("the handler sees the second", lambda: pauses.waiting == [100])
        one.receive(FETCH, FETCH_VERSION, 1)
        pauses.set()
        other.receive(FETCH, FETCH_VERSION, 2)


def test_at_full_speed_nothing_pauses() -> None:
    requests, served = RequestQueue(10), dict(TABLE)
    SlowMotion(config(), requests, served, FakeClock())
    assert requests.slow_motion is None
    assert served == TABLE


@pytest.mark.parametrize("stage", STAGES)
def test_one_stage_is_enough(stage: str) -> None:
    requests, served = RequestQueue(10), dict(TABLE)
    slow_motion = SlowMotion(config(**{stage: 1}), requests, served, FakeClock())
    assert requests.slow_motion is slow_motion
    assert (served != TABLE) == (stage == "handler")


def test_it_applies_changes_of_config_and_table(pauses: Pauses) -> None:
    calls: list[str] = []
    row = Api(3, "Metadata", (0, 13), lambda _services, _request: calls.append("called") or NO_REPLY)
    settings, requests, served = config(), RequestQueue(10), dict[int, Api]()
    slow_motion = SlowMotion(settings, requests, served, FakeClock(), pauses)
    slow_motion.serve({3: row})
    assert served == {3: row}
    settings.barnabas_slow_motion_handler_ms = 7000
    slow_motion.update()
    handler = threading.Thread(target=served[3].handle, args=(None, request(3)))
    handler.start()
    eventually("the handler pauses", lambda: pauses.waiting == [7])
    assert calls == []
    pauses.let_go()
    handler.join(TIMEOUT_S)
    assert calls == ["called"]
    settings.barnabas_slow_motion_handler_ms = 0
    slow_motion.update()
    assert served == {3: row}
    assert requests.slow_motion is None


def test_a_request_that_has_waited_already_waits_no_more(pauses: Pauses) -> None:
    clock, requests = FakeClock(), RequestQueue(10)
    responses = ResponseQueue(lambda: None)
    slow_motion = SlowMotion(config(network=1, request_queue=3, response=5), requests, {}, clock, pauses)
    told: list[float] = []
    pauses.wait = lambda timeout=None: told.append(timeout) or True  # type: ignore[method-assign]

    def look() -> list[float]:
        told.clear()
        slow_motion.before_taking()
        slow_motion.before_sending(responses)
        return told

    assert look() == [], "nothing waits"
    waiting = request(3)
    waiting.received_ns = waiting.api_remote_done_ns = clock.monotonic_ns()
    requests.put(waiting)
    responses.put(waiting)
    assert look() == [4, 5]
    clock.advance_ms(3_500)
    assert look() == [0.5, 1.5]
    clock.advance_ms(500)
    assert look() == [1]
    clock.advance_ms(1_000)
    assert look() == []
    requests.get()
    requests.put(None)
    assert look() == [], "a sentinel never waits"


def test_a_stopping_broker_does_not_pause() -> None:
    clock, requests = FakeClock(), RequestQueue(10)
    slow_motion = SlowMotion(config(network=60, request_queue=60, response=60), requests, {}, clock)
    waiting = request(3)
    waiting.received_ns = clock.monotonic_ns()
    requests.put(waiting)
    slow_motion.end()
    slow_motion.before_queueing()
    slow_motion.before_taking()


@pytest.mark.parametrize("api_key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.JOIN_GROUP])
def test_requests_of_clients_pause(pauses: Pauses, api_key: int) -> None:
    assert pauses_of(pauses, request(api_key)) == [9]


@pytest.mark.parametrize("api_key", sorted(UNDELAYED))
def test_requests_that_keep_the_cluster_alive_do_not_pause(pauses: Pauses, api_key: int) -> None:
    assert pauses_of(pauses, request(api_key)) == []


@pytest.mark.parametrize(
    "message", [FetchRequest(replica_id=2), FetchRequest(replica_state=ReplicaState(replica_id=2, replica_epoch=5))]
)
def test_followers_do_not_pause(pauses: Pauses, message: FetchRequest) -> None:
    assert pauses_of(pauses, request(ApiKey.FETCH, message)) == []


def pauses_of(pauses: Pauses, request: Request) -> list[int]:
    """Return how long the handler pauses before it calls the API."""
    seen: list[list[int]] = []
    key = request.header.api_key
    row = Api(key, "", (0, 99), lambda _services, _request: seen.append([*told]) or NO_REPLY)
    told: list[int] = []
    pauses.wait = lambda timeout=None: told.append(round(timeout)) or True  # type: ignore[method-assign]
    served = {int(key): row}
    SlowMotion(config(handler=9), RequestQueue(10), served, FakeClock(), pauses)
    served[int(key)].handle(None, request)
    return seen[0]
