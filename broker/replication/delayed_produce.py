"""DelayedProduce: an acks=all request waiting for its batches to be on all in-sync replicas.

States of a partition: pending (appended, not yet safe) -> acknowledged, or failed (no longer leader; ISR too small).
The request is answered when none is pending (A: high watermark passed; B: leadership lost; C: an error), or when its
time is up: then the pending ones say REQUEST_TIMED_OUT though they may still become safe.

Source: Kafka's DelayedProduce (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.replication.waiting import produce_reasons
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.purgatory import Outcome
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.common.live_shape import Reason
    from barnabas.common.topic_partition import TopicPartition

Pending = dict["TopicPartition", int]  # the offset (exclusive) that must be safe
Errors = dict["TopicPartition", ErrorCode]


class DelayedProduce(DelayedOperation):
    """`respond(errors)` builds the answer: `errors` has an entry for each awaited partition that failed."""

    __slots__ = ("_errors", "_manager", "_pending", "_respond")

    def __init__(
        self,
        manager: ReplicaManager,
        pending: Iterable[tuple[TopicPartition, int]],
        delay_ms: int,
        respond: Callable[[Errors], Outcome],
    ) -> None:
        super().__init__(delay_ms)
        self._manager = manager  # fixed before start
        self._pending: Pending = dict(pending)  # changed under lock; one whose time is up is read without it
        self._errors: Errors = {}  # likewise
        self._respond = respond  # fixed before start

    def try_complete(self) -> bool:
        """Complete when no partition is pending any more."""
        for tp, required_offset in list(self._pending.items()):
            is_done, error = self._look_at(tp, required_offset)
            if is_done or error != ErrorCode.NONE:
                # Why in this order: `response` reads them in the other one, without the lock when the time is up.
                if error != ErrorCode.NONE:
                    self._errors[tp] = error
                del self._pending[tp]
        return not self._pending and self.force_complete()

    def _look_at(self, tp: TopicPartition, required_offset: int) -> tuple[bool, ErrorCode]:
        try:
            return self._manager.partition(tp).has_reached(required_offset)
        except ApiError as error:
            return False, error.code

    def waits_for(self) -> list[Reason]:
        """Tell which replicas lack what was appended, or what else keeps a high watermark."""
        return produce_reasons(self._manager, list(self._pending.items()))

    def response(self) -> Outcome:
        """Answer; whatever is pending now has run out of time."""
        errors = dict.fromkeys(self._pending, ErrorCode.REQUEST_TIMED_OUT)
        return self._respond({**errors, **self._errors})

    def on_expiration(self) -> None:
        """Count the partitions that did not make it."""
        for tp in list(self._pending):
            self._manager.count_produce_expiration(tp)


class DelayedAppend(DelayedProduce):
    """The wait of an append that no request made: `on_done(error)` when it is safe, or failed."""

    __slots__ = ("_on_done", "_tp")

    def __init__(
        self,
        manager: ReplicaManager,
        tp: TopicPartition,
        required: int,
        delay_ms: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        super().__init__(manager, [(tp, required)], delay_ms, lambda _errors: _never_sent())
        self._tp = tp  # fixed before start
        self._on_done = on_done  # fixed before start

    def on_complete(self) -> None:
        late = ErrorCode.REQUEST_TIMED_OUT if self._tp in self._pending else ErrorCode.NONE
        self._on_done(self._errors.get(self._tp, late))


def _never_sent() -> Any:
    raise AssertionError("an internal append has no response")
