"""The committed offsets of the groups of one shard: kept, looked up, expired. Pure: values in, values out.

Rules
1. An offset is stored once its record is committed (below the high watermark), in log order: what `fetch` tells has
   survived.
2. Offsets of an open transaction are kept apart, by producer id, until its marker comes (KIP-98, KIP-447).
3. Of a transactional and a plain commit the one with the higher record offset wins: compaction may reorder the rest.
4. A position belongs to the topic whose id it carries. A topic that is deleted and made anew has another id: positions
   in the former one are never told for the present one. A position without id (before value version 4) is told by name.

Threads: owner is the group's shard, under its lock.
Source: Kafka's OffsetMetadataManager, OffsetAndMetadata, OffsetExpirationConditionImpl (4.3), KIP-211, KIP-848
(topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from barnabas.broker.coordinators.consumer_group import ConsumerGroup
from barnabas.broker.coordinators.group import Group
from barnabas.broker.coordinators.group_events import GroupState
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

INVALID_OFFSET = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1


class CommittedOffset(NamedTuple):
    """One committed position."""

    offset: int
    leader_epoch: int  # -1: unknown
    metadata: str
    commit_timestamp_ms: int  # wall
    expire_timestamp_ms: int = NO_TIMESTAMP  # given by requests before v5; else the broker's retention rules
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1  # of its record in the log


class TopicWanted(NamedTuple):
    """A topic of an OffsetFetch; the id is ZERO_UUID for requests by name."""

    topic_id: bytes
    name: str
    partitions: Sequence[int]


class FetchedPartition(NamedTuple):
    """What is told of a partition."""

    partition: int
    offset: int = INVALID_OFFSET
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class FetchedTopic(NamedTuple):
    """What is told of a topic."""

    topic_id: bytes
    name: str
    partitions: list[FetchedPartition]


ByPartition = dict[int, CommittedOffset]
ByTopic = dict[str, ByPartition]
ByGroup = dict[str, ByTopic]


class OffsetStore:
    """Offsets by group, topic, partition."""

    __slots__ = ("_groups", "_pending", "count")

    def __init__(self) -> None:
        self._groups: ByGroup = {}
        self._pending: dict[int, ByGroup] = {}  # by producer id: commits of open transactions
        self.count = 0  # how many are stored

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """The position, if one is committed."""
        return self._groups.get(group_id, {}).get(topic, {}).get(partition)

    def of_group(self, group_id: str) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """Everything a group has committed."""
        for topic, partitions in self._groups.get(group_id, {}).items():
            for partition, committed in partitions.items():
                yield TopicPartition(topic, partition), committed

    def put(self, group_id: str, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Store a position."""
        partitions = self._groups.setdefault(group_id, {}).setdefault(topic, {})
        self.count += partition not in partitions
        partitions[partition] = committed

    def put_pending(
        self, producer_id: int, group_id: str, topic: str, partition: int, committed: CommittedOffset
    ) -> None:
        """Keep a position of an open transaction."""
        by_group = self._pending.setdefault(producer_id, {})
        by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        """Forget a position, also one of an open transaction."""
        if _remove(self._groups, group_id, topic, partition):
            self.count -= 1
        for by_group in self._pending.values():
            _remove(by_group, group_id, topic, partition)

    def end_transaction(self, producer_id: int, is_committed: bool) -> None:
        """Take over the positions of a transaction, or drop them."""
        by_group = self._pending.pop(producer_id, {})
        if not is_committed:
            return
        for group_id, topics in by_group.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    current = self.get(group_id, topic, partition)
                    if current is None or committed.record_offset > current.record_offset:
                        self.put(group_id, topic, partition, committed)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction will change the position."""
        return any(partition in by_group.get(group_id, {}).get(topic, {}) for by_group in self._pending.values())

    def has_open_transactions(self, group_id: str) -> bool:
        """Whether a transaction will commit for the group."""
        return any(group_id in by_group for by_group in self._pending.values())

    def all_partitions(self, group_id: str) -> list[TopicPartition]:
        """Every partition that has a position or will have one when a transaction commits."""
        found = {tp: None for tp, _ in self.of_group(group_id)}
        for by_group in self._pending.values():
            for topic, partitions in by_group.get(group_id, {}).items():
                found.update((TopicPartition(topic, partition), None) for partition in partitions)
        return list(found)

    def of_topics(self, topics: Set[str]) -> dict[tuple[str, TopicPartition], set[bytes]]:
        """Every (group, partition) that has positions in these topics, with the ids of the topics they belong to."""
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
        wanted: Iterable[TopicWanted] | None,
        *,
        require_stable: bool,
        present_id: Callable[[str], bytes] = lambda _name: ZERO_UUID,
    ) -> list[FetchedTopic]:
        """Tell the positions of these partitions, or (None) of all; unknown ones are INVALID_OFFSET.

        A position committed for another topic of the same name (by id) is unknown; of who asks by name the topic is
        the present one (`present_id`, ZERO_UUID if there is none). With `require_stable` one that an open transaction
        may change is UNSTABLE_OFFSET_COMMIT.
        """
        topics = self._groups.get(group_id, {})
        if wanted is None:
            wanted = [
                TopicWanted(present_id(name), name, known)
                for name, partitions in topics.items()
                if (known := [p for p, one in partitions.items() if not _is_of_another(one, present_id(name))])
            ]
        else:
            wanted = [w if w.topic_id != ZERO_UUID else w._replace(topic_id=present_id(w.name)) for w in wanted]
        return [
            FetchedTopic(
                topic.topic_id, topic.name,
                [
                    self._fetch_one(group_id, topic, partition, topics.get(topic.name, {}), require_stable)
                    for partition in topic.partitions
                ],
            )
            for topic in wanted
        ]  # fmt: skip

    def _fetch_one(
        self, group_id: str, topic: TopicWanted, partition: int, committed: ByPartition, require_stable: bool
    ) -> FetchedPartition:
        if require_stable and self._pending and self.has_pending(group_id, topic.name, partition):
            return FetchedPartition(partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
        found = committed.get(partition)
        if found is None or _is_of_another(found, topic.topic_id):
            return FetchedPartition(partition)
        return FetchedPartition(partition, found.offset, found.leader_epoch, found.metadata)

    def expired(
        self, group: Group | ConsumerGroup, now_ms: int, retention_ms: int
    ) -> tuple[list[TopicPartition], bool]:
        """Which positions of the group are due to go at `now_ms` (wall), and whether nothing will be left then.

        In a consumer group only subscriptions and the time of the commit count.
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
    """Whether a position belongs to another topic than this one, so far as both are known."""
    return ZERO_UUID != committed.topic_id != topic_id != ZERO_UUID


def _may_expire(group: Group) -> bool:
    """KIP-211: never while members are unsettled, nor while what they read cannot be known."""
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
