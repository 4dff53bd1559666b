"""The members of a classic group: the leader, the static members, the protocols that all members support.

Rules
1. This module keeps counts and indexes consistent; `steps.py` and `turn.py` decide when something may happen.
2. Members are kept in the order in which they joined; the first of several candidates becomes the leader.

Invariants (asserted by `invariants()`)
1. `awaiting_join_count` is the number of members with a parked join.
2. `static_members` maps the instance id of every static member to its member id, and nothing else.
3. `protocol_votes[p]` is the number of members that support protocol p.
4. The leader is a member. A pending member is not a member yet.

Threads: owner is the group's shard, under its lock.
Source: Kafka's ClassicGroup and ClassicGroupMember (4.3), KIP-345, KIP-394.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.broker.coordinators.classic.events import JoinedMember, JoinResult, Protocols, SyncResult
from barnabas.broker.coordinators.runtime.completion import Completion

CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(slots=True)
class Member:
    """One member, with the completions of its parked requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False  # joined, but not yet part of a generation
    awaiting_join: Completion[JoinResult] | None = None  # of the parked JoinGroup
    awaiting_sync: Completion[SyncResult] | None = None  # of the parked SyncGroup

    @property
    def is_waiting(self) -> bool:
        """Whether the member waits for an answer, so that it sends no heartbeats.

        A new member does not count. Its client may be gone unnoticed, since its connection is muted while the request
        is parked; so its session must be able to expire.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol; b"" if it does not support that protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """Return the candidate that the member prefers."""
        return next(name for name, _ in self.protocols if name in candidates)


class Members:
    """The members of one group, with counts and indexes."""

    __slots__ = (
        "awaiting_join_count", "by_id", "leader_id", "pending_join", "pending_sync", "protocol_votes",
        "static_members",
    )  # fmt: skip

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.pending_join: set[str] = set()  # ids that were given out (KIP-394); their members have not joined yet
        self.pending_sync: set[str] = set()  # members of this generation that have sent no SyncGroup yet
        self.protocol_votes: Counter[str] = Counter()
        self.awaiting_join_count = 0
        self.leader_id: str | None = None

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.by_id

    def add(self, member: Member) -> None:
        """Add a member; the first one becomes the leader."""
        assert member.member_id not in self.by_id
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.by_id[member.member_id] = member
        self._count_protocols(member, 1)
        if member.awaiting_join is not None:
            self.awaiting_join_count += 1
        self.pending_join.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member (or a pending one); if it was the leader, another member becomes the leader."""
        member = self.by_id.pop(member_id, None)
        if member is not None:
            self._count_protocols(member, -1)
            if member.awaiting_join is not None:
                self.awaiting_join_count -= 1
            if member.instance_id is not None:
                del self.static_members[member.instance_id]
        if member_id == self.leader_id:
            self.leader_id = next(iter(self.by_id), None)
        self.pending_join.discard(member_id)
        self.pending_sync.discard(member_id)
        return member

    def rename_static(self, instance_id: str, new_member_id: str) -> Member:
        """Give a static member without parked requests another id; it keeps its assignment and leadership."""
        old_id = self.static_members[instance_id]
        member = self.by_id.pop(old_id)
        assert member.awaiting_join is None
        assert member.awaiting_sync is None
        member.member_id = new_member_id
        member.is_new = False
        self.by_id[new_member_id] = member
        self.static_members[instance_id] = new_member_id
        if self.leader_id == old_id:
            self.leader_id = new_member_id
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        """Update a member that joins again."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: Member, reply: Completion[JoinResult]) -> Completion[JoinResult] | None:
        """Park the member's JoinGroup; returns an earlier one that it replaces, whose client gave up."""
        before = member.awaiting_join
        if before is None:
            self.awaiting_join_count += 1
        member.awaiting_join = reply
        return before

    def take_join(self, member: Member) -> Completion[JoinResult] | None:
        """Remove and return the parked JoinGroup; None if there is none."""
        reply = member.awaiting_join
        if reply is not None:
            member.awaiting_join = None
            self.awaiting_join_count -= 1
        return reply

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined, and no pending one is expected."""
        return len(self.by_id) == self.awaiting_join_count and not self.pending_join

    def not_rejoined_dynamic(self) -> list[Member]:
        """Return the dynamic members that have not rejoined, which are dropped when the rebalance timeout is over."""
        return [m for m in self.by_id.values() if m.awaiting_join is None and m.instance_id is None]

    def elect_joined_leader(self) -> bool:
        """Make a joined member the leader, unless the leader has joined; False if no member has joined."""
        if self.leader_id is None:
            return False
        if self.by_id[self.leader_id].awaiting_join is not None:
            return True
        joined = next((m.member_id for m in self.by_id.values() if m.awaiting_join is not None), None)
        if joined is None:
            return False
        self.leader_id = joined
        return True

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((m.rebalance_timeout_ms for m in self.by_id.values()), default=0)

    def have_in_common(self, protocols: Protocols) -> bool:
        """Return whether every member supports one of these protocols."""
        count = len(self.by_id)
        return any(self.protocol_votes[name] == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among those that all support; on a tie, the one voted for first."""
        count = len(self.by_id)
        candidates = {name for name, votes in self.protocol_votes.items() if votes == count}
        votes = Counter(member.vote(candidates) for member in self.by_id.values())
        return votes.most_common(1)[0][0]

    def joined(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """Return the members with their metadata, as the leader needs them for the assignment."""
        return tuple(JoinedMember(m.member_id, m.instance_id, m.metadata(protocol_name)) for m in self.by_id.values())

    def invariants(self) -> None:
        """Assert the invariants of the module; for tests, debugging and simulation."""
        members = self.by_id.values()
        assert self.awaiting_join_count == sum(m.awaiting_join is not None for m in members), "inv. 1"
        static = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        assert self.static_members == static, "inv. 2"
        votes = Counter(name for m in members for name in {name for name, _ in m.protocols})
        assert +self.protocol_votes == votes, "inv. 3"
        assert self.leader_id is None or self.leader_id in self.by_id, "inv. 4"
        assert self.pending_join.isdisjoint(self.by_id), "inv. 4"

    def _count_protocols(self, member: Member, by: int) -> None:
        for name in {name for name, _ in member.protocols}:
            self.protocol_votes[name] += by


def without_replaced(members: Iterable[Member]) -> list[Member]:
    """Return the members without those that a later one replaces, by member id or by instance id.

    Barnabas writes each id once, but another writer of the log may not.
    """
    by_id = {member.member_id: member for member in members}
    by_instance = {member.instance_id: member for member in by_id.values() if member.instance_id is not None}
    return [m for m in by_id.values() if m.instance_id is None or by_instance[m.instance_id] is m]
