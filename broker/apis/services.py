"""Services: the components of one broker that an API may use.

Built once by `broker_server` before any thread starts; never changed afterwards. An API's `handle(services, request)`
reads a component from here and holds no state of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.broker.auto_topic_creation import AutoTopicCreation
    from barnabas.broker.controller_channel import ControllerChannel
    from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
    from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
    from barnabas.broker.coordinators.transaction_markers import MarkerWriter
    from barnabas.broker.coordinators.transaction_verification import TransactionVerification
    from barnabas.broker.dynamic_config import DynamicConfig
    from barnabas.broker.fetch_sessions import FetchSessions
    from barnabas.broker.lifecycle import Lifecycle
    from barnabas.broker.metadata_cache import MetadataCache
    from barnabas.broker.producer_ids import ProducerIds
    from barnabas.broker.purgatory import Purgatory
    from barnabas.broker.push_gate import PushGate
    from barnabas.broker.recovery_report import RecoveryReporter
    from barnabas.broker.replication.leadership import Leadership
    from barnabas.broker.replication.log_dir_moves import LogDirMoves
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.metrics.registry import Registry


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
    push_gate: PushGate
    lifecycle: Lifecycle
    log_dir_moves: LogDirMoves
    recovery: RecoveryReporter

    def complete_delayed(self, key: TopicPartition) -> None:
        """Wake every request that waits for `key`; the caller (a handler, between requests) holds no lock."""
        self.replica_manager.complete_delayed(key)
