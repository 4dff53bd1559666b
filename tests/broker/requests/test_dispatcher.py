"""The dispatcher without sockets or threads: how each kind of request ends.

Also covers `requests/answers.py` and `requests/request.py`.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import struct
import weakref
from typing import Any

import pytest

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.purgatory import Deferred
from barnabas.broker.quotas.throttle import UNTHROTTLED, Throttle
from barnabas.broker.request_channel import ResponseQueue
from barnabas.broker.requests.answers import NO_REPLY, Close, Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.dispatcher import Dispatcher
from barnabas.broker.requests.parking import Answer, Continuation, Park
from barnabas.broker.requests.request import Action, Request, RequestContext
from barnabas.broker.requests.request_log import RequestLog
from barnabas.common.clock import SystemClock
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.metrics.table import catalogue
from barnabas.protocol import api_keys, headers
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages import k12_heartbeat, k18_api_versions, response_class
from tests.broker.authorization.kit import authorizer, lacking
from tests.support.broker.network import Services, api_versions_request, heartbeat, make_api_table

CONTEXT = RequestContext("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "a-b-0-1")


class DispatcherBench:
    """A dispatcher, and a processor that only has a response queue."""

    def __init__(self, table: dict[int, Api] | None = None, quotas: Any = None) -> None:
        self.clock = SystemClock()
        self.registry = Registry(self.clock)
        self.services = Services(self.clock)
        self.dispatcher = Dispatcher(
            table if table is not None else make_api_table(),
            self.services,
            RequestLog(RequestMetrics(self.registry)),
            self.clock,
            request_bytes_max=100_000,
            quotas=quotas,
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
def bench() -> DispatcherBench:
    return DispatcherBench()


def test_an_answer_is_encoded_and_timed(bench: DispatcherBench) -> None:
    bench.handle(heartbeat("ok", 9))
    request = bench.answered()
    assert request.action is Action.SEND
    assert decoded(request).error_code == ErrorCode.NONE
    assert request.received_ns <= request.dequeued_ns <= request.api_local_done_ns <= request.api_remote_done_ns
    assert request.client_id == "test"


def test_the_errors_of_a_connection_that_is_closed_instead_of_an_answer_are_counted() -> None:
    """As Kafka counts those of a produce with acks=0."""
    codes = [0, ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE]
    bench = DispatcherBench(answering(Close("no", error_codes=codes)))
    bench.handle(heartbeat("ok"))
    assert bench.answered().action is Action.CLOSE
    assert bench.registry.meter(catalogue.ERRORS_PER_SEC, request="Heartbeat", error="CORRUPT_MESSAGE").count == 2


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("error", ErrorCode.NOT_COORDINATOR),
        ("bug", ErrorCode.UNKNOWN_SERVER_ERROR),
        ("not-encodable", ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_failures_become_error_responses(bench: DispatcherBench, kind: str, code: ErrorCode) -> None:
    bench.handle(heartbeat(kind))
    assert decoded(bench.answered()).error_code == code
    assert bench.registry.meter(catalogue.ERRORS_PER_SEC, request="Heartbeat", error=code.name).count == 1


def test_an_api_may_build_its_own_error_response() -> None:
    def fail(_services: Any, _request: Request) -> Reply:
        raise ApiError(ErrorCode.NOT_COORDINATOR, "gone")

    def respond(_message: Any, version: int, code: int, _text: str | None) -> Any:
        return k12_heartbeat.HeartbeatResponse(error_code=code, throttle_time_ms=version)

    bench = DispatcherBench({12: Api(12, "Heartbeat", (0, 4), fail, error_response=respond)})
    bench.handle(heartbeat("ok"))
    assert decoded(bench.answered()).throttle_time_ms == 4


def test_an_error_without_error_response_closes() -> None:
    def fail(*_: Any) -> Any:
        raise ApiError(ErrorCode.NOT_COORDINATOR)

    bench = DispatcherBench({12: Api(12, "Heartbeat", (0, 4), fail, error_response=fail)})
    bench.handle(heartbeat("ok"))
    assert bench.answered().action is Action.CLOSE

    def unspeakable(*_: Any) -> Any:
        return k12_heartbeat.HeartbeatResponse(error_code=10**6)

    bench = DispatcherBench({12: Api(12, "Heartbeat", (0, 4), fail, error_response=unspeakable)})
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
def test_every_answer_has_its_action(bench: DispatcherBench, kind: str, action: Action, throttle_ms: int) -> None:
    bench.handle(heartbeat(kind))
    request = bench.answered()
    assert (request.action, request.api_throttle_ms) == (action, throttle_ms)


def test_a_parked_request_is_answered_once_when_its_key_moves(bench: DispatcherBench) -> None:
    bench.handle(heartbeat("park"))
    assert bench.responses.take_all() == []
    (deferred,) = bench.services.deferred
    assert bench.services.purgatory.watched() == 1
    assert deferred.complete(k12_heartbeat.HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert decoded(bench.answered()).error_code == ErrorCode.ILLEGAL_GENERATION
    deferred.force_complete()
    assert bench.responses.take_all() == []


def test_a_parked_request_that_fails_is_answered_too(bench: DispatcherBench) -> None:
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


def test_a_continuation_may_park_again_and_its_moved_keys_are_checked() -> None:
    first, second = Deferred(), Deferred()

    def park(_services: Any, request: Request) -> Answer:
        request.moved.append("before")

        def resume() -> Answer:
            request.moved.append("after")
            return Park(second)

        return Continuation(first, resume)

    bench = DispatcherBench({12: Api(12, "Heartbeat", (0, 4), park)})
    request = bench.handle(heartbeat("parked"))
    assert (request.operation, bench.services.completed) == (first, ["before"])
    first.force_complete()
    assert (request.operation, bench.services.completed) == (second, ["before", "after"])
    assert bench.responses.take_all() == []
    second.complete(k12_heartbeat.HeartbeatResponse(error_code=ErrorCode.ILLEGAL_GENERATION))
    assert decoded(bench.answered()).error_code == ErrorCode.ILLEGAL_GENERATION
    assert bench.services.completed == ["before", "after"]


@pytest.mark.parametrize("is_completed_early", [False, True])
@pytest.mark.parametrize("is_continuation", [False, True])
def test_an_answered_request_leaves_no_reference_cycle(is_continuation: bool, is_completed_early: bool) -> None:
    """Why: every long poll parks; a cycle would keep its request and response until the garbage collector runs."""

    class Waiting(Deferred):
        pass

    held: list[Waiting] = []

    def park(*_: Any) -> Answer:
        waiting = Waiting()
        held.append(waiting)
        if is_completed_early:
            waiting.complete(k12_heartbeat.HeartbeatResponse())
        return Continuation(waiting, lambda: Reply(waiting.response())) if is_continuation else Park(waiting)

    bench = DispatcherBench({12: Api(12, "Heartbeat", (0, 4), park)})
    gc.disable()
    try:
        bench.handle(heartbeat("parked"))
        held[0].complete(k12_heartbeat.HeartbeatResponse())
        there = weakref.ref(held.pop())
        assert decoded(bench.answered()).error_code == ErrorCode.NONE
        assert there() is None
    finally:
        gc.enable()


def test_a_bug_in_a_continuation_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    def park(*_: Any) -> Answer:
        return Continuation(deferred, fail)

    def fail() -> Answer:
        raise RuntimeError("our bug")

    deferred = Deferred()
    bench = DispatcherBench({12: Api(12, "Heartbeat", (0, 4), park)})
    bench.handle(heartbeat("parked"))
    deferred.force_complete()
    assert decoded(bench.answered()).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "our bug" in caplog.text


def test_moved_keys_are_checked_after_the_answer(bench: DispatcherBench) -> None:
    bench.handle(heartbeat("move:k"))
    assert bench.services.completed == ["k"]
    bench.handle(heartbeat("move:broken"))
    assert len(bench.responses.take_all()) == 2


def test_sleeping_processors_are_left_to_the_handler(bench: DispatcherBench) -> None:
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
    assert (bench.rung, bench.to_wake) == (0, [bench.responses]), "also when a handler answers another one's request"


def test_a_thread_that_is_no_handler_wakes_at_once(bench: DispatcherBench) -> None:
    bench.responses.may_sleep()
    bench.handle(heartbeat("park"))
    bench.dispatcher.leave()
    bench.services.deferred[0].force_complete()
    assert (bench.rung, bench.to_wake) == (1, [])


def test_apiversions_too_new_is_answered_in_version_0(bench: DispatcherBench) -> None:
    frame = bytearray(api_versions_request(3))
    frame[6:8] = struct.pack(">h", 99)
    bench.handle(bytes(frame))
    response = decoded(bench.answered(), k18_api_versions.ApiVersionsResponse)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in response.api_keys] == [(18, 0, 4)]


def test_the_rows_of_the_table_can_change_while_requests_come() -> None:
    """A broker that starts closes connections; slow motion delays what APIs do."""
    table = make_api_table()
    whole = table[12]
    table[12] = dataclasses.replace(whole, handle=lambda _services, _request: Close("the broker is starting"))
    bench = DispatcherBench(table)
    bench.handle(heartbeat("ok"))
    assert bench.answered().action is Action.CLOSE
    table[12] = whole
    bench.handle(heartbeat("ok"))
    assert decoded(bench.answered()).error_code == ErrorCode.NONE


def test_a_request_that_cannot_be_decoded_closes(bench: DispatcherBench) -> None:
    bench.handle(heartbeat("ok")[:10])
    assert bench.answered().action is Action.CLOSE


@pytest.mark.parametrize(("size", "action"), [(100_000, Action.SEND), (100_001, Action.CLOSE)])
def test_a_request_too_large_for_its_kind_is_refused_before_it_is_decoded(
    bench: DispatcherBench, size: int, action: Action, caplog: pytest.LogCaptureFixture
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

    bench = DispatcherBench({12: Api(12, "Heartbeat", (0, 4), fail, admits=lambda _services, frame: frame[-1] == 1)})
    bench.handle((heartbeat("ok") + bytes(90_000))[:90_004])
    (request,) = bench.responses.take_all()
    assert request.action is Action.CLOSE
    assert "is not for this process" in caplog.text


def test_clients_that_are_refused_again_and_again_do_not_fill_the_log(
    bench: DispatcherBench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(100):
        bench.handle(heartbeat("ok")[:10])
        bench.handle(heartbeat("bug"))
    begins = ("closing connection a-b-0-1: ", "Heartbeat v4, correlation id", "Request 1 from client=test failed")
    assert [sum(message.startswith(begin) for message in caplog.messages) for begin in begins] == [5, 5, 5]
    assert len(caplog.messages) == 15


def test_connections_closed_instead_of_an_answer_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench = DispatcherBench(answering(Close("no reason")))
    for _ in range(100):
        bench.handle(heartbeat("ok"))
    assert caplog.messages == ["closing connection a-b-0-1 instead of answering Heartbeat: no reason"] * 5


class AlwaysThrottled:
    """Quotas that let every client wait."""

    request = object()

    def __init__(self) -> None:
        self.charged = 0

    def charge(self, _request: Request) -> Throttle:
        self.charged += 1
        return Throttle(500, "request_percentage")


def answering(answer: Answer) -> dict[int, Api]:
    return {12: Api(12, "Heartbeat", (0, 4), lambda _services, _request: answer)}


def test_a_response_names_the_wait_of_a_quota() -> None:
    cached = k12_heartbeat.HeartbeatResponse()
    bench = DispatcherBench(answering(Reply(cached, encoded=cached.encode(4))), AlwaysThrottled())
    bench.handle(heartbeat("now", version=4))
    request = bench.answered()
    assert request.api_throttle_ms == 500
    assert request.throttle == Throttle(500, "request_percentage")
    assert decoded(request).throttle_time_ms == 500
    assert cached.throttle_time_ms == 0, "a cached message is not changed"


def test_the_longer_wait_is_named() -> None:
    message = k12_heartbeat.HeartbeatResponse(throttle_time_ms=900)
    bench = DispatcherBench(answering(Reply(message, throttle_time_ms=900)), AlwaysThrottled())
    bench.handle(heartbeat("now", version=4))
    request = bench.answered()
    assert (request.api_throttle_ms, decoded(request).throttle_time_ms) == (900, 900)


def test_an_answer_without_a_response_can_be_throttled_too() -> None:
    bench = DispatcherBench(answering(NO_REPLY), AlwaysThrottled())
    bench.handle(heartbeat("now", version=4))
    assert bench.answered().api_throttle_ms == 500
    assert NO_REPLY.throttle_time_ms == 0
    closing = DispatcherBench(answering(Close("no")), AlwaysThrottled())
    closing.handle(heartbeat("now", version=4))
    assert closing.answered().action == Action.CLOSE


def test_an_api_that_charged_its_request_is_not_charged_again() -> None:
    def charge(_services: Any, request: Request) -> Reply:
        request.throttle = UNTHROTTLED
        return Reply(k12_heartbeat.HeartbeatResponse())

    quotas = AlwaysThrottled()
    bench = DispatcherBench({12: Api(12, "Heartbeat", (0, 4), charge)}, quotas)
    bench.handle(heartbeat("now", version=4))
    assert (bench.answered().api_throttle_ms, quotas.charged) == (0, 0)


def test_errors_are_charged() -> None:
    def fail(_services: Any, _request: Request) -> Reply:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)

    quotas = AlwaysThrottled()
    bench = DispatcherBench({12: Api(12, "Heartbeat", (0, 4), fail)}, quotas)
    bench.handle(heartbeat("now", version=4))
    assert (bench.answered().api_throttle_ms, quotas.charged) == (500, 1)


def test_every_response_can_carry_a_throttle_time() -> None:
    for key in api_keys.ROWS:
        message = response_class(key)()
        if hasattr(message, "throttle_time_ms"):
            message.throttle_time_ms = 5
            for version in range(message.MIN_VERSION, message.MAX_VERSION + 1):
                message.encode(version)


def test_an_authorizer_is_asked_before_the_api() -> None:
    bench = DispatcherBench()
    by = lacking(rights.HEARTBEAT)
    dispatcher = Dispatcher(
        make_api_table(), bench.services, RequestLog(RequestMetrics(bench.registry)), bench.clock, authorizer=by
    )
    to_wake = dispatcher.enter()
    request = Request(None, bench, CONTEXT, memoryview(bytearray(heartbeat("g")[4:])))
    dispatcher.handle(request, to_wake)
    assert request.action is Action.SEND
    assert request.error_codes in (None, [ErrorCode.GROUP_AUTHORIZATION_FAILED])
    assert request.access is not None
    assert request.access.principal == CONTEXT.principal


def test_a_request_before_the_acls_have_arrived_closes_its_connection() -> None:
    bench = DispatcherBench()
    dispatcher = Dispatcher(
        make_api_table(),
        bench.services,
        RequestLog(RequestMetrics(bench.registry)),
        bench.clock,
        authorizer=authorizer(None),
    )
    to_wake = dispatcher.enter()
    request = Request(None, bench, CONTEXT, memoryview(bytearray(heartbeat("g")[4:])))
    dispatcher.handle(request, to_wake)
    assert request.action is Action.CLOSE
