"""Session: what a broker remembers of one client's fetches, and which of its partitions it need not read.

A partition is either due, and read at each request, or idle (`replication/idle_partitions.py`). Only a session of more
than IDLE_FROM partitions has idle ones: reading a few costs nothing, and their waiting requests show where they wait.

    due  --nothing to tell, and the client knows its watermarks--> idle
    idle --woken; changed by the client or, at a revisit, by nobody who told; another watcher--> due

Threads: any handler; `lock` guards the partitions. It comes before the lock of IdlePartitions. Whoever holds it takes
no lock of a partition.
Source: Kafka's FetchSession, CachedPartition (4.3), which have no idle partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from barnabas.broker.replication.idle_partitions import REVISIT_MS, IdlePartitions, Key, Watcher, is_idle
from barnabas.common.locks.factory import new_lock

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.reading import FetchItem, Read, ReadResult
    from barnabas.common.topic_partition import TopicPartition

IDLE_FROM = 20  # the live page explains no more partitions of one request

#: Returns what the answers to a client depend on; None if it may have no idle partitions.
WatcherOf: TypeAlias = "Callable[[], Watcher | None]"

#: Was idle; the follower's id; its last fetch, in monotonic ms; the leader epoch that it named.
Stirred: TypeAlias = "tuple[Partition, int, int, int]"


class CachedPartition:
    """A partition of a session: the client's last request for it, and the watermarks last sent to the client."""

    __slots__ = ("high_watermark", "item", "log_start_offset", "partition", "reads")

    def __init__(self, item: FetchItem) -> None:
        self.item = item  # guarded by: the session's lock
        self.high_watermark = -1  # guarded by: the session's lock; as last sent
        self.log_start_offset = -1  # guarded by: the session's lock; as last sent
        self.partition: Partition | None = None  # guarded by: the session's lock; of an idle or woken one
        self.reads = 0  # guarded by: the session's lock; of the session, when those of an idle one were counted

    def note(self, result: ReadResult) -> bool:
        """Remember the watermarks of a response; returns whether the response must name the partition."""
        is_changed = (
            result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
            or result.is_final
            or result.size > 0
        )
        # Why -1 after an error: its end is a change as well, even with the same watermark. After a divergence, too: the
        # follower truncates its log and takes no watermark from that answer.
        self.high_watermark = -1 if result.is_unused else result.high_watermark
        self.log_start_offset = result.log_start_offset
        return is_changed

    def ask(self, item: FetchItem) -> None:
        """Take over a changed request. With another leader epoch, the client may have dropped the last answer."""
        if item.current_leader_epoch != self.item.current_leader_epoch:
            self.high_watermark = -1
        self.item = item

    def is_idle(self, partition: Partition, watcher: Watcher) -> bool:
        """Whether a read would tell the client nothing new."""
        return is_idle(partition, watcher, self.item, self.high_watermark, self.log_start_offset)


