"""Following up on an answer that may not be there yet.

An API returns `Reply | NoReply | Close`, or `Park` and its answer comes later, on another thread. `after` gives both
to a function that may answer differently, or later still.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.broker.answers import Answer, Close, NoReply, Park, Reply
from barnabas.broker.purgatory import Deferred, DelayedOperation
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.apis.api import Api
    from barnabas.broker.request_channel import Request

log = logging.getLogger("barnabas.faults")

Given = Reply | NoReply | Close
Follow = Callable[[Given], Answer]


def refusal(api: Api, request: Request, error: ApiError) -> Reply:
    """The API's answer to a request that failed as a whole."""
    make = api.error_response or error_response
    return Reply(make(request.message, request.header.api_version, error.code, error.message))


def carried_out(api: Api, services: Any, request: Request) -> Answer:
    """What the API answers; an error of the whole request as the reply that it becomes.

    A message that the API keeps for others who ask the same is copied: faults change what they are given.
    """
    try:
        answer = api.handle(services, request)
    except ApiError as error:
        return refusal(api, request, error)
    if isinstance(answer, Reply) and answer.encoded is not None:
        return Reply(copy.deepcopy(answer.message), answer.throttle_time_ms, answer.close_after)
    return answer


def after(api: Api, request: Request, answer: Answer, follow: Follow) -> Answer:
    """What `follow` makes of the answer, when it is there."""
    if not isinstance(answer, Park):
        return follow(answer)
    deferred = Deferred()
    _await(api, request, answer, lambda final: settle(api, request, deferred, lambda: follow(final)))
    return Park(deferred)


def settle(api: Api, request: Request, deferred: Deferred, answer: Callable[[], Answer]) -> None:
    """Complete `deferred` with an answer, when it is there; a mistake of ours becomes UNKNOWN_SERVER_ERROR."""
    try:
        given = answer()
    except Exception:
        log.exception("a faulted request of connection %s failed", request.context.connection_id)
        given = refusal(api, request, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
    if isinstance(given, Park):
        _await(api, request, given, deferred.complete)
    else:
        deferred.complete(given)


def _await(api: Api, request: Request, park: Park, take: Callable[[Given], object]) -> None:
    """Have a parked request's answer taken; as the handlers' own `_park`."""

    def completed(operation: DelayedOperation) -> None:
        try:
            outcome = operation.response()
            final = outcome if isinstance(outcome, (Reply, NoReply, Close)) else Reply(outcome)
        except ApiError as error:
            final = refusal(api, request, error)
        except Exception:
            log.exception("a parked request of connection %s failed", request.context.connection_id)
            final = refusal(api, request, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
        take(final)

    park.operation.bind(completed)
    if park.purgatory is not None:
        park.purgatory.try_complete_else_watch(park.operation, park.keys)
