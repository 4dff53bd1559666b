"""The roles of a replica in an epoch, and when each grants a vote.

A replica that has voted is Unattached or Prospective with its vote in `voted` (Kafka 4 has no Voted state any more).

Rules
1. A vote is given once in an epoch, to one replica and directory; the same one gets it again if it asks again.
2. A vote needs a log that is as new as ours. It is not given while the epoch's leader is known.
3. A pre-vote (KIP-996) changes nothing. A follower that has fetched from its leader refuses it, and so does a leader.

Source: UnattachedState, ProspectiveState, CandidateState, FollowerState, ResignedState, EpochElection (Kafka 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.controller.raft.log_outline import OffsetAndEpoch
from barnabas.controller.raft.voter_set import Listener, ReplicaKey, VoterSet


class Votes:
    """The votes of one election, or of one pre-vote."""

    __slots__ = ("_majority", "_voters", "granted", "rejected")

    def __init__(self, voters: VoterSet, local_id: int) -> None:
        self._voters = [node.key for node in voters]
        self._majority = voters.majority
        self.granted = {local_id}
        self.rejected: set[int] = set()

    def record(self, voter_id: int, is_granted: bool) -> None:
        """Count the answer of a voter; later ones of the same voter replace it."""
        if any(key.id == voter_id for key in self._voters):
            (self.granted if is_granted else self.rejected).add(voter_id)
            (self.rejected if is_granted else self.granted).discard(voter_id)

    @property
    def is_granted(self) -> bool:
        """Whether a majority has granted its vote."""
        return len(self.granted) >= self._majority

    @property
    def is_rejected(self) -> bool:
        """Whether a majority cannot be reached any more."""
        return len(self._voters) - len(self.rejected) < self._majority

    @property
    def unrecorded(self) -> list[ReplicaKey]:
        """The voters that have not answered."""
        return [key for key in self._voters if key.id not in self.granted and key.id not in self.rejected]


@dataclass(slots=True)
class Unattached:
    """Knows no leader to fetch from; waits for one, or for its election timeout."""

    epoch: int
    deadline_ms: int
    leader_id: int | None = None
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Prospective:
    """Asks for pre-votes: would a majority vote for it?"""

    epoch: int
    deadline_ms: int
    votes: Votes
    leader_id: int | None = None
    leader_endpoints: tuple[Listener, ...] = ()
    voted: ReplicaKey | None = None


@dataclass(slots=True)
class Candidate:
    """Has voted for itself, and asks for votes."""

    epoch: int
    deadline_ms: int
    votes: Votes
    voted: ReplicaKey
    leader_id: None = None


@dataclass(slots=True)
class FetchingSnapshot:
    """A snapshot that is being fetched: how much of it is there."""

    id: OffsetAndEpoch
    position: int = 0
    #: In bytes, as the first part names it.
    size: int = 0
    #: Whole; the driver loads it, and then reports `snapshot_received`.
    is_whole: bool = False


@dataclass(slots=True)
class Follower:
    """Fetches from the leader; its deadline is the fetch timeout."""

    epoch: int
    deadline_ms: int
    leader_id: int
    leader_endpoints: tuple[Listener, ...]
    voted: ReplicaKey | None = None
    has_fetched: bool = False
    snapshot: FetchingSnapshot | None = None
    update_voter_ms: int = 0
    #: Under kraft.version 0: the leader knows this voter's directory.
    is_described: bool = False
    leader_has_resigned: bool = False


@dataclass(slots=True)
class Resigned:
    """Was the epoch's leader, and informs the voters; its deadline is the election timeout."""

    epoch: int
    deadline_ms: int
    leader_id: int
    successors: list[ReplicaKey] = field(default_factory=list)
    unacknowledged: set[int] = field(default_factory=set)
    voted: None = None


def can_grant_pre_vote(role: object, is_up_to_date: bool) -> bool:
    """Return whether a replica that is not the leader would vote (rule 3)."""
    if isinstance(role, Follower) and role.has_fetched:
        return False
    return is_up_to_date


def can_grant_vote(role: object, candidate: ReplicaKey, is_up_to_date: bool) -> bool:
    """Return whether a replica may vote for the candidate (rules 1 and 2)."""
    if not isinstance(role, Unattached | Prospective):
        return False
    if role.voted is not None:
        return role.voted.matches(candidate)
    return role.leader_id is None and is_up_to_date
