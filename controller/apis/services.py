"""What the controller's APIs may use, and the one way from a request to the event thread and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.answers import Park
from barnabas.broker.purgatory import Deferred, Outcome
from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.apis.api import Table
    from barnabas.common.clock import Clock
    from barnabas.controller.decision import Decision, View
    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.metrics.registry import Registry

R = TypeVar("R")


@dataclass(slots=True)
class ControllerServices:
    """Every field is fixed before start."""

    config: Any  # barnabas.config.Config
    cluster_id: str
    clock: Clock
    registry: Registry
    controller: QuorumController
    endpoints: tuple[tuple[int, str, int], ...]  # (node id, host, port) at which controllers are reached
    table: Table

    def complete_delayed(self, key: Any) -> None:
        """Nothing waits for keys here: every parked request is a Deferred of the event thread."""


class ControllerReply(Deferred):
    """The answer of the event thread: a message, or an error that becomes the API's error response."""

    __slots__ = ("_error",)

    def __init__(self) -> None:
        super().__init__()
        self._error: ApiError | None = None  # set by the event thread before completion

    def fail(self, error: ApiError) -> None:
        """Answer with an error of the whole request."""
        self._error = error
        self.force_complete()

    def response(self) -> Outcome:
        """See Deferred; raises the error."""
        if self._error is not None:
            raise self._error
        return super().response()


def decide_later(
    services: ControllerServices,
    name: str,
    decide: Callable[[View], Decision[R]],
    answer: Callable[[R], Outcome],
    timeout_ms: int | None = None,
) -> Park:
    """Submit a decision to the event thread; `answer` turns what it gave into the response."""
    reply = ControllerReply()
    services.controller.submit(name, decide, lambda result: _complete(reply, answer(result)), reply.fail, timeout_ms)
    return Park(reply)


def _complete(reply: ControllerReply, outcome: Outcome) -> None:
    reply.complete(outcome)


def same(message: Any) -> Any:
    """The answer is what was decided."""
    return message
