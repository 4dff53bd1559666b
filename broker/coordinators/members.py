"""The members of a classic group: who is in, who leads, which protocol all of them speak.

Rules
1. This file keeps counts and indexes consistent; when something may happen is decided in `group.py`.
2. Members are kept in the order they came: of several that may lead, the first does.

Invariants (checked by `check()`)
1. `awaiting_join_count` is the number of members whose join is parked.
2. `static_members` maps the instance id of every static member to its member id, and nothing else.
3. `protocol_votes[p]` is the number of members that speak protocol p.
4. A leader is a member. A pending member is not (yet) a member.

Threads: owner is the group's shard, under its lock.
Source: Kafka's ClassicGroup and ClassicGroupMember (4.3), KIP-345, KIP-394.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from barnabas.broker.coordinators.group_events import JoinedMember, Protocols

CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(slots=True)
class Member:
    """One member; the parked requests are tokens of the shell."""

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
    awaiting_join: Any = None  # the parked JoinGroup
    awaiting_sync: Any = None  # the parked SyncGroup

    @property
    def is_waiting(self) -> bool:
        """Whether the member waits for us, so that no heartbeat can be expected of it.

        A new one is expected all the same: it may be gone without our seeing it, since a parked request mutes its
        connection.
        """
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)

    def metadata(self, protocol_name: str | None) -> bytes:
        """The metadata that came with a protocol; b"" for one it does not speak."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """The candidate it likes best."""
        return next(name for name, _ in self.protocols if name in candidates)


class Members:
    """The members of one group and what is counted over them."""

    __slots__ = (
        "awaiting_join_count", "by_id", "leader_id", "pending_join", "pending_sync", "protocol_votes",
        "static_members",
    )  # fmt: skip

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.pending_join: set[str] = set()  # named by us, expected to join under that name
        self.pending_sync: set[str] = set()  # joined this generation, not yet heard in SyncGroup
        self.protocol_votes: Counter[str] = Counter()
        self.awaiting_join_count = 0
        self.leader_id: str | None = None

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.by_id

    def add(self, member: Member) -> None:
        """Let a member in; the first one leads."""
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
        """Let a member (or a pending one) go; another leads if it did."""
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
        """Give the static member another id, keeping its place, assignment and leadership; nothing of it is parked."""
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
        """Take over what a member said when it joined again."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def park_join(self, member: Member, reply: Any) -> Any:
        """Remember the member's JoinGroup; returns one that it had parked before (the client gave up on it)."""
        before = member.awaiting_join
        if before is None:
            self.awaiting_join_count += 1
        member.awaiting_join = reply
        return before

    def take_join(self, member: Member) -> Any:
        """Take the parked JoinGroup out, None if there is none."""
        reply = member.awaiting_join
        if reply is not None:
            member.awaiting_join = None
            self.awaiting_join_count -= 1
        return reply

    @property
    def all_joined(self) -> bool:
        """Whether nobody is waited for."""
        return len(self.by_id) == self.awaiting_join_count and not self.pending_join

    def not_rejoined_dynamic(self) -> list[Member]:
        """Those to be dropped when the rebalance timeout is over; static members stay until their session ends."""
        return [m for m in self.by_id.values() if m.awaiting_join is None and m.instance_id is None]

    def elect_joined_leader(self) -> bool:
        """See to it that a leader has joined; false when no member has."""
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
        """How long the slowest member may take."""
        return max((m.rebalance_timeout_ms for m in self.by_id.values()), default=0)

    def speaks_with_all(self, protocols: Protocols) -> bool:
        """Whether one of these protocols is spoken by every member."""
        count = len(self.by_id)
        return any(self.protocol_votes[name] == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """The protocol that wins most votes among those spoken by all (the first voted for, if several do)."""
        count = len(self.by_id)
        candidates = {name for name, votes in self.protocol_votes.items() if votes == count}
        votes = Counter(member.vote(candidates) for member in self.by_id.values())
        return votes.most_common(1)[0][0]

    def joined(self, protocol_name: str | None) -> tuple[JoinedMember, ...]:
        """What a leader is told to assign by."""
        return tuple(JoinedMember(m.member_id, m.instance_id, m.metadata(protocol_name)) for m in self.by_id.values())

    def check(self) -> None:
        """Assert the invariants."""
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
    """The members without those that a later one replaces, by member id or by instance id.

    We never write two of them, but another writer of the log may.
    """
    by_id = {member.member_id: member for member in members}
    by_instance = {member.instance_id: member for member in by_id.values() if member.instance_id is not None}
    return [m for m in by_id.values() if m.instance_id is None or by_instance[m.instance_id] is m]


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Read the topics out of a consumer's subscription; None if it is not one.

    Format (any version begins like version 0): int16 version, array of (int16 length, utf-8) topics.
    """
    topics: set[str] = set()
    try:
        count = int.from_bytes(metadata[2:6], "big", signed=True)
        position = 6
        if len(metadata) < position or count < 0:
            return None
        for _ in range(count):
            size = int.from_bytes(metadata[position : position + 2], "big", signed=True)
            end = position + 2 + size
            if size < 0 or end > len(metadata):
                return None
            topics.add(metadata[position + 2 : end].decode())
            position = end
    except UnicodeDecodeError:
        return None
    return topics
