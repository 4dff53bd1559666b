"""Fetch sessions for requests in which some partitions fail.

Withheld partitions are not read. They are left out of the session's partitions for this request, and reported to the
session as answered with an error. So the session knows that the client got an error, as with a real one.

Compiled (setup.py), since the sessions are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.fetch_sessions.session import WatcherOf
from barnabas.broker.fetch_sessions.sessions import Answered, FetchContext, FetchSessions, no_watcher
from barnabas.broker.replication.idle_partitions import Key
from barnabas.broker.replication.reading import refused
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.reading import FetchItem


class WithholdingSessions(FetchSessions):
    """The fetch sessions, for one request, with the partitions that fail withheld."""

    def __init__(self, sessions: FetchSessions, withheld: set[TopicPartition], code: ErrorCode) -> None:
        # Why no super().__init__: `sessions` has all state, and all calls go to it.
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
        watcher_of: WatcherOf = no_watcher,
    ) -> FetchContext:
        """See FetchSessions. Without a watcher, no partition is idle, and each can be withheld."""
        inner = self._inner.context(version, session_id, epoch, items, forgotten, topic_name, is_follower=is_follower)
        return WithholdingContext(inner, self._withheld, self._code)


class WithholdingContext(FetchContext):
    """One request's view of its session. The partitions that fail are left out until `finish`."""

    __slots__ = ("_code", "_inner", "_kept_back")

    def __init__(self, inner: FetchContext, withheld: set[TopicPartition], code: ErrorCode) -> None:
        super().__init__([item for item in inner.items if item.tp not in withheld], inner.error, inner.session_id)
        self._inner = inner
        self._kept_back = [item for item in inner.items if item.tp in withheld]
        self._code = code

    def finish(self, answered: Answered) -> tuple[ErrorCode, int, Answered]:
        """See FetchContext."""
        failed = refused(self._code)
        return self._inner.finish(answered + [(item, failed) for item in self._kept_back])
