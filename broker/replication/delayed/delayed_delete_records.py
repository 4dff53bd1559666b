"""DelayedDeleteRecords: a DeleteRecords request that waits until every live replica has deleted the records.

Source: Kafka's DelayedDeleteRecords (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.replication.delayed.reasons import delete_records_reasons
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.hosted_partitions import HostedPartitions
    from barnabas.broker.requests.answers import Outcome
    from barnabas.common.pages.live_shape import Reason
    from barnabas.common.topic_partition import TopicPartition

NO_LOW_WATERMARK = -1

LowWatermarks = dict["TopicPartition", "tuple[ErrorCode, int]"]


class DelayedDeleteRecords(DelayedOperation):
    """`respond(results)` builds the response from (error, low watermark) of each awaited partition."""

    __slots__ = ("_hosted", "_pending", "_respond", "_results")

    def __init__(
        self,
        hosted: HostedPartitions,
        pending: Mapping[TopicPartition, int],
        delay_ms: int,
        respond: Callable[[LowWatermarks], Outcome],
    ) -> None:
        super().__init__(delay_ms)
        self._hosted = hosted  # fixed before start
        self._pending = dict(pending)  # guarded by: lock; the low watermark that each must reach
        self._results: LowWatermarks = {}  # guarded by: lock
        self._respond = respond  # fixed before start

    def try_complete(self) -> bool:
        """Complete when each partition's low watermark has reached its offset, or the partition has failed."""
        for tp, required_offset in list(self._pending.items()):
            try:
                low_watermark = self._hosted.get(tp).low_watermark()
            except ApiError as error:
                self._results[tp] = (error.code, NO_LOW_WATERMARK)
            else:
                if low_watermark < required_offset:
                    continue
                self._results[tp] = (ErrorCode.NONE, low_watermark)
            del self._pending[tp]
        return not self._pending and self.force_complete()

    def waits_for(self) -> list[Reason]:
        """The replicas that have not deleted the records yet."""
        return delete_records_reasons(self._hosted, list(self._pending.items()))

    def response(self) -> Outcome:
        """Build the response; partitions still pending have run out of time."""
        late = dict.fromkeys(self._pending, (ErrorCode.REQUEST_TIMED_OUT, NO_LOW_WATERMARK))
        return self._respond({**late, **self._results})
