"""The request log: lines, metrics and lists of finished requests."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.broker.requests.answers import NO_REPLY
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.broker.requests.request_log import ELECTION_CODES, KEPT, RequestLog, error_name
from barnabas.common import logs
from barnabas.common.clock import FakeClock
from barnabas.metrics.client_ids import bounded
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse

CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1")
HEARTBEAT = Api(12, "Heartbeat", (0, 4), lambda *_: NO_REPLY)
FETCH = Api(1, "Fetch", (4, 18), lambda *_: NO_REPLY)
LOGGER = "kafka.request.logger.Heartbeat"


def finished(api: Api = HEARTBEAT, client_id: str = "producer_app") -> Request:
    header = RequestHeader(api.key, 4, 1557, client_id)
    request = Request.for_message(header, HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), CONTEXT)
    request.api = api
    request.received_ns = 1_000_000
    request.dequeued_ns = 2_000_000
    request.api_local_done_ns = 4_000_000
    request.api_remote_done_ns = 7_000_000
    request.response_dequeued_ns = 11_000_000
    request.sent_ns = 16_000_000
    request.response_size_bytes = 14
    return request


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def request_log(registry: Registry, clock: FakeClock) -> RequestLog:
    return RequestLog(RequestMetrics(registry), registry, table={12: HEARTBEAT, 1: FETCH}, clock=clock)


@pytest.fixture
def logged_at_debug() -> Iterator[None]:
    """Switches the request log of one API on, as IncrementalAlterConfigs does."""
    logs.set_level(LOGGER, "DEBUG")
    yield
    logs.set_level(LOGGER, None)


def sums(registry: Registry, request: str) -> dict[str, float]:
    """Return the current sums of a request's histograms."""
    return {
        row.name: instrument.snapshot(0).sum  # type: ignore[union-attr]
        for row, instruments in registry.collect()
        if row.kind is catalogue.Kind.HISTOGRAM
        for labels, instrument in instruments
        if labels == (request,)
    }


