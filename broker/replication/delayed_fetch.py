"""DelayedFetch: a fetch waiting for enough bytes (KIP-227's long poll).

It is answered when
  A  this broker no longer leads (or holds) a partition it fetches, or knows of no such partition;
  B  the client's epoch is no longer ours;
  C  the end that the client may see is below its offset (the log was truncated), or is in another segment;
  D  the bytes readable from all its partitions, those held back by a throttle left out, reach min_bytes;
  E  its time is up.
In every case the partitions are read again when the answer is built.

Source: Kafka's DelayedFetch (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.replication.reading import FetchItem, FetchParams, Read, read_all, visible_end
from barnabas.broker.replication.waiting import fetch_reasons
from barnabas.broker.storage.log_types import NO_EPOCH
from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.purgatory import Outcome
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.common.live_shape import Reason


class DelayedFetch(DelayedOperation):
    """`respond(reads)` builds the answer from what was read."""

    __slots__ = ("_items", "_manager", "_params", "_respond")

    def __init__(
        self,
        manager: ReplicaManager,
        params: FetchParams,
        items: Sequence[FetchItem],
        respond: Callable[[list[Read]], Outcome],
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._manager = manager  # fixed before start
        self._params = params  # fixed before start
        self._items = items  # fixed before start
        self._respond = respond  # fixed before start

    def try_complete(self) -> bool:
        """Complete in the cases A to D."""
        available = 0
        try:
            for item in self._items:
                available += self._available_bytes(item)
                if available >= self._params.min_bytes:
                    break
        except (ApiError, OSError):
            return self.force_complete()  # the read that follows will tell which error
        return available >= self._params.min_bytes and self.force_complete()

    def _available_bytes(self, item: FetchItem) -> int:
        """Bytes that this partition would give now; `min_bytes` when it should answer at once."""
        params = self._params
        partition = self._manager.partition(item.tp)
        log = partition.log_for(item.current_leader_epoch, leader_only=params.leader_only)
        end = visible_end(log, params.isolation)
        if end == item.fetch_offset:
            return 0
        if end < item.fetch_offset:
            return params.min_bytes
        if params.is_from_follower and self._manager.holds_back(partition, params.replica_id):
            return 0
        if params.min_bytes <= 1:
            return params.min_bytes
        if item.last_fetched_epoch != NO_EPOCH and partition.diverging_epoch(
            item.fetch_offset, item.last_fetched_epoch, item.current_leader_epoch, leader_only=params.leader_only
        ):
            return params.min_bytes
        data = log.read(item.fetch_offset, item.max_bytes, isolation=params.isolation, min_one_message=True)
        return min(data.size, item.max_bytes)

    def waits_for(self) -> list[Reason]:
        """Tell how many bytes are there of those wanted, and where the readers stand."""
        return fetch_reasons(self._manager, self._params, self._items, self._available_bytes)

    def response(self) -> Outcome:
        """Read again and answer."""
        return self._respond(read_all(self._manager, self._params, self._items))

    def on_expiration(self) -> None:
        """Count it, as a follower's or a consumer's."""
        self._manager.count_fetch_expiration(is_follower=self._params.is_from_follower)
