"""Fetches of which some partitions answer an error: the session as such a request sees it.

Partitions that are withheld are taken out of what the session gives to read, and put back as errors into what it is
told; so the session knows that the client was told an error, as it does with a real one, and nothing is read.

Compiled with the sessions (setup.py), since these are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.fetch_sessions import Answered, FetchContext, FetchSessions, Key
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k01_fetch import PartitionData

if TYPE_CHECKING:
    from barnabas.broker.replication.reading import FetchItem


class WithholdingSessions(FetchSessions):
    """The fetch sessions, for one request: everything of others, but for the partitions that fail."""

    def __init__(self, sessions: FetchSessions, withheld: set[TopicPartition], code: ErrorCode) -> None:
        # Why not super's: what it would make is in `sessions`, to which everything goes.
        self._inner = sessions  # fixed before start
        self._withheld = withheld  # fixed before start
        self._code = code  # fixed before start

    def context(
        self,
        version: int,
        session_id: int,
        epoch: int,
        items: Sequence[FetchItem],
        forgotten: Sequence[Key],
        topic_name: Callable[[bytes], str | None],
        *,
        is_follower: bool,
    ) -> FetchContext:
        """See FetchSessions."""
        inner = self._inner.context(version, session_id, epoch, items, forgotten, topic_name, is_follower=is_follower)
        return WithholdingContext(inner, self._withheld, self._code)


class WithholdingContext(FetchContext):
    """One request's view of its session, without the partitions that fail until it is told what they answer."""

    __slots__ = ("_code", "_inner", "_kept_back")

    def __init__(self, inner: FetchContext, withheld: set[TopicPartition], code: ErrorCode) -> None:
        super().__init__([item for item in inner.items if item.tp not in withheld], inner.error, inner.session_id)
        self._inner = inner
        self._kept_back = [item for item in inner.items if item.tp in withheld]
        self._code = code

    def finish(self, answered: Answered) -> tuple[ErrorCode, int, Answered]:
        """See FetchContext."""
        return self._inner.finish(answered + [(item, _failed(item, self._code)) for item in self._kept_back])


def _failed(item: FetchItem, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=item.tp.partition, error_code=code, high_watermark=-1, records=b"", aborted_transactions=[]
    )
