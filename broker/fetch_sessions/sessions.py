"""Incremental fetch sessions (KIP-227): the broker remembers a client's partitions, so that only changes are sent.

    request (session id, epoch)   meaning                                                  context
    (any, -1)                     no session; close this one if it exists                  SESSIONLESS
    (any, 0)                      every partition is named; open a session if there is     FULL
                                  room
    (id, n > 0)                   changes since epoch n-1 of this session                  INCREMENTAL
    unknown id                    FETCH_SESSION_ID_NOT_FOUND; wrong n: INVALID_FETCH_SESSION_EPOCH

Rules
1. A session's epoch counts its requests: it is incremented when a request is accepted. If a later request has
   incremented it before the response is built, the response is INVALID_FETCH_SESSION_EPOCH.
2. An incremental response names a partition only if something changed: records, watermarks, an error, a redirection.
   A partition with records goes to the end of the order, so that each gets its turn under the size limit. Of which
   nothing new can be told is not read (`session.py`).
3. From version 13 on, topics are named by id; one session never uses both names and ids
   (FETCH_SESSION_TOPIC_ID_ERROR).
4. The cache is bounded. A full cache evicts a session that was not used for `eviction_ms`. If there is none, a larger
   new session replaces a smaller one that is older than `eviction_ms`; a follower's may replace any consumer's.

Threads: any handler. `FetchSessions._lock` guards the cache; a session's own lock its partitions (taken inside).
Source: Kafka's FetchSession.scala (4.3); KIP-516 for topic ids.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.broker.fetch_sessions.session import CachedPartition, Session, Stirred, WatcherOf, note_still_fetched
from barnabas.broker.replication.idle_partitions import IdlePartitions, Key, Watcher
from barnabas.broker.replication.reading import FetchItem, Read
from barnabas.common.locks.factory import new_lock
from barnabas.common.topic_partition import TopicPartition
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.metrics.registry import Registry
    from barnabas.protocol.messages.k01_fetch import FetchPartition, FetchTopic

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
SESSION_ID_MAX = 2**31 - 1
_RANDOM = random.SystemRandom()
TOPIC_IDS_FROM = 13

Answered: TypeAlias = list[Read]

# Why: saves a lookup for every response, and for every partition of one.
_NONE: Final = ErrorCode.NONE
_INCONSISTENT: Final = ErrorCode.INCONSISTENT_TOPIC_ID


def next_epoch(epoch: int) -> int:
    """The epoch after this one; the largest is followed by 1."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == EPOCH_MAX else epoch + 1


class FetchContext:
    """One request's view of its session: the partitions to read, then those to name. An `error` ends it unread."""

    __slots__ = ("error", "items", "session_id")

    def __init__(self, items: Sequence[FetchItem] = (), error: ErrorCode = ErrorCode.NONE, session_id: int = 0) -> None:
        self.items = items
        self.error = error
        self.session_id = session_id

    @property
    def has_idle(self) -> bool:
        """Whether the client has partitions that are not read; then a request without others waits, too."""
        return False

    def wait_keys(self) -> list[Hashable]:
        """The request waits: return what to watch besides its partitions."""
        return []

    def woken(self) -> list[FetchItem]:
        """The partitions to read that are not among `items`, since they were idle when the request came."""
        return []

    def idle_items(self) -> list[FetchItem]:
        """The partitions that are not read, for the live page."""
        return []

    def finish(self, answered: Answered) -> tuple[ErrorCode, int, Answered]:
        """Choose the response: (error, session id, the partitions to name)."""
        return ErrorCode.NONE, INVALID_SESSION_ID, answered

    def throttled(self) -> tuple[ErrorCode, int]:
        """Return error and session id of an empty response to a throttled client: no session is opened or changed."""
        return ErrorCode.NONE, INVALID_SESSION_ID


def no_watcher() -> Watcher | None:
    """Return what makes a session read every partition."""
    return None


def _is_inconsistent(answered: Answered) -> bool:
    return any(result.error is _INCONSISTENT for _, result in answered)


