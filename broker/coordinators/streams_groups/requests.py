"""Requests about streams groups: finds the group's shard, and says whether the protocol is served.

Threads: handlers ask; answers come on any thread.
Source: Kafka's GroupCoordinatorService (4.3): streamsGroupHeartbeat, streamsGroupDescribe; KafkaApis.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.streams_groups.group import StreamsGroup
    from barnabas.broker.coordinators.streams_groups.values import Heartbeat, HeartbeatResult
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.config import Config

T = TypeVar("T")


class StreamsGroupRequests:
    """See the module."""

    def __init__(self, config: Config, coordinator: GroupCoordinator, metadata_cache: MetadataCache) -> None:
        self._is_configured = "streams" in config.group_coordinator_rebalance_protocols  # fixed before start
        self._coordinator = coordinator  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start

    @property
    def is_enabled(self) -> bool:
        """Whether streams groups are served: the configuration and the cluster's features allow it."""
        return self._is_configured and self._metadata_cache.finalized_features.levels.get("streams.version", 0) > 0

    def heartbeat(self, group_id: str, request: Heartbeat, reply: Completion[HeartbeatResult | ApiError]) -> None:
        """Handle a StreamsGroupHeartbeat."""
        self._coordinator.with_shard(group_id, lambda shard: shard.streams_heartbeat(group_id, request, reply), reply)

    def describe(self, group_id: str, read: Callable[[StreamsGroup], T]) -> T:
        """Have `read` read a streams group, quickly, under its shard's lock. Raises ApiError."""
        return self._coordinator.shard_of(group_id).describe_streams_group(group_id, read)