class Session:
    """A client's set of partitions; those that are due in the order in which they are served next."""

    __slots__ = (
        "_fetched_ms",
        "_idle_partitions",
        "_reads",
        "_revisited_ms",
        "_watcher",
        "_woken",
        "created_ms",
        "due",
        "epoch",
        "id",
        "idle",
        "is_closed",
        "is_privileged",
        "last_used_ms",
        "lock",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
        now_ms: int,
        idle_partitions: IdlePartitions | None = None,
    ) -> None:
        self.id = session_id  # fixed before start
        self.is_privileged = is_privileged  # fixed before start; a follower's
        self.uses_topic_ids = uses_topic_ids  # fixed before start
        self.created_ms = now_ms  # fixed before start
        self._idle_partitions = idle_partitions  # fixed before start; None: no partition is ever idle
        self.lock = new_lock("fetch-session")
        self.last_used_ms = now_ms  # guarded by: the cache's lock
        self.is_closed = False  # set once: a request that waits for it makes nothing idle any more
        # Guarded by: lock.
        self.epoch = 1  # of the request expected next
        self.due: dict[Key, CachedPartition] = {}
        self.idle: dict[Key, CachedPartition] = {}  # the one that was compared longest ago first
        self._woken: dict[Key, CachedPartition] = {}  # were idle when the last request began, and are due now
        self._watcher: Watcher | None = None  # of the last request; None: it can have no idle partitions
        self._reads = 0  # how often all partitions were asked for
        self._fetched_ms = now_ms  # the time of the last request
        self._revisited_ms = now_ms

    def __len__(self) -> int:
        return len(self.due) + len(self.idle)

    def key(self, item: FetchItem) -> Key:
        """The key under which this session holds a partition."""
        return (item.topic_id if self.uses_topic_ids else item.tp.topic), item.tp.partition

    def tps(self) -> list[TopicPartition]:
        """Every partition."""
        with self.lock:
            return [cached.item.tp for cached in (*self.due.values(), *self.idle.values())]

    # Requests

    def begin(
        self,
        changed: Sequence[FetchItem],
        forgotten: Iterable[Key],
        topic_name: Callable[[bytes], str | None],
        watcher_of: WatcherOf,
        now_ms: int,
    ) -> tuple[list[FetchItem], list[Stirred]]:
        """Apply the changes of a request (lock held).

        Returns the partitions to read, and those that stopped to be idle, for `note_still_fetched`.
        """
        stirred: list[Stirred] = []
        watcher = watcher_of() if self.idle or len(self) + len(changed) > IDLE_FROM else None
        self._unwatch_woken()
        if self.idle:
            if watcher is None or watcher != self._watcher:
                stirred += self._stir(list(self.idle))
            else:
                stirred += self._revisit(now_ms)
        for item in changed:
            key = self.key(item)
            if key in self.idle:
                stirred += self._stir([key])
            cached = self.due.get(key)
            if cached is None:
                self.due[key] = CachedPartition(item)
            else:
                cached.ask(item)
        for key in forgotten:
            if key in self.idle:
                stirred += self._stir([key])
            self.due.pop(key, None)
        self._watcher = watcher
        self._reads += 1
        self._fetched_ms = now_ms
        self._resolve(topic_name)
        return [cached.item for cached in self.due.values()], stirred

    def woken(self) -> list[FetchItem]:
        """The partitions that were woken since the last request began."""
        if not self._woken:
            return []
        with self.lock:
            return [cached.item for cached in self._woken.values()]

    def idle_items(self) -> list[FetchItem]:
        """The partitions that are idle, for the live page."""
        with self.lock:
            return [cached.item for cached in self.idle.values()]

    def take(self, answered: Iterable[Read]) -> list[Read]:
        """Note what is answered; return what the response must name (lock held).

        A partition with records goes to the end of the order.
        """
        named: list[Read] = []
        quiet: list[Key] = []
        for item, result in answered:
            key = self.key(item)
            cached = self.due.get(key)
            if cached is None:
                continue
            if not cached.note(result):
                quiet.append(key)
                continue
            named.append((item, result))
            if result.size:
                del self.due[key]
                self.due[key] = cached
        if quiet and self._watcher is not None and len(self) > IDLE_FROM:
            self._rest(quiet, self._watcher)
        return named

    # Idle partitions

    def wake(self, key: Key) -> bool:
        """See IdlePartitions: something may have happened to an idle partition."""
        with self.lock:
            if key in self._woken:
                return True
            cached = self.idle.get(key)
            if cached is None or self._is_still_idle(cached):
                return False
            stirred = self._make_due([key])
            self._woken[key] = cached
        note_still_fetched(stirred)
        return True

    def last_fetch(self) -> tuple[int, int]:
        """See IdlePartitions."""
        watcher = self._watcher
        return (-1 if watcher is None else watcher.replica_id), self._fetched_ms

    def note_fetches(self, key: Key) -> None:
        """See IdlePartitions: tell the leader of the fetches that counted for an idle partition, or one just woken."""
        with self.lock:
            cached = self.idle.get(key) or self._woken.get(key)
            stirred = [] if cached is None else self._still_fetched([cached])
        note_still_fetched(stirred)

    def close(self) -> list[Stirred]:
        """End: no partition is idle any more. Returns those that were, for `note_still_fetched`."""
        with self.lock:
            self.is_closed = True
            self._unwatch_woken()
            return self._stir(list(self.idle))

    def _rest(self, quiet: list[Key], watcher: Watcher) -> None:
        """Make those partitions idle of which nothing new could be told."""
        idle_partitions = self._idle_partitions
        if idle_partitions is None or self.is_closed:
            return
        resting: list[tuple[TopicPartition, Key]] = []
        for key in quiet:
            cached = self.due[key]
            partition = idle_partitions.hosted.find(cached.item.tp)
            if partition is not None and cached.is_idle(partition, watcher):
                cached.partition = partition
                cached.reads = self._reads
                del self.due[key]
                self.idle[key] = cached
                if self._woken.pop(key, None) is None:  # else it is watched already
                    resting.append((cached.item.tp, key))
        idle_partitions.add(self, resting)
        # Why again: what happened in between has woken nobody.
        self._stir([key for _, key in resting if not self._is_still_idle(self.idle[key])])

    def _is_still_idle(self, cached: CachedPartition) -> bool:
        assert self._idle_partitions is not None
        partition, watcher = cached.partition, self._watcher
        return (
            partition is not None
            and watcher is not None
            and self._idle_partitions.hosted.find(cached.item.tp) is partition
            and cached.is_idle(partition, watcher)
        )

    def _revisit(self, now_ms: int) -> list[Stirred]:
        """Compare some idle partitions again, so that each is compared every REVISIT_MS."""
        count = len(self.idle) * (now_ms - self._revisited_ms) // REVISIT_MS
        if count <= 0:
            return []
        self._revisited_ms = now_ms
        changed: list[Key] = []
        for key, cached in list(islice(self.idle.items(), count)):
            if self._is_still_idle(cached):
                self._count_reads(cached)
                del self.idle[key]
                self.idle[key] = cached
            else:
                changed.append(key)
        return self._stir(changed)

    def _stir(self, keys: Sequence[Key]) -> list[Stirred]:
        """Make idle partitions due, and watch them no more."""
        if not keys:
            return []
        assert self._idle_partitions is not None
        cached = [self.idle[key] for key in keys]
        self._idle_partitions.remove(self, [(each.item.tp, key) for each, key in zip(cached, keys, strict=True)])
        stirred = self._make_due(keys)
        for each in cached:
            each.partition = None
        return stirred

    def _make_due(self, keys: Sequence[Key]) -> list[Stirred]:
        """Make idle partitions due; returns what their leaders are to note."""
        stirred = self._still_fetched([self.idle[key] for key in keys])
        for key in keys:
            cached = self.idle.pop(key)
            self._count_reads(cached)
            self.due[key] = cached
        return stirred

    def _still_fetched(self, idle: Iterable[CachedPartition]) -> list[Stirred]:
        """What leaders are to note of a follower's partitions that are, or were, idle; nothing of a consumer's."""
        watcher = self._watcher
        if watcher is None or not watcher.is_follower:
            return []
        return [
            (cached.partition, watcher.replica_id, self._fetched_ms, cached.item.current_leader_epoch)
            for cached in idle
            if cached.partition is not None
        ]

    def _unwatch_woken(self) -> None:
        """Forget what was woken. Why not when it is woken: what happens later may complete the same request."""
        if self._woken:
            assert self._idle_partitions is not None
            self._idle_partitions.remove(self, [(cached.item.tp, key) for key, cached in self._woken.items()])
            for cached in self._woken.values():
                cached.partition = None
            self._woken = {}

    def _count_reads(self, cached: CachedPartition) -> None:
        """Count the requests for an idle partition as those for one that is read (TotalFetchRequestsPerSec)."""
        reads = self._reads - cached.reads
        if reads > 0:
            assert self._idle_partitions is not None
            self._idle_partitions.stats.topic(cached.item.tp.topic).fetched(reads)
            cached.reads = self._reads

    def _resolve(self, topic_name: Callable[[bytes], str | None]) -> None:
        """Look up the names of topic ids again that had none."""
        for cached in self.due.values():
            if not cached.item.tp.topic:
                cached.item = resolve(cached.item, topic_name)


def resolve(item: FetchItem, topic_name: Callable[[bytes], str | None]) -> FetchItem:
    """The item with its topic's name, if the id is known by now."""
    name = topic_name(item.topic_id)
    return item if name is None else item.named(name)


def note_still_fetched(stirred: Iterable[Stirred]) -> None:
    """Tell partitions that a follower has fetched them while they were idle; no lock is held."""
    for partition, follower_id, fetched_ms, leader_epoch in stirred:
        partition.note_still_fetched(follower_id, fetched_ms, leader_epoch)
