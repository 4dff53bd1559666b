"""Parking: what follows a wait (broker/requests/parking.py)."""

from __future__ import annotations

import pytest

from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import NO_REPLY, Close, Ending, NoReply
from barnabas.broker.requests.parking import Answer, Continuation, Park, then
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.support.broker.parked import Waiting


class Failing(Deferred):
    """Completes with an error of the whole request."""

    def response(self) -> NoReply:
        raise ApiError(ErrorCode.INVALID_REQUEST)


def closed(_given: Ending) -> Answer:
    return Close("followed")


def waiting_for(answer: Answer) -> Waiting:
    assert isinstance(answer, Park)
    waiting = Waiting()
    waiting.wait(answer)
    return waiting


def test_a_known_answer_is_followed_at_once() -> None:
    given = NoReply()
    assert then(given, lambda answer: answer) is given


def test_a_later_answer_is_followed_when_it_comes() -> None:
    deferred = Deferred()
    waiting = waiting_for(then(Park(deferred), closed))
    assert waiting.response is None
    deferred.complete(NO_REPLY)
    assert isinstance(waiting.response, Close)


def test_what_follows_may_wait_again_and_be_followed_in_turn() -> None:
    first, second = Deferred(), Deferred()
    answer = then(then(Park(first), lambda _given: Park(second)), closed)
    waiting = waiting_for(answer)
    first.complete(NO_REPLY)
    assert waiting.response is None
    second.complete(NO_REPLY)
    assert isinstance(waiting.response, Close)


def test_a_continuation_resumes_on_completion() -> None:
    deferred = Deferred()
    waiting = waiting_for(Continuation(deferred, lambda: NO_REPLY))
    assert waiting.response is None
    deferred.force_complete()
    assert waiting.response is NO_REPLY


def test_an_error_is_the_answer_unless_it_is_refused() -> None:
    failing = Failing()
    waiting = waiting_for(then(Park(failing), closed))
    failing.force_complete()
    assert isinstance(waiting.response, ApiError)


def test_a_refused_error_is_followed() -> None:
    failing, seen = Failing(), []

    def follow(given: Ending) -> Answer:
        seen.append(given)
        return given

    waiting = waiting_for(then(Park(failing), follow, lambda error: Close(error.code.name)))
    failing.force_complete()
    (given,) = seen
    assert isinstance(given, Close)
    assert given.reason == "INVALID_REQUEST"
    assert waiting.response is given


@pytest.mark.parametrize("is_parked", [False, True])
def test_an_error_of_a_continuation_is_the_requests(is_parked: bool) -> None:
    def resume() -> Answer:
        if is_parked:
            return Park(failing)
        raise ApiError(ErrorCode.INVALID_REQUEST)

    deferred, failing = Deferred(), Failing()
    failing.force_complete()
    waiting = waiting_for(Continuation(deferred, resume))
    deferred.force_complete()
    assert isinstance(waiting.response, ApiError)
