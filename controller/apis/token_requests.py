"""The common part of the APIs of delegation tokens: who may send them, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import ANONYMOUS, Request
from barnabas.controller.apis.services import ControllerServices, decide_once, same
from barnabas.controller.decision import Decision, View
from barnabas.controller.decisions.security.tokens import Caller
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.schema import Message

M = TypeVar("M", bound=Message)


def decide_for_caller(
    services: ControllerServices,
    request: Request,
    decide: Callable[[View, Any, Caller], Decision[M]],
    *,
    keeps_answer: bool = True,
) -> Answer:
    """Submit a decision about tokens; raises DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.

    A client must have authenticated, and not by a token: else a token could be renewed for ever.
    """
    if request.principal == ANONYMOUS or request.context.is_token_authenticated:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    message = request.message
    caller = Caller(request.principal, services.clock.wall_ms(), request.context.token_id)
    name = type(message).NAME
    return decide_once(
        services, request, name, lambda view: decide(view, message, caller), same, keeps_answer=keeps_answer
    )
