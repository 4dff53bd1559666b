"""The server-side assignors of consumer groups: subscriptions in, target assignments out. Pure.

An assignor gets every member with its subscription and its last target assignment. It assigns every partition of every
topic to exactly one subscriber of the topic.

    range    assigns ranges: a member's partitions of a topic are neighbours. Topics with equal partition counts and
             subscribers are split alike, so a member gets the same partitions of each and can join the topics.
    uniform  gives all members equally many partitions, as nearly as their subscriptions allow, and moves as few
             partitions as possible (`homogeneous.py`, `heterogeneous.py`)

Racks are ignored, as in Kafka since 4.0.

Source: Kafka's RangeAssignor, ConsumerGroupPartitionAssignor, GroupSpec (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from barnabas.broker.coordinators.assignors.heterogeneous import assign_heterogeneous
from barnabas.broker.coordinators.assignors.homogeneous import assign_homogeneous
from barnabas.broker.coordinators.assignors.specs import MemberSpec, Specs, is_homogeneous
from barnabas.broker.coordinators.consumer.values import Assignment

Counts: TypeAlias = Mapping[bytes, int]  # topic id -> partition count
Assign: TypeAlias = Callable[[Specs, Counts], dict[str, Assignment]]


def assign_uniform(members: Specs, counts: Counts) -> dict[str, Assignment]:
    """Balance first, then stickiness."""
    return assign_homogeneous(members, counts) if is_homogeneous(members) else assign_heterogeneous(members, counts)


@dataclass(slots=True)
class _Split:
    """The progress of splitting a topic into ranges."""

    partitions: int
    subscribers: int = 0
    next_partition: int = 0
    range_count: int = 0

    def next_range(self) -> range:
        least, extra = divmod(self.partitions, self.subscribers)
        start = self.next_partition
        self.next_partition = start + least + (self.range_count < extra)
        self.range_count += 1
        return range(start, self.next_partition)


class _Rank(NamedTuple):
    """Static members come first, by instance id: a restart changes the member id, and must not move ranges."""

    is_dynamic: bool
    name: str


def assign_range(members: Specs, counts: Counts) -> dict[str, Assignment]:
    """Split every topic into one range per subscriber, the longer ones first."""
    splits: dict[bytes, _Split] = {}
    for member in members.values():
        for topic_id in member.topic_ids:
            splits.setdefault(topic_id, _Split(counts[topic_id])).subscribers += 1
    target: dict[str, Assignment] = {}
    for member_id in sorted(members, key=lambda member_id: _rank(member_id, members[member_id])):
        ranges = {topic_id: splits[topic_id].next_range() for topic_id in sorted(members[member_id].topic_ids)}
        target[member_id] = {topic_id: frozenset(found) for topic_id, found in ranges.items() if found}
    return target


def _rank(member_id: str, member: MemberSpec) -> _Rank:
    return _Rank(member.instance_id is None, member_id if member.instance_id is None else member.instance_id)


ASSIGNORS: Mapping[str, Assign] = {"uniform": assign_uniform, "range": assign_range}
