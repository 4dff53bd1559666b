"""The writes of a shard that count once they are committed: applied in log order, when the high watermark passes them.

Rules
1. A write that the log refuses has not happened. One that was appended and then timed out may still be committed: its
   asker is told of the failure at once, and it takes effect when the high watermark passes it.
2. Everything happens under the shard's lock; news of the log come through its mailbox.

Threads: owner is the shard, under its lock.
Source: Kafka's CoordinatorRuntime (4.3), its deferred events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators.shard_core import APPEND_ERRORS
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.mailbox import Mailbox
    from barnabas.broker.coordinators.shard_core import LogWriter
    from barnabas.common.topic_partition import TopicPartition

Settled = Callable[[ErrorCode], object]


class _Write:
    """A batch that was appended and is not known to be committed."""

    __slots__ = ("apply", "end_offset", "settled")

    def __init__(self, apply: Callable[[], None], settled: Settled) -> None:
        self.apply = apply  # changes state, once committed
        self.settled: Settled | None = settled  # called once, when committed or failed; None once called
        self.end_offset = -1  # exclusive; -1 until appended


class CommittedWrites:
    """See the module. The shard's lock is held by whoever calls."""

    def __init__(self, tp: TopicPartition, writer: LogWriter, mailbox: Mailbox) -> None:
        self._tp = tp  # fixed before start
        self._writer = writer  # fixed before start
        self._mailbox = mailbox  # fixed before start
        self._waiting: deque[_Write] = deque()  # in log order

    @property
    def is_empty(self) -> bool:
        """Whether everything appended is committed; looking takes no lock."""
        return not self._waiting

    def append(self, batch: bytes, count: int, timeout_ms: int, apply: Callable[[], None], settled: Settled) -> bool:
        """Append a batch of `count` records; false (and `settled` posted) when the log refuses it."""
        write = _Write(apply, settled)
        moved = set[Any]()
        self._waiting.append(write)
        try:
            first_offset = self._writer.append_internal(
                self._tp, batch, timeout_ms, partial(self._post_done, write), moved=moved
            )
        except ApiError as error:
            self._waiting.remove(write)
            self._mailbox.post(partial(self._settle, write, error.code))
            return False
        write.end_offset = first_offset + count
        if moved:
            self._mailbox.say(partial(self._writer.complete_delayed, self._tp))
        return True

    def catch_up(self) -> None:
        """Look whether writes were committed that nobody waits for any more."""
        if not self._waiting:
            return
        try:
            high_watermark = self._writer.partition(self._tp).log.high_watermark
        except ApiError:
            return
        self._commit_up_to(high_watermark)

    def abandon(self) -> None:
        """The shard is closed: whether they count is the next leader's to say."""
        waiting, self._waiting = self._waiting, deque()
        for write in waiting:
            self._settle(write, ErrorCode.NOT_COORDINATOR)

    def _post_done(self, write: _Write, error: ErrorCode, _first_offset: int) -> None:
        self._mailbox.post(partial(self._done, write, error))

    def _done(self, write: _Write, error: ErrorCode) -> None:
        if error:
            self._settle(write, error)
        else:
            self._commit_up_to(write.end_offset)

    def _commit_up_to(self, high_watermark: int) -> None:
        while self._waiting and self._waiting[0].end_offset <= high_watermark:
            write = self._waiting.popleft()
            write.apply()
            self._settle(write, ErrorCode.NONE)

    def _settle(self, write: _Write, error: ErrorCode) -> None:
        settled, write.settled = write.settled, None
        if settled is not None:
            settled(APPEND_ERRORS.get(error, error))  # in a coordinator's words
