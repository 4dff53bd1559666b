"""Requests on the live page: those in progress, and the slowest that are done."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.broker.apis.table import TABLE
from barnabas.broker.live.look import Look
from barnabas.broker.live.requests import REMEMBERED, RequestViews, follower_of, subject, words_of
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.requests.request_log import FailedRequest, RequestLog
from barnabas.common.clock import FakeClock
from barnabas.metrics.client_ids import bounded
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.protocol.headers import RequestHeader, encode_request
from barnabas.protocol.messages.k01_fetch import FetchRequest, ReplicaState
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest

CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1")
MS = 1_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log() -> RequestLog:
    return RequestLog(RequestMetrics(Registry()))


@pytest.fixture
def views(log: RequestLog) -> RequestViews:
    return RequestViews(TABLE, log)


def arrived(clock: FakeClock, frame: bytes = b"") -> Request:
    request = Request(None, None, CONTEXT, memoryview(bytearray(frame)))
    request.received_ns = clock.monotonic_ns()
    return request


def decoded(clock: FakeClock, message: Any, version: int, client_id: str | None = "A") -> Request:
    request = Request.for_message(RequestHeader(message.API_KEY, version, 5, client_id), message, CONTEXT)
    request.api = TABLE[message.API_KEY]
    request.received_ns = clock.monotonic_ns()
    return request


def test_a_request_that_no_handler_took_is_read_from_its_frame(clock: FakeClock, views: RequestViews) -> None:
    header = RequestHeader(12, 4, 99, "client <b>")
    frame = encode_request(header, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))[4:]
    request = arrived(clock, bytes(frame))
    clock.advance_ms(3)
    shown = views.in_progress(request, Look.of({}, clock))
    assert (shown["api"], shown["version"], shown["correlation_id"], shown["client_id"]) == (
        "Heartbeat",
        4,
        99,
        "client <b>",
    )
    assert (shown["place"], shown["times_ms"], shown["age_ms"]) == ("request_queue", {"request_queue": 3.0}, 3.0)
    assert shown["size_bytes"] == len(frame)


def test_a_long_client_id_is_cut(clock: FakeClock, views: RequestViews) -> None:
    request = decoded(clock, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, "x" * 32_000)
    assert views.in_progress(request, Look.of({}, clock))["client_id"] == bounded("x" * 32_000)


@pytest.mark.parametrize("frame", [b"", b"\x00", b"\x7f\xff\x00\x00\x00\x00\x00\x01\xff\xff"])
def test_an_unreadable_header_has_no_client(clock: FakeClock, views: RequestViews, frame: bytes) -> None:
    shown = views.in_progress(arrived(clock, frame), Look.of({}, clock))
    assert (shown["api"], shown["client_id"], shown["correlation_id"]) == (None, None, -1)


def test_a_request_goes_from_place_to_place(clock: FakeClock, views: RequestViews) -> None:
    request = decoded(clock, HeartbeatRequest(), 4)
    places = []
    for field in ("dequeued_ns", "api_local_done_ns", "api_remote_done_ns", "response_dequeued_ns", "sent_ns"):
        clock.advance_ms(2)
        shown = views.in_progress(request, Look.of({}, clock))
        places.append(shown["place"])
        assert sum(shown["times_ms"].values()) == shown["total_ms"] == shown["own_ms"]
        setattr(request, field, clock.monotonic_ns())
    assert places == ["request_queue", "handler", "parked", "response_queue", "sending"]
    clock.advance_ms(100)
    shown = views.in_progress(request, Look.of({}, clock))
    assert (shown["place"], shown["times_ms"]["send"]) == ("sending", 2.0)


def test_the_wait_of_a_fetch_is_intended(clock: FakeClock, views: RequestViews) -> None:
    request = decoded(clock, FetchRequest(), 12)
    request.dequeued_ns = request.api_local_done_ns = clock.monotonic_ns()
    clock.advance_ms(400)
    shown = views.in_progress(request, Look.of({}, clock))
    assert (shown["total_ms"], shown["own_ms"]) == (400.0, 0.0)


@pytest.mark.parametrize(
    ("message", "version", "replica"),
    [
        (FetchRequest(replica_id=3), 12, 3),
        (FetchRequest(replica_state=ReplicaState(replica_id=4, replica_epoch=1)), 17, 4),
    ],
)
def test_a_followers_fetch_names_its_broker(clock: FakeClock, message: Any, version: int, replica: int) -> None:
    request = decoded(clock, message, version)
    assert follower_of(request) is None
    request.is_follower = True
    assert follower_of(request) == replica
    request.message = None
    assert follower_of(request) is None


def test_subjects(clock: FakeClock, views: RequestViews) -> None:
    look = Look.of({}, clock)
    assert subject(views.in_progress(decoded(clock, HeartbeatRequest(), 4), look)) == "heartbeat of client A"
    nameless = views.in_progress(decoded(clock, HeartbeatRequest(), 4, None), look)
    assert subject(nameless) == "heartbeat of a client without a name"
    assert subject({**nameless, "api": "Fetch", "follower_id": 2}) == "fetch of replica 2"
    assert words_of("AddPartitionsToTxn") == "add partitions to txn"


def finish(log: RequestLog, clock: FakeClock, ms: int, correlation_id: int) -> None:
    request = decoded(clock, HeartbeatRequest(), 4)
    request.header.correlation_id = correlation_id
    request.dequeued_ns = request.received_ns
    clock.advance_ms(ms)
    now_ns = clock.monotonic_ns()
    request.api_local_done_ns = request.api_remote_done_ns = request.response_dequeued_ns = request.sent_ns = now_ns
    log.completed(request, log.metrics.recorder())


def test_the_slowest_are_kept_when_the_ring_starts_empty(
    clock: FakeClock, log: RequestLog, views: RequestViews
) -> None:
    finish(log, clock, 900, 1)
    views.done(Look.of({}, clock))
    for number in range(2, 200):
        finish(log, clock, number, number)
    shown = views.done(Look.of({"limit": "1000"}, clock))
    assert shown["finished"] == {"Heartbeat": 199}
    assert (len(shown["slow"]), shown["slow"][0]["correlation_id"], shown["slow"][0]["total_ms"]) == (
        REMEMBERED,
        1,
        900.0,
    )
    assert [request["total_ms"] for request in shown["slow"]] == sorted(
        (request["total_ms"] for request in shown["slow"]), reverse=True
    )
    assert shown["recent"][0]["correlation_id"] == 199
    assert shown["slow"][0]["times_ms"] == {
        "request_queue": 0.0, "local": 900.0, "remote": 0.0, "throttle": 0.0, "response_queue": 0.0, "send": 0.0
    }  # fmt: skip
    clock.advance_ms(5 * 60_000)
    assert views.done(Look.of({}, clock))["slow"] == []


def test_errors_newest_first_and_limits(clock: FakeClock, log: RequestLog, views: RequestViews) -> None:
    for number in range(3):
        log.errors.append(FailedRequest("Produce", 9, number, "A", "a-b-0-1", ("NOT_LEADER_OR_FOLLOWER",)))
    shown = views.done(Look.of({"limit": "2"}, clock))
    assert [failed["correlation_id"] for failed in shown["errors"]] == [2, 1]
    assert shown["errors"][0]["errors"] == ["NOT_LEADER_OR_FOLLOWER"]
