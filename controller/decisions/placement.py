"""Placement: chooses the brokers for the replicas of new partitions.

Rules
1. The first replica (the preferred leader) is on an unfenced broker.
2. The replicas of a partition are spread over racks as evenly as the sizes of the racks allow. Brokers without a rack
   form a rack of their own.
3. Each partition starts at the next rack, and within a rack at the next broker. This stripes leaders and load.
4. A fenced broker is used only if its rack has no unfenced broker left for that partition.
5. After as many partitions as there are unfenced brokers, the order is shuffled. So the same sets do not repeat.

Threads: none; pure except for the caller's random generator.

Source: StripedReplicaPlacer (Kafka 4.3).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.protocol.errors import ApiError, ErrorCode


class UsableBroker(NamedTuple):
    """A candidate: a registered broker, not in controlled shutdown, with a log directory for new replicas."""

    id: int
    rack: str | None
    is_fenced: bool


class _Ring:
    """The fenced or the unfenced brokers of one rack; each round starts one broker further (rule 3)."""

    def __init__(self, broker_ids: list[int], rng: random.Random) -> None:
        self._brokers = sorted(broker_ids)
        self._offset = rng.randrange(len(broker_ids)) if broker_ids else 0
        self._round = 0
        self._index = 0

    def next(self, round_number: int) -> int | None:
        """Return the next broker of this round; None after each was returned once."""
        if not self._brokers:
            return None
        if self._round != round_number:
            self._round = round_number
            self._index = 0
            self._offset = (self._offset + 1) % len(self._brokers)
        if self._index >= len(self._brokers):
            return None
        broker = self._brokers[(self._index + self._offset) % len(self._brokers)]
        self._index += 1
        return broker

    def shuffle(self, rng: random.Random) -> None:
        """Shuffle the brokers (rule 5)."""
        rng.shuffle(self._brokers)


class _Rack:
    """The brokers of one rack."""

    def __init__(self, brokers: list[UsableBroker], rng: random.Random) -> None:
        self.fenced = _Ring([b.id for b in brokers if b.is_fenced], rng)
        self.unfenced = _Ring([b.id for b in brokers if not b.is_fenced], rng)

    def next(self, round_number: int) -> int | None:
        """Return the next broker, an unfenced one if possible (rule 4); None if all were returned."""
        broker = self.unfenced.next(round_number)
        return self.fenced.next(round_number) if broker is None else broker

    def shuffle(self, rng: random.Random) -> None:
        """Shuffle the brokers (rule 5)."""
        self.fenced.shuffle(rng)
        self.unfenced.shuffle(rng)


class _Racks:
    """All racks, and the position of the next partition."""

    def __init__(self, brokers: list[UsableBroker], rng: random.Random) -> None:
        self._rng = rng
        names = sorted({b.rack for b in brokers}, key=lambda name: (name is not None, name or ""))
        self._racks = [_Rack([b for b in brokers if b.rack == name], rng) for name in names]
        self._unfenced_count = sum(not b.is_fenced for b in brokers)
        self._round = 0
        self._offset = rng.randrange(len(self._racks))

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition."""
        if self._round == self._unfenced_count and self._unfenced_count > 1:
            self._shuffle()
            self._round = 0
        self._offset %= len(self._racks)
        first_rack, leader = self._first_unfenced()
        replicas = [leader]
        replicas += self._followers(replication_factor - 1, first_rack)
        self._round += 1
        self._offset += 1
        return tuple(replicas)

    def _first_unfenced(self) -> tuple[int, int]:
        """Return the first rack, from the offset on, with an unfenced broker, and that broker (rule 1)."""
        for step in range(len(self._racks)):
            index = (self._offset + step) % len(self._racks)
            broker = self._racks[index].unfenced.next(self._round)
            if broker is not None:
                return index, broker
        raise AssertionError("the caller has checked that a broker is unfenced")

    def _followers(self, count: int, leader_rack: int) -> list[int]:
        """Return the other replicas, rack by rack; the first round skips the leader's rack (rule 2)."""
        replicas: list[int] = []
        index, passed_leader_rack = self._offset, False
        while len(replicas) < count:
            if index == leader_rack and not passed_leader_rack:
                passed_leader_rack = True
            else:
                broker = self._racks[index].next(self._round)
                if broker is not None:
                    replicas.append(broker)
            index = (index + 1) % len(self._racks)
        return replicas

    def _shuffle(self) -> None:
        self._rng.shuffle(self._racks)
        for rack in self._racks:
            rack.shuffle(self._rng)


def place_replicas(
    brokers: Iterable[UsableBroker], partition_count: int, replication_factor: int, rng: random.Random
) -> list[tuple[int, ...]]:
    """Return the replicas of each of `partition_count` new partitions.

    Raises ApiError(INVALID_REPLICATION_FACTOR).
    """
    candidates = list(brokers)
    if replication_factor <= 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Invalid replication factor {replication_factor}: the replication factor must be positive.",
        )
    if all(broker.is_fenced for broker in candidates):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "All brokers are currently fenced, or have all their log directories cordoned.",
        )
    if replication_factor > len(candidates):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(candidates)} broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    racks = _Racks(candidates, rng)
    return [racks.place(replication_factor) for _ in range(partition_count)]
