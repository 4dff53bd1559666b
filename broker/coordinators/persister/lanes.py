"""Lanes: the operations of each share partition, one at a time and in order.

Rules
1. A share partition has at most one operation on its way; the others wait behind it. Why: a write that is retried after
   a later one would undo the later one.
2. Writes that wait one behind another become one write when their turn comes, if they are of the same epochs: batches
   combine by their delivery counts, so applying them together is the same. A busy share partition thus sends one write
   for everything that came while the last one was on its way.

Pure; the persister guards it with its lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from barnabas.broker.coordinators.share_state.operations import Operation, Write
from barnabas.broker.coordinators.share_state.values import SharePartitionKey, StateWrite
from barnabas.protocol.errors import ErrorCode

MERGED_BATCHES_MAX: Final = 10_000


class Lanes:
    """See the module."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[SharePartitionKey, deque[Operation]] = {}  # a key is there while one is on its way

    def __len__(self) -> int:
        """Return the number of share partitions with an operation on its way."""
        return len(self._waiting)

    def add(self, operation: Operation) -> bool:
        """Add an operation; true if it is to be sent now."""
        waiting = self._waiting.get(operation.key)
        if waiting is None:
            self._waiting[operation.key] = deque()
            return True
        waiting.append(operation)
        return False

    def done(self, key: SharePartitionKey) -> Operation | None:
        """Note that the operation on its way is answered; return the next one to send."""
        waiting = self._waiting[key]
        if not waiting:
            del self._waiting[key]
            return None
        first = waiting.popleft()
        return _merged(first, waiting) if isinstance(first, Write) else first

    def take_all(self) -> Iterator[Operation]:
        """Remove and return the operations that wait, at the end."""
        for waiting in self._waiting.values():
            while waiting:
                yield waiting.popleft()


def _merged(first: Write, waiting: deque[Operation]) -> Write:
    """Return the first write, together with those that follow it directly and are of the same epochs."""
    together, count = [first], len(first.write.batches)
    while waiting:
        following = waiting[0]
        if not isinstance(following, Write) or following.write[:2] != first.write[:2]:
            break
        count += len(following.write.batches)
        if count > MERGED_BATCHES_MAX:
            break
        together.append(following)
        waiting.popleft()
    if len(together) == 1:
        return first

    def reply(error: ErrorCode) -> None:
        for write in together:
            write.reply(error)

    last = together[-1].write
    merged = StateWrite(
        last.state_epoch,
        last.leader_epoch,
        max(write.write.start_offset for write in together),
        tuple(batch for write in together for batch in write.write.batches),
        last.delivery_complete_count,
    )
    return Write(first.key, reply, merged)
