"""What the controller's APIs share (controller/apis/services.py)."""

from __future__ import annotations

import contextlib

import pytest

from barnabas.controller.apis.services import ControllerReply
from barnabas.protocol.errors import ApiError, ErrorCode
from tests.support.cycles import cyclic_garbage


def refused() -> ControllerReply:
    """Return a reply to a request that is refused as the event thread refuses it."""
    reply = ControllerReply()
    try:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, "too old")
    except ApiError as error:
        reply.fail(error)
    return reply


def test_a_refusal_becomes_the_error_of_the_request() -> None:
    with pytest.raises(ApiError, match="too old") as caught:
        refused().response()
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_refusal_leaves_no_cycle() -> None:
    def work() -> None:
        with contextlib.suppress(ApiError):
            refused().response()

    assert cyclic_garbage(work) == 0
