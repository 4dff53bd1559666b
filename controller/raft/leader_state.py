"""The leader's view of its replicas: how far each has fetched, the high watermark, and whether a majority fetches.

Rules
1. The high watermark is what a majority of the voters has. It moves only past the start of the leader's own epoch: a
   majority that has a record of an earlier epoch does not commit it (figure 8 of the Raft paper).
2. It never moves back. A new leader does not know it until rule 1 gives it.
3. A leader that a majority (itself included, if it is a voter) has not fetched from within 1.5 times the fetch timeout
   resigns.
4. A voter counts with the directory of the voter set; the same id with another directory is an observer.
5. Under kraft.version 0 the log has no directories. Each voter names its own to each new leader, which keeps them in
   memory until the upgrade of kraft.version writes them.

Source: LeaderState (Kafka 4.3); KIP-595, KIP-853.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.common.ids import ZERO_UUID
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterNode, VoterSet

OBSERVERS_MAX: Final = 1_000
OBSERVER_SESSION_TIMEOUT_MS: Final = 300_000
CAUGHT_UP_WITHIN_MS: Final = 3_600_000
CHECK_QUORUM_FACTOR: Final = 1.5
UNKNOWN: Final = -1


@dataclass(slots=True)
class ReplicaState:
    """What the leader knows of one replica; times are of the replica's clock, -1 before the first fetch."""

    key: ReplicaKey
    end_offset: int = UNKNOWN
    last_fetch_ms: int = UNKNOWN
    last_caught_up_ms: int = UNKNOWN
    leader_end_at_last_fetch: int = UNKNOWN

    def note_fetch(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Note a fetch at `offset`, the replica's log end."""
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 < self.leader_end_at_last_fetch <= offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.leader_end_at_last_fetch = leader_end_offset
        self.last_fetch_ms = now_ms
        self.end_offset = offset


@dataclass(slots=True)
class VoterChange:
    """A change of the voter set that a client waits for."""

    #: The request, opaque to the core.
    token: Any
    deadline_ms: int
    #: The voter to add, while its supported versions are not known yet.
    joining: VoterNode | None = None
    #: The offset of the voter set's record; -1 while there is none.
    offset: int = UNKNOWN
    is_removal: bool = False
    #: The client waits for the record in the leader's log only (AddRaftVoter v1).
    is_acknowledged_early: bool = False


@dataclass(slots=True)
class Leader:
    """Leads the epoch."""

    epoch: int
    leader_id: int
    epoch_start_offset: int
    check_quorum_ms: int
    leader_endpoints: tuple[Listener, ...] = ()
    high_watermark: int = UNKNOWN
    voters: dict[int, ReplicaState] = field(default_factory=dict)
    observers: dict[ReplicaKey, ReplicaState] = field(default_factory=dict)
    fetched: set[int] = field(default_factory=set)
    begin_epoch_ms: int = 0
    change: VoterChange | None = None
    #: What static voters have named for the upgrade: directories and versions (rule 5); None under kraft.version 1.
    described: VoterSet | None = None
    is_resigning: bool = False
    voted: None = None

    def set_voters(self, voters: VoterSet) -> None:
        """Follow a new voter set; what is known of its replicas stays known."""
        known = [*self.voters.values(), *self.observers.values()]
        self.voters, self.observers = {}, {}
        for node in voters:
            state = next((state for state in known if node.key.matches(state.key)), None)
            self.voters[node.key.id] = state or ReplicaState(node.key)
        for state in known:
            # Why without those of no directory: they are static voters, which have one from the upgrade on. How far its
            # log is, that directory says with its next fetch.
            is_former = state.key.directory_id == ZERO_UUID and state.key.id in self.voters
            if self.voters.get(state.key.id) is not state and not is_former:
                self.observers[state.key] = state
        self.fetched.intersection_update(self.voters)

    def replica(self, key: ReplicaKey) -> ReplicaState:
        """Return the state of a voter or an observer, a new one if need be (rule 4)."""
        state = self.voters.get(key.id)
        if state is None or not state.key.matches(key):
            state = self.observers.get(key)
            if state is None:
                state = ReplicaState(key)
                if len(self.observers) < OBSERVERS_MAX:  # Why: each fetch may name another directory
                    self.observers[key] = state
        return state

    def is_voter(self, key: ReplicaKey) -> bool:
        """Return whether the replica counts for the majority (rule 4)."""
        state = self.voters.get(key.id)
        return state is not None and state.key.matches(key)

    def note_fetch(self, key: ReplicaKey, now_ms: int, timeout_ms: float) -> None:
        """Count a fetch of records or of a snapshot for the check of the quorum (rule 3)."""
        if not self.is_voter(key):
            return
        self.fetched.add(key.id)
        needed = len(self.voters) // 2 + 1 - (self.leader_id in self.voters)
        if len(self.fetched) >= needed:
            self.fetched.clear()
            self.check_quorum_ms = now_ms + int(timeout_ms * CHECK_QUORUM_FACTOR)

    def advance_high_watermark(self) -> bool:
        """Move the high watermark as far as a majority has fetched; return whether it moved (rules 1 and 2)."""
        ends = sorted([state.end_offset for state in self.voters.values()], reverse=True)
        candidate = ends[len(ends) // 2]
        if candidate <= self.epoch_start_offset or candidate <= self.high_watermark:
            return False
        self.high_watermark = candidate
        return True

    def is_caught_up(self, key: ReplicaKey, now_ms: int) -> bool:
        """Return whether an observer may become a voter: it reached the log's end, and fetched within the hour."""
        state = self.observers.get(key)
        return state is not None and state.last_caught_up_ms >= 0 and state.last_fetch_ms > now_ms - CAUGHT_UP_WITHIN_MS

    def successors(self) -> list[ReplicaKey]:
        """Return the other voters, the one with the longest log first."""
        others = [state for state in self.voters.values() if state.key.id != self.leader_id]
        return [state.key for state in sorted(others, key=lambda state: (-state.end_offset, state.key))]

    def forget_inactive_observers(self, now_ms: int, local: ReplicaKey) -> None:
        """Forget observers that have not fetched for five minutes."""
        for key, state in list(self.observers.items()):
            if key != local and now_ms - state.last_fetch_ms >= OBSERVER_SESSION_TIMEOUT_MS:
                del self.observers[key]
