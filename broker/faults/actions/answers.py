"""The answers of an API, as faults follow up on them.

An answer may not be there yet (`Park`); `then` (broker/requests/parking.py) passes both kinds to a function that may
answer differently, or later still.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.parking import Answer
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.request import Request


def refusal(api: Api, request: Request, error: ApiError) -> Reply:
    """Return the API's answer to a request that failed as a whole."""
    make = api.error_response or error_response
    return Reply(make(request.message, request.header.api_version, error.code, error.message))


def carried_out(api: Api, services: Any, request: Request) -> Answer:
    """Return the API's answer; an error of the whole request as the reply that it becomes.

    A message that is cached for other clients is copied, since faults change messages in place.
    """
    try:
        answer = api.handle(services, request)
    except ApiError as error:
        return refusal(api, request, error)
    if isinstance(answer, Reply) and answer.encoded is not None:
        return Reply(copy.deepcopy(answer.message), answer.throttle_time_ms, answer.close_after)
    return answer
