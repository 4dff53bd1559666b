"""DelayedFetch: a fetch that waits for enough bytes.

It completes when
  A  this broker no longer leads or holds a partition that it fetches, or knows no such partition;
  B  the client's leader epoch is not the current one any more;
  C  the end that the client may see is below its offset (the log was truncated), or is in another segment;
  D  the bytes readable from all its partitions reach min_bytes, those held back by a throttle left out;
  E  its time is up.
In every case the partitions are read again to build the response, but for those with nothing new to tell.

Source: Kafka's DelayedFetch (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.replication.delayed.reasons import fetch_reasons
from barnabas.broker.replication.offset_queries import diverging_epoch
from barnabas.broker.replication.reading import (
    FetchItem,
    FetchParams,
    FetchReader,
    Read,
    is_in_older_segment,
    visible_end,
)
from barnabas.broker.storage.log.log_types import NO_EPOCH
from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.replication.delayed.expirations import Expirations
    from barnabas.broker.requests.answers import Outcome
    from barnabas.common.pages.live_shape import Reason


class DelayedFetch(DelayedOperation):
    """`respond(reads)` builds the response from the results of the second read; those of the first are `before`.

    `woken()` returns partitions that are to be read as well by now, `idle()` those that are not (`idle_partitions.py`).
    """

    __slots__ = ("_before", "_expirations", "_idle", "_items", "_params", "_reader", "_respond", "_woken")

    def __init__(
        self,
        reader: FetchReader,
        expirations: Expirations,
        params: FetchParams,
        before: Sequence[Read],
        respond: Callable[[list[Read]], Outcome],
        woken: Callable[[], list[FetchItem]] = list,
        idle: Callable[[], list[FetchItem]] = list,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._reader = reader  # fixed before start
        self._expirations = expirations  # fixed before start
        self._params = params  # fixed before start
        # Without the results that have bytes: they hold files open, and those are read again anyway. Dropped by the
        # answer, since a complete operation lingers.
        self._before = [(item, None if read.size else read) for item, read in before]
        self._items = [item for item, _ in before]  # fixed before start
        self._respond = respond  # fixed before start
        self._woken = woken  # fixed before start
        self._idle = idle  # fixed before start
        self.was_tried = all(read is not None for _, read in self._before)  # by the first read, which found nothing

    def try_complete(self) -> bool:
        """Complete in the cases A to D."""
        available = 0
        try:
            for item in self._due():
                available += self._available_bytes(item)
                if available >= self._params.min_bytes:
                    break
        except (ApiError, OSError):
            return self.force_complete()  # the second read finds the same error and reports it
        return available >= self._params.min_bytes and self.force_complete()

    def _due(self) -> Sequence[FetchItem]:
        woken = self._woken()
        return [*self._items, *woken] if woken else self._items

    def _available_bytes(self, item: FetchItem) -> int:
        """Bytes that this partition would give now; `min_bytes` when the fetch should complete at once."""
        params = self._params
        partition = self._reader.hosted.get(item.tp)
        log = partition.log_for(item.current_leader_epoch, leader_only=params.leader_only)
        end = visible_end(log, params.isolation)
        if end == item.fetch_offset:
            return 0
        if end < item.fetch_offset:
            return params.min_bytes
        if params.is_from_follower and self._reader.holds_back(partition, params.replica_id):
            return 0
        if params.min_bytes <= 1:
            return params.min_bytes
        if item.last_fetched_epoch != NO_EPOCH and diverging_epoch(log, item.fetch_offset, item.last_fetched_epoch):
            return params.min_bytes
        data = log.read(item.fetch_offset, item.max_bytes, isolation=params.isolation, min_one_message=True)
        if data.size and is_in_older_segment(log, item.fetch_offset, end):
            return params.min_bytes
        return min(data.size, item.max_bytes)

    def waits_for(self) -> list[Reason]:
        """How many of the wanted bytes are available, and the position of the reader in each partition."""
        items = [*self._due(), *self._idle()]
        return fetch_reasons(self._reader, self._params, items, self._available_bytes)

    def response(self) -> Outcome:
        """Read again, where something happened, and build the response."""
        before, self._before = self._before, []
        return self._respond(self._reader.read_again(self._params, before, self._woken()))

    def on_expiration(self) -> None:
        """Count it, as a follower's or a consumer's."""
        self._expirations.count_fetch(is_follower=self._params.is_from_follower)