class FullContext(FetchContext):
    """A request that names every partition; the response opens a session if the cache has room."""

    __slots__ = ("_cache", "_is_follower", "_uses_topic_ids")

    def __init__(
        self, cache: FetchSessions, items: Sequence[FetchItem], *, is_follower: bool, uses_topic_ids: bool
    ) -> None:
        super().__init__(items)
        self._cache = cache
        self._is_follower = is_follower
        self._uses_topic_ids = uses_topic_ids

    def finish(self, answered: Answered) -> tuple[ErrorCode, int, Answered]:
        """Name every partition, and open a session for them."""
        if _is_inconsistent(answered):
            return ErrorCode.INCONSISTENT_TOPIC_ID, INVALID_SESSION_ID, []
        session_id = self._cache.create(answered, is_privileged=self._is_follower, uses_topic_ids=self._uses_topic_ids)
        return ErrorCode.NONE, session_id, answered


class IncrementalContext(FetchContext):
    """A request with changes to an existing session."""

    __slots__ = ("_epoch", "_has_idle", "_session")

    def __init__(self, session: Session, items: Sequence[FetchItem], epoch: int) -> None:
        super().__init__(items, session_id=session.id)
        self._session = session
        self._epoch = epoch  # of the session after this request was accepted
        # Why not asked later: all may have been woken by then, and what happens to them next must complete the request.
        self._has_idle = bool(session.idle)

    @property
    def has_idle(self) -> bool:
        """See FetchContext."""
        return self._has_idle

    def wait_keys(self) -> list[Hashable]:
        """See FetchContext: the session, which is checked when an idle partition of it was woken."""
        return [self._session] if self._has_idle else []

    def woken(self) -> list[FetchItem]:
        """See FetchContext."""
        return self._session.woken()

    def idle_items(self) -> list[FetchItem]:
        """See FetchContext."""
        return self._session.idle_items()

    def finish(self, answered: Answered) -> tuple[ErrorCode, int, Answered]:
        """Name the partitions that changed (rule 2); an error if the session has moved on (rule 1)."""
        session = self._session
        with session.lock:
            if session.epoch != self._epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id, []
            if _is_inconsistent(answered):
                return ErrorCode.INCONSISTENT_TOPIC_ID, session.id, []
            return _NONE, session.id, session.take(answered)

    def throttled(self) -> tuple[ErrorCode, int]:
        """Return the session's id; an error if the session has moved on (rule 1)."""
        session = self._session
        with session.lock:
            is_current = session.epoch == self._epoch
        return ErrorCode.NONE if is_current else ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.id


