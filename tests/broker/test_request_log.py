"""What is kept of finished requests."""

from __future__ import annotations

import logging

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages.k12_heartbeat import HeartbeatResponse
from broker.answers import NO_REPLY
from broker.apis.api import Api
from broker.request_channel import Request, RequestContext
from broker.request_log import RequestLog, error_name
from metrics import catalogue
from metrics.registry import Registry
from metrics.request_metrics import RequestMetrics

CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1")


def finished() -> Request:
    header = RequestHeader(12, 4, 1557, "producer_app")
    request = Request.for_message(header, HeartbeatResponse(), CONTEXT)
    request.api = Api(12, "Heartbeat", (0, 4), lambda *_: NO_REPLY)
    request.received_ns = 1_000_000
    request.dequeued_ns = 2_000_000
    request.api_local_done_ns = 4_000_000
    request.api_remote_done_ns = 7_000_000
    request.response_dequeued_ns = 11_000_000
    request.sent_ns = 16_000_000
    return request


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def request_log(registry: Registry) -> RequestLog:
    return RequestLog(RequestMetrics(registry))


def test_errors_are_logged_with_who_and_what(request_log: RequestLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafka.request.logger"):
        request_log.replied(finished(), HeartbeatResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        request_log.replied(finished(), HeartbeatResponse())
        request_log.replied(finished(), HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    assert caplog.messages == [
        "Request 1557 from client=producer_app failed with NOT_LEADER_OR_FOLLOWER (Heartbeat v4, connection a-b-0-1)"
    ]


def test_codes_that_the_api_knows_need_no_search(request_log: RequestLog, registry: Registry) -> None:
    request = finished()
    request.error_codes = [0, 0, 3, 6]
    request_log.replied(request, object())
    counts = {
        name: registry.meter(catalogue.ERRORS_PER_SEC, request="Heartbeat", error=name).count
        for name in ("NONE", "UNKNOWN_TOPIC_OR_PARTITION", "NOT_LEADER_OR_FOLLOWER")
    }
    assert counts == {"NONE": 2, "UNKNOWN_TOPIC_OR_PARTITION": 1, "NOT_LEADER_OR_FOLLOWER": 1}


def test_times_are_recorded_and_logged_if_asked(
    request_log: RequestLog, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "kafka.request.logger"):
        request_log.completed(finished())
    for expected in ("requestQueueTimeMs=1.000", "localTimeMs=2.000", "remoteTimeMs=3.000", "totalTimeMs=15.000"):
        assert expected in caplog.text
    sums = [
        registry.histogram(row, request="Heartbeat").snapshot(0).sum
        for row in (catalogue.RESPONSE_QUEUE_TIME_MS, catalogue.RESPONSE_SEND_TIME_MS, catalogue.TOTAL_TIME_MS)
    ]
    assert sums == [4, 5, 15]


def test_what_was_never_understood_is_not_counted(request_log: RequestLog, registry: Registry) -> None:
    request = finished()
    request.api = None
    request_log.completed(request)
    request_log.dropped(request)
    assert list(registry.collect()) == []


def test_names_of_codes() -> None:
    assert (error_name(0), error_name(-1), error_name(12345)) == ("NONE", "UNKNOWN_SERVER_ERROR", "UNKNOWN_CODE_12345")
