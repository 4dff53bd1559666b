"""Services: the components of one broker that an API may use.

`broker_server` builds them once, before any thread starts. They never change afterwards. An API's
`handle(services, request)` takes its components from here and holds no state of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.broker.channels.controller_nodes import ControllerNodes
    from barnabas.broker.channels.forwarding import ForwardingManager
    from barnabas.broker.channels.lifecycle import Lifecycle
    from barnabas.broker.channels.producer_ids import ProducerIds
    from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.broker.coordinators.share_groups.requests import ShareGroupRequests
    from barnabas.broker.coordinators.share_state.coordinator import ShareCoordinator
    from barnabas.broker.coordinators.share_state.values import Persister
    from barnabas.broker.coordinators.streams_groups.requests import StreamsGroupRequests
    from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.broker.coordinators.transactions.markers import MarkerWriter
    from barnabas.broker.coordinators.transactions.verification import TransactionVerification
    from barnabas.broker.fetch_sessions.sessions import FetchSessions
    from barnabas.broker.metadata.auto_topic_creation import AutoTopicCreation
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.metadata.push_gate import PushGate
    from barnabas.broker.metadata.recovery_reporter import RecoveryReporter
    from barnabas.broker.metadata.security_cache import SecurityCache
    from barnabas.broker.purgatory import Purgatories
    from barnabas.broker.quotas.client_quotas import ClientQuotas
    from barnabas.broker.replication.leadership import Leadership
    from barnabas.broker.replication.log_dir_moves import LogDirMoves
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.requests.api import Table
    from barnabas.broker.settings.dynamic_config import DynamicConfig
    from barnabas.broker.share.manager import SharePartitionManager
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.broker.telemetry.manager import ClientMetricsManager
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition
    from barnabas.config import Config
    from barnabas.metrics.registry import Registry


@dataclass(slots=True)
class Services:
    """What an API may use. Every field is fixed before start."""

    broker_id: int
    cluster_id: str
    config: Config
    table: Table  # the APIs that this broker serves, for ApiVersions
    clock: Clock
    registry: Registry
    metadata_cache: MetadataCache
    security: SecurityCache
    log_manager: LogManager
    replica_manager: ReplicaManager
    purgatories: Purgatories
    fetch_sessions: FetchSessions
    quotas: ClientQuotas
    forwarding: ForwardingManager
    auto_topic_creation: AutoTopicCreation
    producer_ids: ProducerIds
    dynamic_config: DynamicConfig
    group_coordinator: GroupCoordinator
    share_groups: ShareGroupRequests
    streams_groups: StreamsGroupRequests
    transaction_coordinator: TransactionCoordinator
    share_coordinator: ShareCoordinator
    persister: Persister
    share_partitions: SharePartitionManager
    transaction_verification: TransactionVerification
    marker_writer: MarkerWriter
    leadership: Leadership
    push_gate: PushGate
    lifecycle: Lifecycle
    controllers: ControllerNodes
    log_dir_moves: LogDirMoves
    recovery: RecoveryReporter
    client_metrics: ClientMetricsManager

    @property
    def complete_all_delayed(self) -> Callable[[Collection[TopicPartition]], None]:
        """Tries every request that waits for one of the keys. Its caller, a handler between requests, holds no lock."""
        return self.replica_manager.complete_all_delayed
