"""Coordinators: of groups, of share state with its persister, of transactions with its marker senders and verification.

Threads: main builds, starts and stops it; each component names its own threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.gauges import register_groups, register_share_state, register_transactions
from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas.broker.coordinators.groups.sensors import GroupSensors
from barnabas.broker.coordinators.persister.persister import SharePersister
from barnabas.broker.coordinators.share_groups.latest_offsets import LatestOffsets
from barnabas.broker.coordinators.share_groups.requests import ShareGroupRequests
from barnabas.broker.coordinators.share_state.coordinator import ShareCoordinator
from barnabas.broker.coordinators.share_state.sensors import ShareStateSensors
from barnabas.broker.coordinators.streams_groups.requests import StreamsGroupRequests
from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas.broker.coordinators.transactions.markers import MarkerSender, MarkerWriter
from barnabas.broker.coordinators.transactions.verification import TransactionVerification
from barnabas.broker.metadata.metadata_cache import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from barnabas.broker.channels.producer_ids import ProducerIds
    from barnabas.broker.metadata.auto_topic_creation import AutoTopicCreation
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.settings.dynamic_config import DynamicConfig
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.broker.wiring.context import Context
    from barnabas.broker.wiring.replication import Replication


class Coordinators:
    """See the module."""

    def __init__(
        self,
        context: Context,
        metadata_cache: MetadataCache,
        dynamic_config: DynamicConfig,
        replication: Replication,
        producer_ids: ProducerIds,
        auto_topic_creation: AutoTopicCreation,
    ) -> None:
        self._context = context  # fixed before start
        config, clock, manager = context.config, context.moved_clock, replication.manager
        self.share_state = ShareCoordinator(
            config=config,
            clock=clock,
            scheduler=context.scheduler,
            sensors=ShareStateSensors(context.registry),
            replica_manager=manager,
            metadata_cache=metadata_cache,
        )
        self.persister = SharePersister(
            broker_id=context.broker_id,
            clock=context.clock,  # of the connections
            coordinator=self.share_state,
            metadata_cache=metadata_cache,
            call_later=lambda wait_ms, job: context.scheduler.schedule_once("share-persister", job, wait_ms),
            create_topic=auto_topic_creation.create_internal,
            listener_name=config.inter_broker_listener_name,
            # Why less: a coordinator answers in time, or it is gone and another one may have taken over.
            request_timeout_ms=min(config.request_timeout_ms, 2 * config.share_coordinator_write_timeout_ms),
            connect=context.connect,
        )
        self.groups = GroupCoordinator(
            config=config,
            group_config=dynamic_config.effective_group_config,
            clock=clock,
            sensors=GroupSensors(context.registry),
            replica_manager=manager,
            metadata_cache=metadata_cache,
            persister=self.persister,
        )
        self.latest_offsets = LatestOffsets(
            broker_id=context.broker_id,
            clock=context.clock,  # of the connections
            metadata_cache=metadata_cache,
            replica_manager=manager,
            listener_name=config.inter_broker_listener_name,
            request_timeout_ms=config.request_timeout_ms,
            connect=context.connect,
        )
        self.share_groups = ShareGroupRequests(self.groups, self.persister, self.latest_offsets, metadata_cache)
        self.streams_groups = StreamsGroupRequests(config, self.groups, metadata_cache)
        self.marker_writer = MarkerWriter(manager, self.groups, clock, config.request_timeout_ms)
        self.marker_sender = MarkerSender(
            writer=self.marker_writer,
            broker_id=context.broker_id,
            clock=context.clock,  # of the connections
            metadata_cache=metadata_cache,
            listener_name=config.inter_broker_listener_name,
            request_timeout_ms=config.request_timeout_ms,
            connect=context.connect,
        )
        self.transactions = TransactionCoordinator(
            config=config,
            clock=clock,
            scheduler=context.scheduler,
            replica_manager=manager,
            metadata_cache=metadata_cache,
            new_producer_id=producer_ids.take,
            markers=self.marker_sender,
        )
        self.verification = TransactionVerification(
            coordinator=self.transactions,
            scheduler=context.scheduler,
            config=config,
            broker_id=context.broker_id,
            clock=clock,
            metadata_cache=metadata_cache,
            listener_name=config.inter_broker_listener_name,
            request_timeout_ms=config.request_timeout_ms,
            connect=context.connect,
        )
        replication.leadership.listeners += [self.groups, self.transactions, self.share_state]

    def register_metrics(self, log_manager: LogManager) -> None:
        """Register the gauges of the coordinators."""

        def log_bytes() -> int:
            logs = log_manager.all_logs()
            return sum(log.size_in_bytes for log in logs if log.topic_partition.topic == TRANSACTION_STATE_TOPIC)

        register_groups(self._context.registry, self.groups)
        register_share_state(self._context.registry, self.share_state, self.persister)
        register_transactions(
            self._context.registry, self.transactions, self.marker_sender, self.verification, log_bytes
        )

    def start(self) -> None:
        """Start the coordinators."""
        self.groups.start()
        self.transactions.start()
        self.share_state.start()

    def stop(self) -> None:
        """Stop the coordinators and the senders of markers."""
        self.verification.shutdown()
        self.transactions.shutdown()
        self.marker_sender.shutdown()
        self.groups.shutdown()
        self.latest_offsets.shutdown()
        self.persister.shutdown()
        self.share_state.shutdown()
