"""DelayedProduce: an acks=all request that waits for its batches to be on all in-sync replicas.

States of a partition: pending (appended, not yet safe) -> acknowledged, or failed (no longer leader; ISR too small).
The request completes when no partition is pending (A: high watermark passed; B: leadership lost; C: an error), or when
its time is up. Partitions still pending then get REQUEST_TIMED_OUT, although their batches may become safe later.

Source: Kafka's DelayedProduce (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.replication.delayed.reasons import produce_reasons
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.delayed.expirations import Expirations
    from barnabas.broker.replication.hosted_partitions import HostedPartitions
    from barnabas.broker.requests.answers import Outcome
    from barnabas.common.pages.live_shape import Reason
    from barnabas.common.topic_partition import TopicPartition

_NONE: Final = ErrorCode.NONE  # Why: saves a lookup for every partition of every try
Pending = dict["TopicPartition", int]  # the offset (exclusive) that must be safe
Errors = dict["TopicPartition", ErrorCode]


class DelayedProduce(DelayedOperation):
    """`respond(errors)` builds the response: `errors` has an entry for each awaited partition that failed."""

    __slots__ = ("_errors", "_expirations", "_hosted", "_pending", "_respond")

    def __init__(
        self,
        hosted: HostedPartitions,
        expirations: Expirations,
        pending: Iterable[tuple[TopicPartition, int]],
        delay_ms: int,
        respond: Callable[[Errors], Outcome],
    ) -> None:
        super().__init__(delay_ms)
        self._hosted = hosted  # fixed before start
        self._expirations = expirations  # fixed before start
        self._pending: Pending = dict(pending)  # changed under lock; an expired operation is read without it
        self._errors: Errors = {}  # as _pending
        self._respond = respond  # fixed before start

    def try_complete(self) -> bool:
        """Complete when no partition is pending any more."""
        for tp, required_offset in list(self._pending.items()):
            is_reached, error = self._progress(tp, required_offset)
            if is_reached or error is not _NONE:
                # Why in this order: `response` reads in the opposite one, without the lock when the time is up.
                if error is not _NONE:
                    self._errors[tp] = error
                del self._pending[tp]
        return not self._pending and self.force_complete()

    def _progress(self, tp: TopicPartition, required_offset: int) -> tuple[bool, ErrorCode]:
        try:
            return self._hosted.get(tp).has_reached(required_offset)
        except ApiError as error:
            return False, error.code

    def waits_for(self) -> list[Reason]:
        """The replicas that lack the batches, or another reason why a high watermark does not move."""
        return produce_reasons(self._hosted, list(self._pending.items()))

    def response(self) -> Outcome:
        """Build the response; partitions still pending have run out of time."""
        errors = dict.fromkeys(self._pending, ErrorCode.REQUEST_TIMED_OUT)
        return self._respond({**errors, **self._errors})

    def on_expiration(self) -> None:
        """Count the partitions that are still pending."""
        for tp in list(self._pending):
            self._expirations.count_produce(tp)


class DelayedAppend(DelayedProduce):
    """The wait of an append that no request made: `on_done(error)` when it is safe, or has failed."""

    __slots__ = ("_on_done", "_tp")

    def __init__(
        self,
        hosted: HostedPartitions,
        expirations: Expirations,
        tp: TopicPartition,
        required_offset: int,
        delay_ms: int,
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        super().__init__(hosted, expirations, [(tp, required_offset)], delay_ms, lambda _errors: _never_sent())
        self._tp = tp  # fixed before start
        self._on_done = on_done  # fixed before start

    def on_complete(self) -> None:
        """Report the outcome to the appender."""
        late = ErrorCode.REQUEST_TIMED_OUT if self._tp in self._pending else ErrorCode.NONE
        self._on_done(self._errors.get(self._tp, late))


def _never_sent() -> Outcome:
    raise AssertionError("an internal append has no response")
