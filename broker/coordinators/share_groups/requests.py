"""Requests about share groups: finds the group's shard, and reads what only the share coordinators know.

The offsets of named topics are read by any broker, also of a group that does not exist: the share coordinators have
them, and they find them by the group's id.

Threads: handlers ask; answers come on any thread.
Source: Kafka's GroupCoordinatorService (4.3): shareGroupHeartbeat, describeShareGroupOffsets, alterShareGroupOffsets,
deleteShareGroupOffsets.

Different from Apache Kafka: a partition that does not exist has no offset, without asking a share coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from barnabas.broker.coordinators.share_state.values import (
    NO_DELIVERY_COMPLETE_COUNT,
    NO_LEADER_EPOCH,
    NO_START_OFFSET,
    SharePartitionKey,
    StateSummary,
)
from barnabas.broker.requests.gathering import Gathering
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_groups.group import ShareGroup
    from barnabas.broker.coordinators.share_groups.groups import ShareGroups
    from barnabas.broker.coordinators.share_groups.latest_offsets import EndOffset, LatestOffsets
    from barnabas.broker.coordinators.share_groups.state_changes import TopicOutcome
    from barnabas.broker.coordinators.share_groups.values import Heartbeat, HeartbeatResult
    from barnabas.broker.coordinators.share_state.values import Persister
    from barnabas.broker.metadata.metadata_cache import MetadataCache

T = TypeVar("T")

TOO_MANY = "The request asks for too many partitions."
NO_LAG = -1
DEFAULT_LEADER_EPOCH = 0


class PartitionOffsets(NamedTuple):
    """The offset of a share partition; none is absence of data, not an error."""

    start_offset: int = NO_START_OFFSET
    leader_epoch: int = DEFAULT_LEADER_EPOCH
    lag: int = NO_LAG
    error: ErrorCode = ErrorCode.NONE


class TopicOffsets(NamedTuple):
    """The share partitions of a topic, by partition."""

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionOffsets]


class ShareGroupRequests:
    """See the module."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        persister: Persister,
        latest_offsets: LatestOffsets,
        metadata_cache: MetadataCache,
    ) -> None:
        self._coordinator = coordinator  # fixed before start
        self._persister = persister  # fixed before start
        self._latest_offsets = latest_offsets  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start

    @property
    def is_enabled(self) -> bool:
        """Whether share groups are served: the cluster's features allow it."""
        return self._metadata_cache.finalized_features.levels.get("share.version", 0) > 0

    # Members

    def heartbeat(self, group_id: str, request: Heartbeat, reply: Completion[HeartbeatResult | ApiError]) -> None:
        """Handle a ShareGroupHeartbeat."""
        self._coordinator.with_shard(group_id, lambda shard: shard.share_heartbeat(group_id, request, reply), reply)

    def describe(self, group_id: str, read: Callable[[ShareGroup], T]) -> T:
        """Have `read` read a share group, quickly, under its shard's lock. Raises ApiError."""
        return self._coordinator.shard_of(group_id).describe_share_group(group_id, read)

    # Offsets

    def alter_offsets(
        self,
        group_id: str,
        wanted: Mapping[str, Mapping[int, int]],
        reply: Completion[Sequence[TopicOutcome] | ApiError],
    ) -> None:
        """Let a group without members start at these offsets (topic name -> partition -> offset)."""
        self._change(group_id, lambda shares: shares.changes.alter_offsets(group_id, wanted, reply), reply)

    def delete_offsets(
        self, group_id: str, topics: Collection[str], reply: Completion[Sequence[TopicOutcome] | ApiError]
    ) -> None:
        """Delete the state of topics in a group without members."""
        self._change(group_id, lambda shares: shares.changes.delete_offsets(group_id, topics, reply), reply)

    def _change(self, group_id: str, change: Callable[[ShareGroups], object], reply: Completion[T | ApiError]) -> None:
        def refuse(error: ErrorCode) -> None:
            reply(ApiError(error))

        self._coordinator.with_shard(group_id, lambda shard: shard.change_shares(change, refuse), reply)

    def describe_offsets(
        self,
        group_id: str,
        wanted: Mapping[str, Collection[int]] | None,
        reply: Completion[Sequence[TopicOffsets] | ApiError],
        most: int,
    ) -> int:
        """Read the start offsets of these partitions (topic name -> partitions); None: of all that are initialised.

        Returns how many partitions that are. If they are more than `most`, the reply is INVALID_REQUEST.
        """
        snapshot = self._metadata_cache.snapshot
        try:
            asked = self._initialized(group_id) if wanted is None else wanted
        except ApiError as refusal:
            reply(refusal)
            return 0
        count = sum(map(len, asked.values()))
        if count > most:
            reply(ApiError(ErrorCode.INVALID_REQUEST, TOO_MANY))
            return count
        keys: list[tuple[str, SharePartitionKey]] = []
        for name, partitions in asked.items():
            topic = snapshot.topics.get(name)
            if topic is not None:
                end = len(topic.partitions)
                keys += [(name, SharePartitionKey(group_id, topic.id, p)) for p in set(partitions) if 0 <= p < end]
        ids = {name: snapshot.topics[name].id if name in snapshot.topics else ZERO_UUID for name in asked}

        def measured(found: Mapping[TopicPartition, PartitionOffsets]) -> None:
            nothing = PartitionOffsets()
            reply([
                TopicOffsets(name, ids[name], {p: found.get(TopicPartition(name, p), nothing) for p in partitions})
                for name, partitions in asked.items()
            ])  # fmt: skip

        gathering: Gathering[TopicPartition, StateSummary] = Gathering(
            len(keys), lambda summaries: self._measure(summaries, measured)
        )
        for name, key in keys:
            tp = TopicPartition(name, key.partition)
            self._persister.read_summary(key, NO_LEADER_EPOCH, partial(gathering.add, tp))
        return count

    def _initialized(self, group_id: str) -> dict[str, frozenset[int]]:
        """Return the initialised partitions of the group, if it is a share group, by the names of existing topics."""
        names = self._metadata_cache.snapshot.topic_names
        try:
            parts = self.describe(group_id, lambda group: group.partitions.initialized)
        except ApiError as error:
            if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                return {}
            raise
        return {names[topic_id]: part.partitions for topic_id, part in parts.items() if topic_id in names}

    def _measure(
        self,
        summaries: Mapping[TopicPartition, StateSummary],
        measured: Completion[Mapping[TopicPartition, PartitionOffsets]],
    ) -> None:
        """Add the lags, which need the ends of the partitions."""
        has_lag = [
            tp
            for tp, summary in summaries.items()
            if not summary.error
            and summary.start_offset != NO_START_OFFSET
            and summary.delivery_complete_count != NO_DELIVERY_COMPLETE_COUNT
        ]
        self._latest_offsets.ask(
            has_lag, lambda ends: measured({tp: _offsets(summary, ends.get(tp)) for tp, summary in summaries.items()})
        )


def _offsets(summary: StateSummary, end: EndOffset | None) -> PartitionOffsets:
    if summary.error:
        return PartitionOffsets()
    if end is None:
        return PartitionOffsets(summary.start_offset, summary.leader_epoch)
    if end.error:
        return PartitionOffsets(0, error=end.error)
    lag = end.offset - summary.start_offset - summary.delivery_complete_count
    return PartitionOffsets(summary.start_offset, summary.leader_epoch, lag)
