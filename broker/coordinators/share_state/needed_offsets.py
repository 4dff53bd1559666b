"""Which part of a partition of __share_group_state is still needed.

A share partition needs its log from its last snapshot on; one that was removed needs nothing. So the log is needed from
the lowest last snapshot on, and can be pruned before it.

A note costs log n steps: the heap keeps outdated offsets until they come to its top, and is rebuilt when most of it is
outdated. The shard guards it with its lock.
Source: Kafka's ShareCoordinatorOffsetsManager (4.3).
"""

from __future__ import annotations

import heapq
from typing import Final

from barnabas.broker.coordinators.share_state.values import SharePartitionKey

HEAP_SLACK: Final = 1000  # outdated offsets that are kept in any case


class NeededOffsets:
    """The offset of each share partition's last snapshot."""

    __slots__ = ("_end_offset", "_heap", "_snapshots")

    def __init__(self) -> None:
        self._snapshots: dict[SharePartitionKey, int] = {}
        self._heap: list[tuple[int, SharePartitionKey]] = []
        self._end_offset = 0  # after the last snapshot or removal

    def snapshot(self, key: SharePartitionKey, offset: int) -> None:
        """Note a snapshot."""
        self._snapshots[key] = offset
        self._end_offset = offset + 1
        heapq.heappush(self._heap, (offset, key))
        if len(self._heap) > 2 * len(self._snapshots) + HEAP_SLACK:
            self._heap = [(offset, key) for key, offset in self._snapshots.items()]
            heapq.heapify(self._heap)

    def removed(self, key: SharePartitionKey, offset: int) -> None:
        """Note that a share partition was removed."""
        self._snapshots.pop(key, None)
        self._end_offset = offset + 1

    def start(self) -> int:
        """Return the offset from which on the log is needed."""
        heap = self._heap
        while heap and self._snapshots.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else self._end_offset
