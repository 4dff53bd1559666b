"""The state of the quorum as one replica knows it, in plain values: for metrics, the live page and the log.

Rules
1. A status is taken under the replica's lock, and is a value: any thread reads it.
2. Only the leader knows how far the others have fetched; elsewhere their ends are -1, except the replica's own.
3. The history is bounded. It is of this process, and begins when it starts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from barnabas.controller.raft.leader_state import UNKNOWN, Leader, ReplicaState
from barnabas.controller.raft.quorum import Quorum, Transition
from barnabas.controller.raft.roles import Candidate, Prospective, Resigned
from barnabas.controller.raft.voter_set import ReplicaKey

HISTORY_MAX: Final = 40


class Member(NamedTuple):
    """A voter or an observer; -1 for what is not known (rule 2)."""

    key: ReplicaKey
    address: str = ""
    end_offset: int = UNKNOWN
    #: Since its last fetch; 0 for the replica itself.
    fetched_ms: int = UNKNOWN
    #: Since it was last at the end of the leader's log.
    caught_up_ms: int = UNKNOWN


class RaftStatus(NamedTuple):
    """The state of a replica."""

    key: ReplicaKey
    #: Kafka's name of the role, in small letters, and "resigned".
    role: str
    epoch: int
    leader_id: int | None
    voted: ReplicaKey | None
    high_watermark: int
    end_offset: int
    end_epoch: int
    kraft_version: int
    voters: tuple[Member, ...]
    observers: tuple[Member, ...] = ()
    #: Voters without an address of the controllers' listener.
    unreachable_voters: int = 0
    #: The last voter set is not committed yet.
    is_changing: bool = False
    #: The votes in the election that is under way.
    granted: tuple[int, ...] = ()
    rejected: tuple[int, ...] = ()

    @property
    def is_voter(self) -> bool:
        """Whether this replica is a voter."""
        return any(member.key.matches(self.key) for member in self.voters)


def status_of(q: Quorum, now_ms: int) -> RaftStatus:
    """Return the status of a replica; the caller holds its lock."""
    role, membership = q.role, q.outline.membership
    leader = role if isinstance(role, Leader) else None
    votes = role.votes if isinstance(role, Candidate | Prospective) else None
    listeners = [node.listener(q.config.listener_name) for node in membership.voters]

    def member(key: ReplicaKey, address: str, state: ReplicaState | None) -> Member:
        if key.matches(q.key):
            return Member(q.key, address, q.outline.end_offset, 0, 0 if leader else UNKNOWN)
        if state is None:
            return Member(key, address)
        return Member(
            key, address, state.end_offset, _since(state.last_fetch_ms, now_ms), _since(state.last_caught_up_ms, now_ms)
        )

    return RaftStatus(
        key=q.key,
        role=type(role).__name__.lower(),
        epoch=role.epoch,
        leader_id=None if isinstance(role, Resigned) else role.leader_id,  # as LeaderChanged says it
        voted=q.key if leader is not None else role.voted,
        high_watermark=q.high_watermark,
        end_offset=q.outline.end_offset,
        end_epoch=q.outline.last_epoch,
        kraft_version=membership.kraft_version,
        voters=tuple(
            member(
                node.key,
                "" if listener is None else f"{listener.host}:{listener.port}",
                None if leader is None else leader.voters.get(node.key.id),
            )
            for node, listener in zip(membership.voters, listeners, strict=True)
        ),
        observers=() if leader is None else tuple(member(key, "", state) for key, state in leader.observers.items()),
        unreachable_voters=sum(listener is None for listener in listeners),
        is_changing=membership.offset >= 0 and membership.offset >= q.high_watermark,
        granted=() if votes is None else tuple(sorted(votes.granted)),
        rejected=() if votes is None else tuple(sorted(votes.rejected)),
    )


def _since(time_ms: int, now_ms: int) -> int:
    return UNKNOWN if time_ms < 0 else max(0, now_ms - time_ms)


class Entry(NamedTuple):
    """A line of the history."""

    at_ms: int
    what: Transition


class History:
    """The last roles of a replica, and how long elections took (rule 3). The caller holds the replica's lock."""

    def __init__(self) -> None:
        self.on_elected: Callable[[float], object] = _nothing  # fixed before start; takes the duration in ms
        self._entries: deque[Entry] = deque(maxlen=HISTORY_MAX)  # guarded by: the replica's lock
        self._candidate_since_ms: int | None = None  # guarded by: the replica's lock

    def note(self, transitions: deque[Transition], now_ms: int, wall_ms: int) -> None:
        """Take transitions that have just happened.

        An election lasts from the candidacy of this replica until a leader is known, as in KafkaRaftMetrics.
        """
        while transitions:
            transition = transitions.popleft()
            self._entries.append(Entry(wall_ms, transition))
            if transition.role == "candidate":
                self._candidate_since_ms = now_ms
            elif transition.role in ("leader", "follower") and self._candidate_since_ms is not None:
                self.on_elected(now_ms - self._candidate_since_ms)
                self._candidate_since_ms = None

    def entries(self) -> Sequence[Entry]:
        """Return the entries, the oldest first."""
        return tuple(self._entries)


def _nothing(_: float) -> None:
    """Record nothing."""
