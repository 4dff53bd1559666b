"""The uniform assignor for members with equal subscriptions: balance first, then stickiness.

Theory
With P partitions and M members, every member gets P // M partitions, and P % M of them get one more. A member with more
than its share gives up the rest. The extra partitions stay with members that already own more than P // M, as far as
there are extras. The free partitions then go to members with less than their share. So no partition moves without need,
and the members' counts differ by at most one.

Source: Kafka's UniformHomogeneousAssignmentBuilder (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.coordinators.assignors.specs import Specs
from barnabas.broker.coordinators.consumer.values import Assignment


def assign_homogeneous(members: Specs, counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Assign every partition of the common topics; `counts` maps topic ids to partition counts."""
    if not members:
        return {}
    topic_ids = sorted(next(iter(members.values())).topic_ids)
    held: dict[str, list[tuple[bytes, int]]] = {}
    owned: set[tuple[bytes, int]] = set()
    for member_id, spec in members.items():
        claims = _still_wanted(spec.assignment, counts, topic_ids)
        held[member_id] = [tp for tp in claims if tp not in owned]
        owned.update(claims)
    free = [(topic_id, p) for topic_id in topic_ids for p in range(counts[topic_id]) if (topic_id, p) not in owned]
    shares = _shares({member_id: len(partitions) for member_id, partitions in held.items()}, len(owned) + len(free))
    for member_id, partitions in held.items():
        free += partitions[shares[member_id] :]
        del partitions[shares[member_id] :]
    free.reverse()  # taken from the end
    for member_id, partitions in held.items():
        while len(partitions) < shares[member_id]:
            partitions.append(free.pop())
    assert not free, "every partition has an owner"
    return {member_id: _by_topic(partitions) for member_id, partitions in held.items()}


def _still_wanted(
    assignment: Assignment, counts: Mapping[bytes, int], topic_ids: list[bytes]
) -> list[tuple[bytes, int]]:
    return [(id_, p) for id_ in topic_ids for p in sorted(assignment.get(id_, ())) if 0 <= p < counts[id_]]


def _shares(sizes: Mapping[str, int], partition_count: int) -> dict[str, int]:
    """Return the number of partitions for each member; the largest owners get the extra ones."""
    least, extra = divmod(partition_count, len(sizes))
    shares = dict.fromkeys(sizes, least)
    for member_id in sorted(sizes, key=lambda member_id: sizes[member_id] <= least)[:extra]:
        shares[member_id] += 1
    return shares


def _by_topic(partitions: list[tuple[bytes, int]]) -> Assignment:
    found: dict[bytes, set[int]] = {}
    for topic_id, partition in partitions:
        found.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(ids) for topic_id, ids in found.items()}
