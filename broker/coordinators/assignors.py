"""The server-side assignors of consumer groups: subscriptions in, target assignments out. Pure.

An assignor gets every member with what it is subscribed to and what it was meant to have before, and deals out the
partitions of all topics: each to exactly one subscriber of its topic.

    range    a member's partitions of a topic are neighbours; topics with equally many partitions are cut alike, so
             that partition p of each goes to the same member, whose work may join them
    uniform  every member gets as many partitions as any other (as nearly as its subscription allows) and keeps what
             it has (`assignor_uniform.py`, `assignor_mixed.py`)

Racks play no part, as in Kafka since 4.0.

Source: Kafka's RangeAssignor, ConsumerGroupPartitionAssignor, GroupSpec (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.broker.coordinators.assignor_mixed import assign_mixed
from barnabas.broker.coordinators.assignor_types import MemberSpec, Specs, is_homogeneous
from barnabas.broker.coordinators.assignor_uniform import assign_homogeneous
from barnabas.broker.coordinators.consumer_group_types import Assignment

Counts: TypeAlias = Mapping[bytes, int]  # topic id -> how many partitions it has
Assign: TypeAlias = Callable[[Specs, Counts], dict[str, Assignment]]


def assign_uniform(members: Specs, counts: Counts) -> dict[str, Assignment]:
    """Balance first, then stickiness."""
    return assign_homogeneous(members, counts) if is_homogeneous(members) else assign_mixed(members, counts)


@dataclass(slots=True)
class _Cut:
    """How a topic is being cut into ranges."""

    partitions: int
    subscribers: int = 0
    next_partition: int = 0
    cut_count: int = 0

    def next_range(self) -> range:
        least, extra = divmod(self.partitions, self.subscribers)
        start = self.next_partition
        self.next_partition = start + least + (self.cut_count < extra)
        self.cut_count += 1
        return range(start, self.next_partition)


class _Rank(NamedTuple):
    """Static members come first, by instance id: a restart, which brings another member id, moves no range."""

    is_dynamic: bool
    name: str


def assign_range(members: Specs, counts: Counts) -> dict[str, Assignment]:
    """Cut every topic into ranges, one a subscriber, the longer ones first."""
    cuts: dict[bytes, _Cut] = {}
    for member in members.values():
        for topic_id in member.topic_ids:
            cuts.setdefault(topic_id, _Cut(counts[topic_id])).subscribers += 1
    target: dict[str, Assignment] = {}
    for member_id in sorted(members, key=lambda member_id: _rank(member_id, members[member_id])):
        ranges = {topic_id: cuts[topic_id].next_range() for topic_id in sorted(members[member_id].topic_ids)}
        target[member_id] = {topic_id: frozenset(found) for topic_id, found in ranges.items() if found}
    return target


def _rank(member_id: str, member: MemberSpec) -> _Rank:
    return _Rank(member.instance_id is None, member_id if member.instance_id is None else member.instance_id)


ASSIGNORS: Mapping[str, Assign] = {"uniform": assign_uniform, "range": assign_range}
