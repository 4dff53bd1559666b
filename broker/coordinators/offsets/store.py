"""The committed offsets of one shard's groups: stored, looked up, expired. Pure.

Rules
1. An offset is stored once its record is committed (below the high watermark), in log order. So a fetched offset cannot
   be lost.
2. Offsets of an open transaction are kept apart, by producer id, until its marker is written (KIP-98, KIP-447).
3. Between a transactional and a plain commit, the one with the higher record offset wins: compaction may reorder them.
4. An offset belongs to the topic whose id it carries. A topic that was deleted and created again has another id, and
   offsets of the former topic are never served for it. An offset without an id (before value version 4) is found by
   the topic's name.

Threads: owner is the group's shard, under its lock.
Source: Kafka's OffsetMetadataManager, OffsetAndMetadata, OffsetExpirationConditionImpl (4.3), KIP-211, KIP-848
(topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from barnabas.broker.coordinators.classic.events import GroupState
from barnabas.broker.coordinators.classic.group import Group
from barnabas.broker.coordinators.consumer.group import ConsumerGroup
from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

INVALID_OFFSET = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1


class CommittedOffset(NamedTuple):
    """One committed offset."""

    offset: int
    leader_epoch: int  # -1: unknown
    metadata: str
    commit_timestamp_ms: int  # wall
    expire_timestamp_ms: int = NO_TIMESTAMP  # wall; set by requests before v5, else the broker's retention applies
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1  # of its record in the log


class TopicQuery(NamedTuple):
    """A topic of an OffsetFetch; the id is ZERO_UUID for requests by name."""

    topic_id: bytes
    name: str
    partitions: Sequence[int]


class FetchedPartition(NamedTuple):
    """The answer for a partition."""

    partition: int
    offset: int = INVALID_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class FetchedTopic(NamedTuple):
    """The answer for a topic."""

    topic_id: bytes
    name: str
    partitions: list[FetchedPartition]


ByPartition = dict[int, CommittedOffset]
ByTopic = dict[str, ByPartition]
ByGroup = dict[str, ByTopic]


class OffsetStore:
    """Offsets by group, topic and partition."""

    __slots__ = ("_groups", "_open", "_pending", "count")

    def __init__(self) -> None:
        self._groups: ByGroup = {}
        self._pending: dict[int, ByGroup] = {}  # by producer id: commits of open transactions
        # The producer ids of each partition in `_pending`, by group. Why: a fetch may ask for each of many partitions
        # whether it is in one of many transactions.
        self._open: dict[str, dict[TopicPartition, set[int]]] = {}
        self.count = 0  # the number of stored offsets

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return the committed offset, if there is one."""
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """Return all committed offsets of a group."""
        for topic, partitions in self._groups.get(group_id, {}).items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Store a committed offset."""
        partitions = self._groups.setdefault(group_id, {}).setdefault(topic, {})
        self.count += partition not in partitions
        partitions[partition] = committed

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        """Store an offset of an open transaction."""
        by_group = self._pending.setdefault(producer_id, {})
        by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed
        producers = self._open.setdefault(group_id, {}).setdefault(TopicPartition(topic, partition), set())
        producers.add(producer_id)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Remove an offset, including those of open transactions."""
        if _remove(self._groups, group_id, topic, partition):
            self.count -= 1
        tp = TopicPartition(topic, partition)
        for producer_id in tuple(self._open.get(group_id, {}).get(tp, ())):
            _remove(self._pending[producer_id], group_id, topic, partition)
            self._close(producer_id, group_id, tp)

    def _close(self, producer_id: int, group_id: str, tp: TopicPartition) -> None:
        """Remove a producer from those of a partition."""
        partitions = self._open[group_id]
        partitions[tp].discard(producer_id)
        if not partitions[tp]:
            del partitions[tp]
        if not partitions:
            del self._open[group_id]

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        """Commit the offsets of a transaction, or drop them."""
        for group_id, topics in self._pending.pop(producer_id, {}).items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    self._close(producer_id, group_id, TopicPartition(topic, partition))
                    if is_committed:
                        self._put_newer(group_id, topic, partition, committed)

    def _put_newer(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        current = self.get(group_id, topic, partition)
        if current is None or committed.record_offset > current.record_offset:
            self.put(group_id, topic, partition, committed)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Return whether an open transaction has an offset for the partition."""
        return TopicPartition(topic, partition) in self._open.get(group_id, {})

    def has_open_transactions(self, group_id: str) -> bool:
        """Return whether an open transaction has offsets of the group."""
        return group_id in self._open

    def all_partitions(self, group_id: str) -> list[TopicPartition]:
        """Return every partition with a committed offset, or with one of an open transaction."""
        found = {tp: None for tp, _ in self.of_group(group_id)}
        found.update(dict.fromkeys(self._open.get(group_id, {})))
        return list(found)

    def of_topics(self, topics: Set[str]) -> dict[tuple[str, TopicPartition], set[bytes]]:
        """Return every (group, partition) with offsets in topics of these names, and the topic ids of the offsets."""
        found: dict[tuple[str, TopicPartition], set[bytes]] = {}
        for by_group in (self._groups, *self._pending.values()):
            for group_id, by_topic in by_group.items():
                for topic in topics & by_topic.keys():
                    for partition, committed in by_topic[topic].items():
                        found.setdefault((group_id, TopicPartition(topic, partition)), set()).add(committed.topic_id)
        return found

    def fetch(
        self,
        group_id: str,
        queries: Iterable[TopicQuery] | None,
        *,
        require_stable: bool,
        current_id: Callable[[str], bytes] = lambda _name: ZERO_UUID,
    ) -> list[FetchedTopic]:
        """Return the offsets of these partitions, or (None) of all; a partition without one gets INVALID_OFFSET.

        An offset of another topic (by id) with the same name does not count. A query by name means the current topic:
        `current_id(name)` is its id, ZERO_UUID if there is none. With `require_stable`, a partition with an offset of
        an open transaction gets UNSTABLE_OFFSET_COMMIT.
        """
        topics = self._groups.get(group_id, {})
        if queries is None:
            queries = [
                TopicQuery(current_id(name), name, known)
                for name, partitions in topics.items()
                if (known := [p for p, one in partitions.items() if not _is_of_another(one, current_id(name))])
            ]
        else:
            queries = [q if q.topic_id != ZERO_UUID else q._replace(topic_id=current_id(q.name)) for q in queries]
        return [
            FetchedTopic(
                topic.topic_id, topic.name,
                [
                    self._fetch_one(group_id, topic, partition, topics.get(topic.name, {}), require_stable)
                    for partition in topic.partitions
                ],
            )
            for topic in queries
        ]  # fmt: skip

    def _fetch_one(
        self, group_id: str, topic: TopicQuery, partition: int, committed: ByPartition, require_stable: bool
    ) -> FetchedPartition:
        if require_stable and self._open and self.has_pending(group_id, topic.name, partition):
            return FetchedPartition(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = committed.get(partition)
        if found is None or _is_of_another(found, topic.topic_id):
            return FetchedPartition(partition)
        return FetchedPartition(partition, found.offset, found.leader_epoch, found.metadata)

    def expired(
        self, group: Group | ConsumerGroup | StreamsGroup, now_ms: int, retention_ms: int
    ) -> tuple[list[TopicPartition], bool]:
        """Return the group's offsets that have expired at `now_ms` (wall), and whether none will be left (KIP-211).

        In a consumer or streams group only subscriptions and the time of the commit count.
        """
        if isinstance(group, Group) and group.group_id in self._groups:
            if not _may_expire(group):
                return [], False
            base_ms = group.state_timestamp_ms if group.protocol_type and group.state is GroupState.EMPTY else None
        else:
            base_ms = None
        due = []
        is_all = True
        for tp, committed in self.of_group(group.group_id):
            is_kept = (
                group.is_subscribed_to(tp.topic)
                or not _is_expired(committed, base_ms, now_ms, retention_ms)
                or self.has_pending(group.group_id, tp.topic, tp.partition)
            )  # fmt: skip
            if is_kept:
                is_all = False
            else:
                due.append(tp)
        return due, is_all and not self.has_open_transactions(group.group_id)


def _is_of_another(committed: CommittedOffset, topic_id: bytes) -> bool:
    """Return whether an offset belongs to a topic other than this one, as far as both ids are known."""
    return ZERO_UUID != committed.topic_id != topic_id != ZERO_UUID


def _may_expire(group: Group) -> bool:
    """Return whether offsets may expire: never during a rebalance, nor with unknown subscriptions (KIP-211)."""
    if group.protocol_type is None or group.state is GroupState.EMPTY:
        return True
    return group.uses_consumer_protocol and group.topics is not None and group.state is GroupState.STABLE


def _is_expired(committed: CommittedOffset, base_ms: int | None, now_ms: int, retention_ms: int) -> bool:
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - (committed.commit_timestamp_ms if base_ms is None else base_ms) >= retention_ms


def _remove(by_group: ByGroup, group_id: str, topic: str, partition: int) -> bool:
    by_topic = by_group.get(group_id, {})
    partitions = by_topic.get(topic, {})
    if partitions.pop(partition, None) is None:
        return False
    if not partitions:
        del by_topic[topic]
    if not by_topic:
        del by_group[group_id]
    return True
