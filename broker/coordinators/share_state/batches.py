"""Combining state batches: the state of each offset after a write.

Rules
1. Of two batches that cover an offset, the one with the higher delivery count wins; with equal counts, the one with the
   higher delivery state. So it does not matter whether a write is applied once or twice.
2. Nothing below the start offset is kept.
3. The result is in order, without overlaps, and neighbours with the same state and count are one batch.

Cost: batches that a write does not touch are kept as they are. The batches that it overlaps, or that are next to it,
are combined in n log n steps, however they overlap. Pure.
Source: Kafka's PersisterStateBatchCombiner (4.3).
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable

from barnabas.broker.coordinators.share_state.values import StateBatch


def combine(so_far: tuple[StateBatch, ...], new: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return what is kept after `new` batches came to those `so_far`; NO_START_OFFSET keeps all offsets.

    `so_far` is what an earlier call returned (rule 3); `new` may be in any order, and overlap.
    """
    added = sorted(_from(new, start_offset))
    kept = _without(so_far, start_offset)
    if not added:
        return kept
    low, high = added[0].first_offset, max(batch.last_offset for batch in added)
    begin = bisect_left(kept, (low,))
    if begin and kept[begin - 1].last_offset >= low - 1:
        begin -= 1
    end = bisect_left(kept, (high + 2,))
    return kept[:begin] + tuple(_swept(sorted((*kept[begin:end], *added)))) + kept[end:]


def _from(batches: Iterable[StateBatch], start_offset: int) -> Iterable[StateBatch]:
    """Return the batches without what is below the start offset."""
    for batch in batches:
        if batch.first_offset >= start_offset:
            yield batch
        elif batch.last_offset >= start_offset:
            yield batch._replace(first_offset=start_offset)


def _without(batches: tuple[StateBatch, ...], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches that are in order without what is below the start offset."""
    begin = bisect_left(batches, (start_offset,))
    if begin and batches[begin - 1].last_offset >= start_offset:
        return (batches[begin - 1]._replace(first_offset=start_offset), *batches[begin:])
    return batches[begin:]


def _swept(batches: list[StateBatch]) -> list[StateBatch]:
    """Go through the offsets in order, with a heap of the batches that cover the current one, the strongest first."""
    kept: list[StateBatch] = []
    covering: list[tuple[int, int, int]] = []  # (-delivery count, -delivery state, last offset)
    at = taken = 0
    while covering or taken < len(batches):
        if not covering:
            at = max(at, batches[taken].first_offset)
        while taken < len(batches) and batches[taken].first_offset <= at:
            batch = batches[taken]
            heapq.heappush(covering, (-batch.delivery_count, -batch.delivery_state, batch.last_offset))
            taken += 1
        while covering and covering[0][2] < at:
            heapq.heappop(covering)
        if not covering:
            continue
        count, state, last = covering[0]
        if taken < len(batches):
            last = min(last, batches[taken].first_offset - 1)
        _add(kept, StateBatch(at, last, -state, -count))
        at = last + 1
    return kept


def _add(kept: list[StateBatch], batch: StateBatch) -> None:
    """Add a batch after the others, or extend the last one."""
    if kept:
        before = kept[-1]
        if before.last_offset + 1 == batch.first_offset and before[2:] == batch[2:]:
            kept[-1] = before._replace(last_offset=batch.last_offset)
            return
    kept.append(batch)
