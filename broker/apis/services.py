"""Services: the components of one broker that an API may use.

Built once by `broker_server` before any thread starts; never changed afterwards. An API's `handle(services, request)`
reads a component from here and holds no state of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition
    from broker.auto_topic_creation import AutoTopicCreation
    from broker.controller_channel import ControllerChannel
    from broker.coordinators.group_coordinator import GroupCoordinator
    from broker.coordinators.transaction_coordinator import TransactionCoordinator
    from broker.coordinators.transaction_markers import MarkerWriter
    from broker.coordinators.transaction_verification import TransactionVerification
    from broker.dynamic_config import DynamicConfig
    from broker.fetch_sessions import FetchSessions
    from broker.lifecycle import Lifecycle
    from broker.metadata_cache import MetadataCache
    from broker.producer_ids import ProducerIds
    from broker.purgatory import Purgatory
    from broker.replication.leadership import Leadership
    from broker.replication.log_dir_moves import LogDirMoves
    from broker.replication.replica_manager import ReplicaManager
    from broker.storage.log_manager import LogManager
    from metrics.registry import Registry


@dataclass(slots=True)
class Purgatories:
    """The four rooms where a broker's requests wait. Watch keys: TopicPartition; `topic`: the topic's name."""

    produce: Purgatory
    fetch: Purgatory
    delete_records: Purgatory
    topic: Purgatory


@dataclass(slots=True)
class Services:
    """Every field is fixed before start."""

    broker_id: int
    cluster_id: str
    config: Any  # barnabas.config.Config
    clock: Clock
    registry: Registry
    metadata_cache: MetadataCache
    log_manager: LogManager
    replica_manager: ReplicaManager
    purgatories: Purgatories
    fetch_sessions: FetchSessions
    controller_channel: ControllerChannel
    auto_topic_creation: AutoTopicCreation
    producer_ids: ProducerIds
    dynamic_config: DynamicConfig
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    transaction_verification: TransactionVerification
    marker_writer: MarkerWriter
    leadership: Leadership
    lifecycle: Lifecycle
    log_dir_moves: LogDirMoves

    def complete_delayed(self, key: TopicPartition) -> None:
        """Wake every request that waits for `key`; the caller (a handler, between requests) holds no lock."""
        self.replica_manager.complete_delayed(key)
