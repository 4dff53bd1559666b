"""IdlePartitions: partitions of fetch sessions that are not read again until something happens to them.

A session of many partitions, such as a follower's, mostly waits for a few of them. A partition is idle in a session
when there is nothing to tell the client: it fetches from the end that it may see, it knows the watermarks, and a
follower is in the ISR. Nobody reads the partition, and no request watches it, until `wake`.

Rules
1. Whoever changes what a fetch of a partition would answer calls `ReplicaManager.complete_delayed`, which wakes it here
   before it checks the purgatories. The caller holds no lock of a partition or log.
2. An event between the read and `add` must not be lost: the session compares the partition again after it was added.
3. A session compares each idle partition again every REVISIT_MS, a few at each request. So a change that wakes nobody,
   such as retention that moves the log's start, is told late, but told.
4. A follower's fetches count for its idle partitions, too. When one is woken, the leader notes the time of the
   session's last fetch (`Partition.note_still_fetched`), and it does so before it takes a follower out of the ISR that
   seems to lag (`note_fetches`): between an append and the waking, each idle follower seems to.

Threads: any. `_lock` is a leaf, taken inside a session's lock.
Different from Apache Kafka, which reads every partition of a session at every request.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from barnabas.broker.replication.reading import has_no_news

if TYPE_CHECKING:
    from barnabas.broker.monitoring.topic_stats import BrokerTopicStats
    from barnabas.broker.replication.hosted_partitions import HostedPartitions
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.reading import FetchItem
    from barnabas.broker.storage.log.log_types import FetchIsolation
    from barnabas.common.topic_partition import TopicPartition

REVISIT_MS = 10_000


Key: TypeAlias = tuple[str | bytes, int]  # of a partition in its session: topic name or id, partition


class Watcher(NamedTuple):
    """Who fetches, as far as the answers depend on it. With another one, every partition is read again."""

    replica_id: int
    replica_epoch: int
    isolation: FetchIsolation
    leader_only: bool
    rights: tuple[str, str, int] | None  # principal, host, generation of the rules; None without an authorizer

    @property
    def is_follower(self) -> bool:
        """Whether the client is a broker that copies."""
        return self.replica_id >= 0


class Owner(Protocol):
    """The session in which partitions are idle."""

    def __hash__(self) -> int:
        """By identity: it is a key of the fetch purgatory."""

    def wake(self, key: Key) -> bool:
        """Read the partition again if there is something to tell; returns whether there is.

        Any thread, which holds no lock of a partition or log. The owner removes the partition at its next request.
        """

    def last_fetch(self) -> tuple[int, int]:
        """The replica id of the client and the time of its last request, in monotonic ms; takes no lock."""

    def note_fetches(self, key: Key) -> None:
        """Tell the partition, which is idle or was woken, of its follower's last fetch; likewise."""


def is_idle(partition: Partition, watcher: Watcher, item: FetchItem, high_watermark: int, log_start: int) -> bool:
    """Whether a fetch of `item` would tell nothing new to a client that knows these watermarks. Takes no lock."""
    return has_no_news(
        partition,
        item,
        high_watermark,
        log_start,
        replica_id=watcher.replica_id,
        isolation=watcher.isolation,
        leader_only=watcher.leader_only,
    )


class IdlePartitions:
    """The sessions in which partitions of a broker are idle, by partition."""

    def __init__(self, hosted: HostedPartitions, stats: BrokerTopicStats) -> None:
        self.hosted = hosted  # fixed before start
        self.stats = stats  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._owners: dict[TopicPartition, list[tuple[Owner, Key]]] = {}  # guarded by: _lock, but for `has`, `has_any`

    def has(self, tp: TopicPartition) -> bool:
        """Whether the partition is idle in a session.

        Why unlocked: this is asked after every append, mostly in vain. A session that adds the partition after this
        compares it again (rule 2), and the caller changed the state before.
        """
        return tp in self._owners

    def has_any(self) -> bool:
        """Whether any partition is idle in a session. Unlocked, likewise."""
        return bool(self._owners)

    def add(self, owner: Owner, idle: Iterable[tuple[TopicPartition, Key]]) -> None:
        """Wake `owner` when something happens to these partitions."""
        with self._lock:
            for tp, key in idle:
                self._owners.setdefault(tp, []).append((owner, key))

    def remove(self, owner: Owner, idle: Iterable[tuple[TopicPartition, Key]]) -> None:
        """Wake `owner` for these no more."""
        with self._lock:
            for tp, key in idle:
                owners = self._owners.get(tp)
                assert owners is not None, "a session removes what it added"
                owners.remove((owner, key))
                if not owners:
                    del self._owners[tp]

    def wake(self, tp: TopicPartition) -> list[Owner]:
        """Return the sessions that have something to tell by now; the caller tries their requests."""
        return [owner for owner, key in self._owners_of(tp) if owner.wake(key)]

    def note_fetches(self, tp: TopicPartition) -> None:
        """Tell the partition of the fetches that counted for it (rule 4); the caller holds no lock of a partition."""
        for owner, key in self._owners_of(tp):
            owner.note_fetches(key)

    def last_fetches(self, tp: TopicPartition) -> dict[int, int]:
        """The times of the fetches that counted for the partition, by replica id, for the live page."""
        return dict(sorted(owner.last_fetch() for owner, _ in self._owners_of(tp)))

    def _owners_of(self, tp: TopicPartition) -> tuple[tuple[Owner, Key], ...]:
        with self._lock:
            return tuple(self._owners.get(tp, ()))
