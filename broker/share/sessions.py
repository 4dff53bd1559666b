"""Share sessions: the broker remembers which partitions a member fetches, so that only changes are sent (KIP-932).

    request (epoch)   meaning                                                        errors
    0                 begin: every partition is named, a former session ends        SHARE_SESSION_LIMIT_REACHED
    n > 0             changes since request n-1                                      SHARE_SESSION_NOT_FOUND,
    -1                end: the member releases what it holds                          INVALID_SHARE_SESSION_EPOCH

Rules
1. A session belongs to a member of a group and to one connection. It ends with its connection: the member releases what
   it holds, and a group without sessions has no share partitions in memory.
2. A session's epoch counts its requests, ShareFetch and ShareAcknowledge together.
3. The cache is bounded: by group.share.max.share.sessions, and PLACES_MAX partitions in all sessions together. A
   session names at most FOREIGN_MAX partitions more than this broker hosts. Nothing is evicted from a full cache.
4. A response names a partition only if it has records or an error, or had been added, or had an error before.
   A partition with records goes to the end of the order.

Threads: any handler, and the processor of a connection that closes. `_lock` guards everything, and is a leaf.
Source: Kafka's ShareSessionCache, ShareSession, ShareSessionContext, SharePartitionManager.newContext (4.3).
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.fetch_sessions.sessions import FINAL_EPOCH, INITIAL_EPOCH, next_epoch
from barnabas.metrics.table import catalogue
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.metrics.registry import Registry

__all__ = ["FINAL_EPOCH", "INITIAL_EPOCH", "Member", "Place", "ShareSessions"]


#: Why a bound: a client may name partitions that do not exist.
PLACES_MAX: Final = 500_000
#: As many partitions of a session may be others' or not exist: clients' metadata can be old. Why a bound: each fetch of
#: the session goes through all of them, and returns the error of each, although its request has a few bytes.
FOREIGN_MAX: Final = 4000


class Member(NamedTuple):
    """A member of a share group; the key of its session."""

    group_id: str
    member_id: str


class Place(NamedTuple):
    """A partition of a topic by the topic's id."""

    topic_id: bytes
    partition: int


class Session:
    """The partitions of one member, in the order in which they are served. Guarded by: ShareSessions._lock."""

    __slots__ = ("connection_id", "epoch", "must_answer", "places")

    def __init__(self, connection_id: str, places: Iterable[Place]) -> None:
        self.connection_id = connection_id
        self.epoch = next_epoch(INITIAL_EPOCH)  # of the request expected next
        self.places: dict[Place, None] = dict.fromkeys(places)
        self.must_answer: set[Place] = set()  # added since the last response, or had an error in it


class ShareSessions:
    """See the module."""

    def __init__(self, registry: Registry, sessions_max: int, hosted_count: Callable[[], int]) -> None:
        """`hosted_count()` returns how many partitions this broker hosts; it takes no lock."""
        self._sessions_max: Final = sessions_max
        self._hosted_count: Final = hosted_count
        self._lock = threading.Lock()
        self._sessions: dict[Member, Session] = {}  # guarded by: _lock
        self._groups: Counter[str] = Counter()  # guarded by: _lock; sessions of each group, never 0
        self._place_count = 0  # guarded by: _lock
        self._evictions = registry.meter(catalogue.SHARE_SESSION_EVICTIONS_PER_SEC)
        registry.gauge(catalogue.SHARE_SESSIONS, lambda: len(self._sessions))
        registry.gauge(catalogue.SHARE_SESSION_PARTITIONS, lambda: self._place_count)

    def begin(self, member: Member, places: Iterable[Place], connection_id: str) -> None:
        """Begin a session, with request 0; raises SHARE_SESSION_LIMIT_REACHED."""
        with self._lock:
            self._end_locked(member)
            session = Session(connection_id, places)
            is_full = len(self._sessions) >= self._sessions_max
            if is_full or self._is_too_much(len(session.places), len(session.places)):
                raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            self._sessions[member] = session
            self._groups[member.group_id] += 1
            self._place_count += len(session.places)

    def update(self, member: Member, epoch: int, add: Iterable[Place], forget: Iterable[Place]) -> list[Place]:
        """Apply the changes of request `epoch`; return the partitions in their order.

        Raises SHARE_SESSION_LIMIT_REACHED, and ends the session, if there are too many partitions.
        """
        with self._lock:
            session = self._next_locked(member, epoch)
            before = len(session.places)
            new = [place for place in dict.fromkeys(add) if place not in session.places]
            if new and self._is_too_much(len(new), before + len(new)):
                self._end_locked(member)
                raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
            for place in new:
                session.places[place] = None
                session.must_answer.add(place)
            for place in forget:
                session.places.pop(place, None)
                session.must_answer.discard(place)
            self._place_count += len(session.places) - before
            return list(session.places)

    def step(self, member: Member, epoch: int) -> None:
        """Take a ShareAcknowledge as request `epoch` of its session; the final one ends nothing yet."""
        with self._lock:
            if epoch == FINAL_EPOCH:
                self._require_locked(member)
            else:
                self._next_locked(member, epoch)

    def require(self, member: Member) -> None:
        """Raise SHARE_SESSION_NOT_FOUND if the member has no session."""
        with self._lock:
            self._require_locked(member)

    def answered(
        self, member: Member, epoch: int, with_records: Iterable[Place], failed: Iterable[Place]
    ) -> set[Place] | None:
        """Note a response to request `epoch`; return the partitions that it names.

        None: the session has gone on or ended meanwhile (INVALID_SHARE_SESSION_EPOCH).
        """
        with self._lock:
            session = self._sessions.get(member)
            if session is None or session.epoch != next_epoch(epoch):
                return None
            named = session.must_answer
            session.must_answer = set(failed) & session.places.keys()
            for place in with_records:
                named.add(place)
                if place in session.places:
                    del session.places[place]
                    session.places[place] = None
            return named | session.must_answer

    def end(self, member: Member) -> list[Place] | None:
        """End a session; return its partitions, None if there is none."""
        with self._lock:
            return self._end_locked(member)

    def disconnected(self, member: Member, connection_id: str) -> list[Place] | None:
        """End a member's session with its connection; None if it has gone over to another one."""
        with self._lock:
            session = self._sessions.get(member)
            if session is None or session.connection_id != connection_id:
                return None
            self._evictions.mark()
            return self._end_locked(member)

    def has_group(self, group_id: str) -> bool:
        """Whether a member of the group has a session."""
        return group_id in self._groups

    def places(self, member: Member) -> list[Place]:
        """Return the partitions of a member's session."""
        with self._lock:
            session = self._sessions.get(member)
            return [] if session is None else list(session.places)

    def _is_too_much(self, new: int, of_session: int) -> bool:
        """Return whether rule 3 forbids so many new partitions, with which a session has so many."""
        if self._place_count + new > PLACES_MAX:
            return True
        return of_session > FOREIGN_MAX and of_session > FOREIGN_MAX + self._hosted_count()

    def _require_locked(self, member: Member) -> Session:
        session = self._sessions.get(member)
        if session is None:
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _next_locked(self, member: Member, epoch: int) -> Session:
        session = self._require_locked(member)
        if session.epoch != epoch:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = next_epoch(epoch)
        return session

    def _end_locked(self, member: Member) -> list[Place] | None:
        session = self._sessions.pop(member, None)
        if session is None:
            return None
        self._place_count -= len(session.places)
        self._groups[member.group_id] -= 1
        if not self._groups[member.group_id]:
            del self._groups[member.group_id]
        return list(session.places)
