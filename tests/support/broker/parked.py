"""Parked requests, as the dispatcher treats them: for tests that call APIs without handlers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.parking import Park
from barnabas.broker.requests.request import Request
from barnabas.protocol.errors import ApiError


class Waiting:
    """A parked request. `response` is None until it is answered: then a message, a NoReply, a Close or an ApiError."""

    def __init__(
        self, request: Request | None = None, complete_delayed: Callable[[Any], object] = lambda _key: None
    ) -> None:
        self.response: Any = None
        self._request = request
        self._complete_delayed = complete_delayed

    def wait(self, park: Park) -> None:
        """Bind the operation, and watch it in its purgatory."""

        def completed(_operation: DelayedOperation) -> None:
            self._go_on(park)

        park.operation.bind(completed, self._request)
        if park.purgatory is not None:
            park.purgatory.try_complete_else_watch(park.operation, park.keys)

    def _go_on(self, park: Park) -> None:
        try:
            answer = park.answer()
        except ApiError as error:
            self.response = error
            return
        if isinstance(answer, Park):
            self.wait(answer)
        else:
            self.response = answer.message if isinstance(answer, Reply) else answer
        if self._request is not None:
            moved, self._request.moved = self._request.moved, []
            for key in moved:
                self._complete_delayed(key)