class FetchSessions:
    """The cache of sessions; see the module."""

    def __init__(
        self,
        clock: Clock,
        registry: Registry,
        *,
        slots: int = 1000,
        eviction_ms: int = 120_000,
        idle_partitions: IdlePartitions | None = None,
    ) -> None:
        self._clock = clock  # fixed before start; the one by which replicas lag
        self._idle_partitions = idle_partitions  # fixed before start; None: every partition is read at every request
        self._slots = slots  # fixed before start (max.incremental.fetch.session.cache.slots)
        self._eviction_ms = eviction_ms  # fixed before start
        self._lock = new_lock("fetch-sessions")  # before a session's lock
        self._sessions: dict[int, Session] = {}  # guarded by: _lock; least recently used first
        self._evictions = registry.meter(catalogue.INCREMENTAL_FETCH_SESSION_EVICTIONS_PER_SEC)
        registry.gauge(catalogue.NUM_INCREMENTAL_FETCH_SESSIONS, lambda: len(self._sessions))
        registry.gauge(catalogue.NUM_INCREMENTAL_FETCH_PARTITIONS_CACHED, self.partition_count)

    def __len__(self) -> int:
        return len(self._sessions)

    def partition_count(self) -> int:
        """Partitions in all sessions."""
        return sum(len(session) for session in list(self._sessions.values()))

    def partitions_of(self, session_id: int) -> list[TopicPartition]:
        """The partitions of a session, for injected faults; none for an unknown session."""
        with self._lock:
            session = self._sessions.get(session_id)
        return [] if session is None else session.tps()

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
        """The context of a request; its `items` have the topic name "" where the topic id is unknown.

        Without a watcher, every partition of the session is read.
        """
        uses_topic_ids = version >= TOPIC_IDS_FROM
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != INVALID_SESSION_ID:
                self._close(session_id)
            items = _without_repetitions(items)
            if epoch == FINAL_EPOCH:
                return FetchContext(items)
            return FullContext(self, items, is_follower=is_follower, uses_topic_ids=uses_topic_ids)
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return FetchContext(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            with session.lock:
                if session.epoch != epoch:
                    return FetchContext(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
                if session.uses_topic_ids != uses_topic_ids:
                    return FetchContext(error=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
                now_ms = self._clock.monotonic_ms()
                due, stirred = session.begin(items, forgotten, topic_name, watcher_of, now_ms)
                context = FetchContext()
                if len(session):
                    session.epoch = next_epoch(epoch)
                    self._touch(session, now_ms)
                    context = IncrementalContext(session, due, session.epoch)
                else:
                    del self._sessions[session_id]
        note_still_fetched(stirred)
        return context

    def create(self, answered: Answered, *, is_privileged: bool, uses_topic_ids: bool) -> int:
        """Open a session for these partitions; INVALID_SESSION_ID if there is no room."""
        now_ms = self._clock.monotonic_ms()
        stirred: list[Stirred] = []
        with self._lock:
            if len(self._sessions) >= self._slots:
                victim = self._victim(is_privileged, len(answered), now_ms)
                if victim is None:
                    return INVALID_SESSION_ID
                stirred = self._close_locked(victim)
                self._evictions.mark()
            session = Session(
                self._new_id(),
                is_privileged=is_privileged,
                uses_topic_ids=uses_topic_ids,
                now_ms=now_ms,
                idle_partitions=self._idle_partitions,
            )
            for item, result in answered:
                cached = CachedPartition(item)
                cached.note(result)
                session.due[session.key(item)] = cached
            self._sessions[session.id] = session
        note_still_fetched(stirred)
        return session.id

    def _close(self, session_id: int) -> None:
        with self._lock:
            session = self._sessions.get(session_id)
            if session is None:
                return
            stirred = self._close_locked(session)
        note_still_fetched(stirred)

    def _close_locked(self, session: Session) -> list[Stirred]:
        del self._sessions[session.id]
        return session.close()

    def _touch(self, session: Session, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.pop(session.id)
        self._sessions[session.id] = session

    def _new_id(self) -> int:
        while True:
            session_id = 1 + _RANDOM.randrange(SESSION_ID_MAX)  # Why not guessable: whoever names a session can end it
            if session_id not in self._sessions:
                return session_id

    def _victim(self, is_privileged: bool, size: int, now_ms: int) -> Session | None:
        """Return the session that may make room for a new one of `size` partitions (rule 4), if there is one."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now_ms - oldest.last_used_ms > self._eviction_ms:
            return oldest
        smallest = self._smallest_evictable(is_privileged, now_ms)
        if smallest is None or (is_privileged, size) <= (smallest.is_privileged, len(smallest)):
            return None
        return smallest

    def _smallest_evictable(self, is_privileged: bool, now_ms: int) -> Session | None:
        candidates = [
            s
            for s in self._sessions.values()
            if now_ms - s.created_ms > self._eviction_ms or (is_privileged and not s.is_privileged)
        ]
        return min(candidates, key=lambda s: (s.is_privileged, len(s), s.id), default=None)


def _without_repetitions(items: Sequence[FetchItem]) -> Sequence[FetchItem]:
    """Each partition once, as named last. Why: an append tries a waiting fetch once for each mention."""
    if len(items) == 1:
        return items
    return list({(item.topic_id, item.tp): item for item in items}.values())


def item_of(topic: FetchTopic, partition: FetchPartition, tp: TopicPartition) -> FetchItem:
    """The FetchItem of a request's topic and partition `tp`; its topic is "" if the topic id is unknown."""
    return FetchItem(
        tp,
        topic.topic_id,
        partition.fetch_offset,
        partition.partition_max_bytes,
        partition.current_leader_epoch,
        partition.last_fetched_epoch,
        partition.log_start_offset,
    )
