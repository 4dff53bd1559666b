"""The assignor of share groups: members share partitions, evenly. Pure.

Theory
With P partitions and M members, each partition is given to S = ceil(M / P) members, so that nobody is idle. These S * P
places are shared evenly: the members' counts differ by at most one. A place that a member already has stays with it,
unless it has more places than its part, or the partition has more than S members.

Members with equal subscriptions share all topics as one. Otherwise each topic is shared among its subscribers alone.

The last places of a partition may find only members that have it already. Then such a member takes another partition,
from a member that does not have this one, which takes this one. There always is one: a member without this partition
has at least as many places as the other one has left, so it has one that the other one lacks.

Source: Kafka's SimpleAssignor, SimpleHomogeneousAssignmentBuilder, SimpleHeterogeneousAssignmentBuilder (4.3).

Different from Apache Kafka: the exchange at the end; Kafka leaves such places free.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from barnabas.broker.coordinators.assignors.specs import Specs, is_homogeneous
from barnabas.broker.coordinators.consumer.values import Assignment

TopicPartition: TypeAlias = tuple[bytes, int]  # topic id, partition
Held: TypeAlias = dict[str, set[TopicPartition]]  # by member id


def assign_simple(members: Specs, assignable: Mapping[bytes, frozenset[int]]) -> dict[str, Assignment]:
    """Assign every partition of `assignable` (topic id -> partitions) to members that are subscribed to its topic."""
    target: Held = {member_id: set() for member_id in members}
    if is_homogeneous(members):
        pools = [(sorted(members), sorted(next(iter(members.values())).topic_ids))] if members else []
    else:
        topic_ids = sorted({topic_id for spec in members.values() for topic_id in spec.topic_ids})
        ordered = sorted(members)
        pools = [([m for m in ordered if id_ in members[m].topic_ids], [id_]) for id_ in topic_ids]
    for member_ids, pool_ids in pools:
        partitions = [(id_, partition) for id_ in pool_ids for partition in sorted(assignable.get(id_, ()))]
        if partitions:
            for member_id, held in _share(member_ids, pool_ids, partitions, members).items():
                target[member_id] |= held
    return {member_id: _by_topic(held) for member_id, held in target.items()}


def _share(
    member_ids: Sequence[str], topic_ids: Sequence[bytes], partitions: Sequence[TopicPartition], members: Specs
) -> Held:
    sharing = -(-len(member_ids) // len(partitions))
    known = set(partitions)
    held = {
        # Why by the pool's topics: there may be a pool for each topic that a member has.
        member_id: [
            (id_, p) for id_ in topic_ids for p in members[member_id].assignment.get(id_, ()) if (id_, p) in known
        ]
        for member_id in member_ids
    }
    parts = _parts({member_id: len(found) for member_id, found in held.items()}, sharing * len(partitions))
    kept, places = _keep(held, parts, dict.fromkeys(partitions, sharing))
    _fill(kept, parts, places)
    return kept


def _parts(sizes: Mapping[str, int], place_count: int) -> dict[str, int]:
    """Return the number of places for each member; the largest holders get the extra ones."""
    least, extra = divmod(place_count, len(sizes))
    parts = dict.fromkeys(sizes, least)
    for member_id in sorted(sizes, key=lambda member_id: sizes[member_id] <= least)[:extra]:
        parts[member_id] += 1
    return parts


def _keep(
    held: Mapping[str, Sequence[TopicPartition]], parts: Mapping[str, int], places: dict[TopicPartition, int]
) -> tuple[Held, dict[TopicPartition, int]]:
    """Return what each member keeps, and the free places of each partition."""
    holders: dict[TopicPartition, int] = {}
    for found in held.values():
        for tp in found:
            holders[tp] = holders.get(tp, 0) + 1
    kept: Held = {}
    for member_id, found in held.items():
        kept[member_id] = set()
        for tp in sorted(found, key=lambda tp: (holders[tp], tp)):  # those that few others hold, first
            if places[tp] and len(kept[member_id]) < parts[member_id]:
                places[tp] -= 1
                kept[member_id].add(tp)
    return kept, places


def _fill(kept: Held, parts: Mapping[str, int], places: Mapping[TopicPartition, int]) -> None:
    """Give the free places to members with room, those with most room first."""
    room = [(len(found) - parts[member_id], member_id) for member_id, found in kept.items()]  # negative
    room = [entry for entry in room if entry[0]]
    heapq.heapify(room)
    for tp, free in places.items():
        have_it: list[tuple[int, str]] = []
        for _ in range(free):
            while room and tp in kept[room[0][1]]:
                have_it.append(heapq.heappop(room))
            if room:
                missing, member_id = heapq.heappop(room)
                kept[member_id].add(tp)
            else:
                missing, member_id = have_it.pop()
                _exchange(kept, tp, member_id)
            if missing + 1:
                have_it.append((missing + 1, member_id))
        for entry in have_it:
            heapq.heappush(room, entry)


def _exchange(kept: Held, tp: TopicPartition, member_id: str) -> None:
    """Give the partition to another member, whose place in another partition goes to this member."""
    mine = kept[member_id]
    for found in kept.values():
        if tp not in found and (spare := found - mine):
            other = min(spare)
            found.remove(other)
            found.add(tp)
            mine.add(other)
            return
    raise AssertionError("every member has the partition, or nothing else")


def _by_topic(partitions: set[TopicPartition]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in sorted(partitions):
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(ids) for topic_id, ids in found.items()}
