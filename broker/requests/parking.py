"""Parking: an answer that is not known yet.

An API returns an `Answer`. `Park` leaves the request to a `DelayedOperation`. `Continuation` is a `Park` after which
the request goes on instead of being answered. `then` passes an answer to a function that may replace it, whether the
answer is known already or not.

Rules
1. Only the dispatcher binds an operation and watches it in its purgatory.
2. A continuation runs on the thread that completed the operation. It never blocks: to wait again it returns another
   `Park`.

Threads: a `Park` is a value, made by one thread. `Park.answer` is called once, by the thread that completed the
operation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from barnabas.broker.requests.answers import Close, Ending, NoReply, Reply, ending
from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.purgatory import DelayedOperation, Purgatory


class Park:
    """Answer later, when `operation` completes.

    With a purgatory the operation is tried, watched under `keys` and timed. `purgatory` None is for a `Deferred` that
    its owner completes.
    """

    __slots__ = ("keys", "operation", "purgatory")

    def __init__(
        self, operation: DelayedOperation, purgatory: Purgatory | None = None, keys: Sequence[Hashable] = ()
    ) -> None:
        self.operation = operation
        self.purgatory = purgatory
        self.keys = keys

    def answer(self) -> Answer:
        """Return the answer of the completed operation; raises what its `response` raises."""
        return ending(self.operation.response())


class Continuation(Park):
    """Continue the request when `operation` completes: `resume` returns its answer, or the next `Park`.

    `resume` may raise ApiError, which becomes the API's error response.
    """

    __slots__ = ("_resume",)

    def __init__(
        self,
        operation: DelayedOperation,
        resume: Callable[[], Answer],
        purgatory: Purgatory | None = None,
        keys: Sequence[Hashable] = (),
    ) -> None:
        super().__init__(operation, purgatory, keys)
        self._resume = resume

    def answer(self) -> Answer:
        """Continue the request."""
        return self._resume()


Answer: TypeAlias = Reply | NoReply | Close | Park

Follow: TypeAlias = Callable[[Ending], Answer]
Refuse: TypeAlias = Callable[[ApiError], Ending]


def then(answer: Answer, follow: Follow, refuse: Refuse | None = None) -> Answer:
    """Return what `follow` makes of an answer: now if it is known, else when it is.

    If a wait ends with an ApiError, `follow` gets what `refuse` makes of it; without `refuse` the error is the answer.
    """
    if not isinstance(answer, Park):
        return follow(answer)
    return Continuation(answer.operation, lambda: _resumed(answer, follow, refuse), answer.purgatory, answer.keys)


def _resumed(park: Park, follow: Follow, refuse: Refuse | None) -> Answer:
    try:
        answer = park.answer()
    except ApiError as error:
        if refuse is None:
            raise
        answer = refuse(error)
    return then(answer, follow, refuse)
