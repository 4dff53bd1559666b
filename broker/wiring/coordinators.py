"""Coordinators: the group coordinator, and the transaction coordinator with its marker senders and verification.

Threads: main builds, starts and stops it; each component names its own threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.gauges import register_groups, register_transactions
from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
from barnabas.broker.coordinators.groups.sensors import GroupSensors
from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
from barnabas.broker.coordinators.transactions.markers import MarkerSender, MarkerWriter
from barnabas.broker.coordinators.transactions.verification import TransactionVerification
from barnabas.broker.metadata.metadata_cache import TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from barnabas.broker.channels.producer_ids import ProducerIds
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
    ) -> None:
        self._context = context  # fixed before start
        config, clock, manager = context.config, context.clock, replication.manager
        self.groups = GroupCoordinator(
            config=config,
            group_config=dynamic_config.group_config,
            clock=clock,
            sensors=GroupSensors(context.registry),
            replica_manager=manager,
            metadata_cache=metadata_cache,
        )
        self.marker_writer = MarkerWriter(manager, self.groups, clock, config.request_timeout_ms)
        self.marker_sender = MarkerSender(
            writer=self.marker_writer,
            broker_id=context.broker_id,
            clock=clock,
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
        replication.leadership.listeners += [self.groups, self.transactions]

    def register_metrics(self, log_manager: LogManager) -> None:
        """Register the gauges of both coordinators."""

        def log_bytes() -> int:
            logs = log_manager.all_logs()
            return sum(log.size_in_bytes for log in logs if log.topic_partition.topic == TRANSACTION_STATE_TOPIC)

        register_groups(self._context.registry, self.groups)
        register_transactions(
            self._context.registry, self.transactions, self.marker_sender, self.verification, log_bytes
        )

    def start(self) -> None:
        """Start the coordinators."""
        self.groups.start()
        self.transactions.start()

    def stop(self) -> None:
        """Stop the coordinators and the senders of markers."""
        self.verification.shutdown()
        self.transactions.shutdown()
        self.marker_sender.shutdown()
        self.groups.shutdown()