def test_long_client_ids_are_kept_cut(request_log: RequestLog) -> None:
    client_id = "x" * 32_000
    request = finished(client_id=client_id)
    request_log.replied(request, HeartbeatResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
    request_log.completed(request, request_log.metrics.recorder())
    assert [kept.client_id for kept in (*request_log.errors, *request_log.slow)] == [bounded(client_id)] * 2


def test_errors_are_logged_with_client_and_api(request_log: RequestLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafka.request.logger"):
        request_log.replied(finished(), HeartbeatResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        request_log.replied(finished(), HeartbeatResponse())
        request_log.replied(finished(), HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert caplog.messages == [
        "Request 1557 from client=producer_app failed with NOT_LEADER_OR_FOLLOWER (Heartbeat v4, connection a-b-0-1)"
    ]
    fields: Any = caplog.records[0].__dict__["fields"]
    assert fields["requestHeader"]["correlationId"] == 1557
    assert fields["errors"] == ("NOT_LEADER_OR_FOLLOWER",)
    (failed,) = request_log.errors
    assert (failed.api, failed.correlation_id, failed.errors) == ("Heartbeat", 1557, ("NOT_LEADER_OR_FOLLOWER",))


def test_a_client_that_repeats_a_failing_request_does_not_fill_the_log(
    request_log: RequestLog, registry: Registry, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    failing = HeartbeatResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for _ in range(2_305):
        request_log.replied(finished(), failing)
    request_log.replied(finished(FETCH), failing)
    request_log.replied(finished(), HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR))
    assert [message.count("NOT_LEADER_OR_FOLLOWER") for message in caplog.messages] == [1] * 6 + [0]
    assert len(request_log.errors) == KEPT
    errors = registry.meter(catalogue.ERRORS_PER_SEC, request="Heartbeat", error="NOT_LEADER_OR_FOLLOWER")
    registry.collect()
    assert errors.count == 2_305
    caplog.clear()
    clock.advance_ms(60_000)
    request_log.replied(finished(), failing)
    assert caplog.messages[0] == (
        "... and 2300 more in a period of 60 s: Heartbeat requests failed with NOT_LEADER_OR_FOLLOWER"
    )
    assert len(caplog.messages) == 2


def test_slow_requests_of_one_api_do_not_fill_the_log(
    request_log: RequestLog, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    request_log.set_slow_ms(10)
    for _ in range(100):
        request_log.completed(finished(), request_log.metrics.recorder())
    assert len(caplog.messages) == 5
    assert len(request_log.slow) == KEPT
    assert registry.counter(catalogue.SLOW_REQUESTS, request="Heartbeat").count == 100


def test_codes_that_the_api_knows_need_no_search(request_log: RequestLog, registry: Registry) -> None:
    request = finished()
    request.error_codes = [0, 0, 3, 6]
    request_log.replied(request, object())
    request_log.completed(request, request_log.metrics.recorder())
    registry.collect()  # as a scrape does
    counts = {
        name: registry.meter(catalogue.ERRORS_PER_SEC, request="Heartbeat", error=name).count
        for name in ("NONE", "UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER")
    }
    assert counts == {"NONE": 2, "UNKNOWN_TOPIC_OR_PARTITION": 1, "NOT_LEADER_OR_FOLLOWER": 1}


def test_times_and_sizes_are_recorded(request_log: RequestLog, registry: Registry) -> None:
    request_log.completed(finished(), request_log.metrics.recorder())
    assert sums(registry, "Heartbeat") == {
        "RequestQueueTimeMs": 1,
        "LocalTimeMs": 2,
        "RemoteTimeMs": 3,
        "ThrottleTimeMs": 0,
        "ResponseQueueTimeMs": 4,
        "ResponseSendTimeMs": 5,
        "TotalTimeMs": 15,
        "RequestBytes": 0,
        "ResponseBytes": 14,
    }
    (use,) = request_log.metrics.client_uses().items()
    assert use == ("producer_app", (1, 4, 14, 7_000_000))


@pytest.mark.usefixtures("logged_at_debug")
def test_one_api_is_logged_in_kafkas_json(request_log: RequestLog, caplog: pytest.LogCaptureFixture) -> None:
    assert request_log.wants(12)
    assert not request_log.wants(1)
    request = finished()
    request_log.received(request)
    request.message = None  # as handlers do
    request_log.replied(request, HeartbeatResponse(error_code=0))
    with caplog.at_level(logging.DEBUG, LOGGER):
        request_log.completed(request, request_log.metrics.recorder())
        request_log.completed(finished(FETCH), request_log.metrics.recorder())
    (message,) = caplog.messages
    name, _, text = message.partition(":")
    assert name == "Completed request"
    assert json.loads(text) == {
        "isForwarded": False,
        "requestHeader": {
            "requestApiKey": 12,
            "requestApiVersion": 4,
            "correlationId": 1557,
            "clientId": "producer_app",
            "requestApiKeyName": "HEARTBEAT",
        },
        "request": {"groupId": "g", "generationId": 3, "memberId": "m", "groupInstanceId": None},
        "response": {"throttleTimeMs": 0, "errorCode": 0},
        "connection": "a-b-0-1",
        "totalTimeMs": 15.0,
        "requestQueueTimeMs": 1.0,
        "localTimeMs": 2.0,
        "remoteTimeMs": 3.0,
        "throttleTimeMs": 0,
        "responseQueueTimeMs": 4.0,
        "sendTimeMs": 5.0,
        "securityProtocol": "PLAINTEXT",
        "principal": "User:ANONYMOUS",
        "listener": "PLAINTEXT",
        "clientInformation": {"softwareName": "unknown", "softwareVersion": "unknown"},
    }


def test_all_apis_are_logged_by_the_parent_logger_and_none_by_default(request_log: RequestLog) -> None:
    assert not request_log.wants(12)
    logs.set_level("kafka.request.logger", "TRACE")
    assert request_log.wants(12)
    assert request_log.wants(1)
    logs.set_level("kafka.request.logger", None)
    assert not request_log.wants(1)


def test_slow_requests_are_logged_and_kept(
    request_log: RequestLog, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    request_log.set_slow_ms(10)
    for _ in range(2):
        request_log.completed(finished(), request_log.metrics.recorder())
    assert len(caplog.messages) == 2
    assert caplog.messages[0].startswith(
        "Slow request: Heartbeat v4, correlation id 1557 from client=producer_app, connection a-b-0-1: "
        "requestQueueTimeMs=1.000, localTimeMs=2.000, remoteTimeMs=3.000, "
    )
    assert caplog.messages[0].endswith("totalTimeMs=15.000")
    assert registry.counter(catalogue.SLOW_REQUESTS, request="Heartbeat").count == 2
    assert [slow.describe()["totalTimeMs"] for slow in request_log.slow] == [15, 15]


@pytest.mark.parametrize(("api", "logged"), [(HEARTBEAT, 1), (FETCH, 0)])
def test_waiting_on_purpose_is_not_slow(
    request_log: RequestLog, caplog: pytest.LogCaptureFixture, api: Api, logged: int
) -> None:
    request_log.set_slow_ms(13)  # of 15, 3 are a wait
    request_log.completed(finished(api), request_log.metrics.recorder())
    assert len(caplog.messages) == logged


def test_without_a_threshold_the_slowest_since_the_last_read_are_kept(request_log: RequestLog) -> None:
    slower = finished()
    slower.sent_ns += 1
    for request in (finished(), finished(), slower, finished()):
        request_log.completed(request, request_log.metrics.recorder())
    assert [slow.total_ns for slow in request_log.take_slow()] == [15_000_000, 15_000_001]
    request_log.completed(finished(), request_log.metrics.recorder())
    assert len(request_log.take_slow()) == 3


def test_a_refused_request_is_not_counted(request_log: RequestLog, registry: Registry) -> None:
    request = finished()
    request.api = None
    request_log.completed(request, request_log.metrics.recorder())
    request_log.dropped(request)
    assert list(registry.collect()) == []


def test_names_of_codes() -> None:
    assert (error_name(0), error_name(-1), error_name(12345)) == ("NONE", "UNKNOWN_SERVER_ERROR", "UNKNOWN_CODE_12345")


@pytest.mark.parametrize("code", sorted(ELECTION_CODES))
def test_elections_make_no_lines_on_a_controller_of_a_quorum(
    registry: Registry, caplog: pytest.LogCaptureFixture, code: ErrorCode
) -> None:
    caplog.set_level(logging.INFO)
    message = HeartbeatResponse(error_code=code)
    plain = RequestLog(RequestMetrics(registry), registry, table={12: HEARTBEAT})
    quorum = RequestLog(RequestMetrics(registry), registry, table={12: HEARTBEAT}, routine=ELECTION_CODES)
    quorum.replied(finished(), message)
    assert (caplog.records, quorum.errors) == ([], [])
    plain.replied(finished(), message)
    assert len(caplog.records) == len(plain.errors) == 1
