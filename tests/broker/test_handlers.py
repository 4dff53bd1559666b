"""Handlers without sockets: what becomes of a request, and of the answers APIs give."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from barnabas.broker.answers import Reply
from barnabas.broker.apis.api import Api
from barnabas.broker.handlers import Dispatcher
from barnabas.broker.request_channel import Action, Request, RequestContext, ResponseQueue
from barnabas.broker.request_log import RequestLog
from barnabas.common.clock import SystemClock
from barnabas.metrics import catalogue
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.protocol import headers
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k12_heartbeat, k18_api_versions
from tests.support.network import Services, api_versions_request, heartbeat, make_api_table

CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1")


class Bench:
    """A dispatcher, and a processor that only has a response queue."""

    def __init__(self, table: dict[int, Api] | None = None) -> None:
        self.clock = SystemClock()
        self.registry = Registry(self.clock)
        self.services = Services(self.clock)
        self.dispatcher = Dispatcher(
            table if table is not None else make_api_table(),
            self.services,
            RequestLog(RequestMetrics(self.registry)),
            self.clock,
            request_bytes_max=100_000,
        )
        self.rung = 0
        self.responses = ResponseQueue(self._ring)
        self.to_wake = self.dispatcher.enter()

    def _ring(self) -> None:
        self.rung += 1

    def handle(self, frame: bytes) -> Request:
        request = Request(None, self, CONTEXT, memoryview(bytearray(frame[4:])))
        request.received_ns = request.dequeued_ns = self.clock.monotonic_ns()
        self.dispatcher.handle(request, self.to_wake)
        return request

    def answered(self) -> Request:
        (request,) = self.responses.take_all()
        assert request.message is None, "nothing large is kept"
        assert request.buffer is None
        return request


def decoded(request: Request, message: type[Any] = k12_heartbeat.HeartbeatResponse) -> Any:
    assert request.parts is not None
    frame = b"".join(request.parts)
    assert struct.unpack_from(">i", frame) == (len(frame) - 4,)
    header = request.header
    correlation_id, offset = headers.decode_response_header(frame, header.api_key, header.api_version, 4)
    assert correlation_id == header.correlation_id
    return message.decode(frame, header.api_version, offset)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_answer_is_encoded_and_timed(bench: Bench) -> None:
    bench.handle(heartbeat("ok", 9))
    request = bench.answered()
    assert request.action is Action.SEND
    assert decoded(request).error_code == ErrorCode.NONE
    assert request.received_ns <= request.dequeued_ns <= request.api_local_done_ns <= request.api_remote_done_ns
    assert request.client_id == "test"


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("error", ErrorCode.NOT_COORDINATOR),
        ("mistake", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("not-encodable", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failures_become_error_responses(bench: Bench, kind: str, code: ErrorCode) -> None:
    bench.handle(heartbeat(kind))
    assert decoded(bench.answered()).error_code == code
    assert bench.registry.meter(catalogue.ERRORS_PER_SEC, request="Heartbeat", error=code.name).count == 1


def test_an_api_may_build_its_own_error_response() -> None:
    def fail(_services: Any, _request: Request) -> Reply:
        raise ApiError(ErrorCode.NOT_COORDINATOR, "gone")

    def respond(_message: Any, version: int, code: int, _text: str | None) -> Any:
        return k12_heartbeat.HeartbeatResponse(error_code=code, throttle_time_ms=version)

    bench = Bench({12: Api(12, "Heartbeat", (0, 4), fail, error_response=respond)})
    bench.handle(heartbeat("ok"))
    assert decoded(bench.answered()).throttle_time_ms == 4


def test_an_error_that_cannot_be_said_closes() -> None:
    def fail(*_: Any) -> Any:
        raise ApiError(ErrorCode.NOT_COORDINATOR)

    bench = Bench({12: Api(12, "Heartbeat", (0, 4), fail, error_response=fail)})
    bench.handle(heartbeat("ok"))
    assert bench.answered().action is Action.CLOSE

    def unspeakable(*_: Any) -> Any:
        return k12_heartbeat.HeartbeatResponse(error_code=10**6)

    bench = Bench({12: Api(12, "Heartbeat", (0, 4), fail, error_response=unspeakable)})
    bench.handle(heartbeat("ok"))
    assert bench.answered().action is Action.CLOSE


@pytest.mark.parametrize(
    ("kind", "action", "throttle_ms"),
    [
        ("none", Action.NO_OP, 0),
        ("none-throttled:9", Action.NO_OP, 9),
        ("throttle:8", Action.SEND, 8),
        ("last", Action.SEND_AND_CLOSE, 0),
        ("close", Action.CLOSE, 0),
    ],
)
def test_every_answer_has_its_action(bench: Bench, kind: str, action: Action, throttle_ms: int) -> None:
    bench.handle(heartbeat(kind))
    request = bench.answered()
    assert (request.action, request.api_throttle_ms) == (action, throttle_ms)


def test_a_parked_request_is_answered_once_when_its_key_moves(bench: Bench) -> None:
    bench.handle(heartbeat("park"))
    assert bench.responses.take_all() == []
    (deferred,) = bench.services.deferred
    assert bench.services.purgatory.operations_for("key") == [deferred]
    assert deferred.complete(k12_heartbeat.HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert decoded(bench.answered()).error_code == ErrorCode.ILLEGAL_GENERATION
    deferred.force_complete()
    assert bench.responses.take_all() == []


def test_a_parked_request_that_fails_is_answered_too(bench: Bench) -> None:
    bench.handle(heartbeat("park"))
    bench.services.deferred[0]._on_timeout = lambda: k12_heartbeat.HeartbeatResponse(error_code=10**6)
    bench.services.deferred[0].force_complete()
    assert decoded(bench.answered()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    def fail() -> Any:
        raise ApiError(ErrorCode.FENCED_INSTANCE_ID)

    bench.handle(heartbeat("park"))
    bench.services.deferred[1]._on_timeout = fail
    bench.services.deferred[1].force_complete()
    assert decoded(bench.answered()).error_code == ErrorCode.FENCED_INSTANCE_ID


def test_keys_that_moved_are_woken_after_the_answer(bench: Bench) -> None:
    bench.handle(heartbeat("move:k"))
    assert bench.services.completed == ["k"]
    bench.handle(heartbeat("move:broken"))
    assert len(bench.responses.take_all()) == 2


def test_sleeping_processors_are_left_to_the_handler(bench: Bench) -> None:
    bench.responses.may_sleep()
    bench.handle(heartbeat("ok"))
    assert (bench.rung, bench.to_wake) == (0, [bench.responses])
    bench.handle(heartbeat("ok"))
    assert bench.to_wake == [bench.responses]
    bench.responses.take_all()
    bench.responses.may_sleep()
    bench.to_wake.clear()
    bench.handle(heartbeat("park"))
    bench.services.deferred[0].force_complete()
    assert (bench.rung, bench.to_wake) == (0, [bench.responses]), "a handler that answers a request of another, too"


def test_who_is_no_handler_wakes_at_once(bench: Bench) -> None:
    bench.responses.may_sleep()
    bench.handle(heartbeat("park"))
    bench.dispatcher.leave()
    bench.services.deferred[0].force_complete()
    assert (bench.rung, bench.to_wake) == (1, [])


def test_apiversions_too_new_is_answered_in_version_0(bench: Bench) -> None:
    frame = bytearray(api_versions_request(3))
    frame[6:8] = struct.pack(">h", 99)
    bench.handle(bytes(frame))
    response = decoded(bench.answered(), k18_api_versions.ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [
        (1, 4, 12),
        (12, 0, 4),
        (18, 0, 4),
    ]


def test_what_cannot_be_understood_closes(bench: Bench) -> None:
    bench.handle(heartbeat("ok")[:10])
    assert bench.answered().action is Action.CLOSE


@pytest.mark.parametrize(("size", "action"), [(100_000, Action.SEND), (100_001, Action.CLOSE)])
def test_a_request_too_large_for_its_kind_is_refused_before_it_is_decoded(
    bench: Bench, size: int, action: Action, caplog: pytest.LogCaptureFixture
) -> None:
    frame = heartbeat("ok", 9) + bytes(size)
    bench.handle(frame[: size + 4])
    (request,) = bench.responses.take_all()
    assert request.action is action
    assert ("a Heartbeat request of 100001 bytes is larger than 100000" in caplog.text) == (size > 100_000)


def test_a_large_request_that_its_api_does_not_admit_is_refused_before_it_is_decoded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(_services: Any, _request: Request) -> Reply:
        raise AssertionError

    bench = Bench({12: Api(12, "Heartbeat", (0, 4), fail, admits=lambda _services, frame: frame[-1] == 1)})
    bench.handle((heartbeat("ok") + bytes(90_000))[:90_004])
    (request,) = bench.responses.take_all()
    assert request.action is Action.CLOSE
    assert "is not for this process" in caplog.text
