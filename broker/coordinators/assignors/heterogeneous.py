"""The uniform assignor for members with different subscriptions: balance as far as they allow, then stickiness.

Theory
1. Each member keeps the partitions of topics that it is still subscribed to.
2. Free partitions go, topic by topic, to the least loaded subscriber. Topics with the most partitions per subscriber
   come first: they leave the least choice, and the rest can still balance topics with few subscribers.
3. Then the load is balanced, topic by topic. While the most loaded owner of a partition of this topic has at least two
   partitions (of all topics) more than the least loaded subscriber, it gives one to it. A move in one topic may enable
   a move in another, so the topics are visited again until nothing moves, for at most `ROUNDS_MAX` rounds.

Each round of step 3 looks at the tops of two heaps; an outdated entry is put back with the current load.

Source: Kafka's UniformHeterogeneousAssignmentBuilder (4.3).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

from barnabas.broker.coordinators.assignors.specs import Specs
from barnabas.broker.coordinators.consumer.values import Assignment

ROUNDS_MAX = 16


def assign_heterogeneous(members: Specs, counts: Mapping[bytes, int]) -> dict[str, Assignment]:
    """Assign every partition of every topic that has a subscriber."""
    builder = _Builder(members, counts)
    builder.assign_free()
    builder.balance()
    return builder.target()


class _Builder:
    """An assignment under construction."""

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
                        self._assign(topic_id, partition, member_id)

    def _rank(self, topic_id: bytes) -> tuple[float, int, bytes]:
        subscriber_count = len(self._subscribers[topic_id])
        return -self._counts[topic_id] / subscriber_count, subscriber_count, topic_id

    def _assign(self, topic_id: bytes, partition: int, member_id: str) -> None:
        self._owned[topic_id].setdefault(member_id, []).append(partition)
        self._loads[member_id] += 1

    def assign_free(self) -> None:
        """Assign every free partition to the least loaded subscriber."""
        for topic_id in self._topics:
            taken = {p for partitions in self._owned[topic_id].values() for p in partitions}
            heap = self._heap(self._subscribers[topic_id])
            for partition in range(self._counts[topic_id]):
                if partition not in taken:
                    load, order, member_id = heap[0]
                    self._assign(topic_id, partition, member_id)
                    heapq.heapreplace(heap, (load + 1, order, member_id))

    def balance(self) -> None:
        """Move partitions from the most to the least loaded members while that reduces the difference."""
        for _ in range(ROUNDS_MAX):
            moved = [topic_id for topic_id in self._topics if self._balance_topic(topic_id)]
            if not moved:
                return

    def _balance_topic(self, topic_id: bytes) -> bool:
        owned = self._owned[topic_id]
        least_loaded = self._heap(self._subscribers[topic_id])
        most_loaded = self._heap((member_id for member_id, held in owned.items() if held), sign=-1)
        has_moved = False
        while most_loaded:
            least, most = self._top(least_loaded, 1), self._top(most_loaded, -1)
            if self._loads[most] - self._loads[least] <= 1:
                break
            self._assign(topic_id, owned[most].pop(), least)
            self._loads[most] -= 1
            has_moved = True
            if not owned[most]:
                heapq.heappop(most_loaded)
        return has_moved

    def _heap(self, member_ids: Iterable[str], sign: int = 1) -> list[tuple[int, int, str]]:
        heap = [(sign * self._loads[member_id], order, member_id) for order, member_id in enumerate(member_ids)]
        heapq.heapify(heap)
        return heap

    def _top(self, heap: list[tuple[int, int, str]], sign: int) -> str:
        """Return the member at the top by its current load; a member that gains in a topic never loses in it."""
        while True:
            load, order, member_id = heap[0]
            if load == sign * self._loads[member_id]:
                return member_id
            heapq.heapreplace(heap, (sign * self._loads[member_id], order, member_id))

    def target(self) -> dict[str, Assignment]:
        """Return the target assignment of each member."""
        return {
            member_id: {
                topic_id: frozenset(partitions)
                for topic_id in spec.topic_ids
                if (partitions := self._owned[topic_id].get(member_id))
            }
            for member_id, spec in self._members.items()
        }
