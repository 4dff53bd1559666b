"""Deals partitions to members whose subscriptions differ: balance as far as they allow, then stickiness.

Theory
1. Everybody keeps what it is still subscribed to.
2. Free partitions go, topic by topic, to the least loaded subscriber. Topics with most partitions a subscriber come
   first: they leave least choice, and those with few subscribers can still be evened out by the rest.
3. Then loads are evened out, topic by topic: while the subscriber with most partitions (of all topics) that holds one
   of this topic has at least two more than the one with fewest, it hands one over. A topic that moved something may
   have opened a way for another, so topics are gone through again until none moves anything, but not for ever.

Each round of 3 looks at the ends of two heaps; an entry that is out of date is put back with the right load.

Source: Kafka's UniformHeterogeneousAssignmentBuilder (4.3).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from barnabas.broker.coordinators.assignor_types import Specs
from barnabas.broker.coordinators.consumer_group_types import Assignment

ROUNDS_MAX = 16


def assign_mixed(members: Specs, counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Assign every partition of every topic that somebody is subscribed to."""
    deal = _Deal(members, counts)
    deal.hand_out()
    deal.even_out()
    return deal.target()


class _Deal:
    """Partitions being dealt."""

    __slots__ = ("_counts", "_loads", "_members", "_owned", "_subscribers", "_topics")

    def __init__(self, members: Specs, counts: Mapping[bytes, int]) -> None:
        self._members = members
        self._counts = counts
        self._subscribers: dict[bytes, list[str]] = {}  # by topic, in the members' order
        for member_id, spec in members.items():
            for topic_id in spec.topic_ids:
                self._subscribers.setdefault(topic_id, []).append(member_id)
        self._topics = sorted(self._subscribers, key=self._rank)
        self._owned: dict[bytes, dict[str, list[int]]] = {topic_id: {} for topic_id in self._topics}
        self._loads = dict.fromkeys(members, 0)  # partitions of all topics
        claimed: set[tuple[bytes, int]] = set()
        for member_id, spec in members.items():
            for topic_id in spec.topic_ids & spec.assignment.keys():
                for partition in sorted(spec.assignment[topic_id]):
                    if 0 <= partition < counts[topic_id] and (topic_id, partition) not in claimed:
                        claimed.add((topic_id, partition))
                        self._give(topic_id, partition, member_id)

    def _rank(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscriber_count = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscriber_count, subscriber_count, topic_id

    def _give(self, topic_id: bytes, partition: int, member_id: str) -> None:
        self._owned[topic_id].setdefault(member_id, []).append(partition)
        self._loads[member_id] += 1

    def hand_out(self) -> None:
        """Give every free partition to the least loaded subscriber."""
        for topic_id in self._topics:
            taken = {p for partitions in self._owned[topic_id].values() for p in partitions}
            heap = self._heap(self._subscribers[topic_id])
            for partition in range(self._counts[topic_id]):
                if partition not in taken:
                    load, order, member_id = heap[0]
                    self._give(topic_id, partition, member_id)
                    heapq.heapreplace(heap, (load + 1, order, member_id))

    def even_out(self) -> None:
        """Move partitions from the most to the least loaded, as long as that helps."""
        for _ in range(ROUNDS_MAX):
            moved = [topic_id for topic_id in self._topics if self._even_out_topic(topic_id)]
            if not moved:
                return

    def _even_out_topic(self, topic_id: bytes) -> bool:
        owned = self._owned[topic_id]
        least_loaded = self._heap(self._subscribers[topic_id])
        most_loaded = self._heap((member_id for member_id, held in owned.items() if held), sign=-1)
        has_moved = False
        while most_loaded:
            poor, rich = self._top(least_loaded, 1), self._top(most_loaded, -1)
            if self._loads[rich] - self._loads[poor] <= 1:
                break
            self._give(topic_id, owned[rich].pop(), poor)
            self._loads[rich] -= 1
            has_moved = True
            if not owned[rich]:
                heapq.heappop(most_loaded)
        return has_moved

    def _heap(self, member_ids: Iterable[str], sign: int = 1) -> list[tuple[int, int, str]]:
        heap = [(sign * self._loads[member_id], order, member_id) for order, member_id in enumerate(member_ids)]
        heapq.heapify(heap)
        return heap

    def _top(self, heap: list[tuple[int, int, str]], sign: int) -> str:
        """The member at the top by its present load. Who takes partitions of a topic gives none of it away again."""
        while True:
            load, order, member_id = heap[0]
            if load == sign * self._loads[member_id]:
                return member_id
            heapq.heapreplace(heap, (sign * self._loads[member_id], order, member_id))

    def target(self) -> dict[str, Assignment]:
        """What each member is to have."""
        return {
            member_id: {
                topic_id: frozenset(partitions)
                for topic_id in spec.topic_ids
                if (partitions := self._owned[topic_id].get(member_id))
            }
            for member_id, spec in self._members.items()
        }
