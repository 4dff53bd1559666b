"""ControllerLink: everything between a broker and its controller.

That is the lifecycle (registration and heartbeats), the channels for requests, and the gate for the pushes.

Threads: main builds, starts and stops it; each component names its own threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.channels.controller_channel import ControllerChannel
from barnabas.broker.channels.controller_nodes import ControllerNodes
from barnabas.broker.channels.dir_assignments import DirAssignments
from barnabas.broker.channels.lifecycle import Advertised, Lifecycle
from barnabas.broker.channels.producer_ids import ProducerIds
from barnabas.broker.metadata.push_gate import PushGate
from barnabas.broker.metadata.push_state import CHECKPOINT_MS, PushState
from barnabas.broker.replication.in_sync.alter_partition import AlterPartitions
from barnabas.metrics.channel_metrics import ChannelMetrics
from barnabas.protocol.push_tags import Receiver

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.metadata.security_cache import SecurityCache
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.broker.wiring.context import Context
    from barnabas.protocol.metadata_records import ConfigRecord


class ControllerLink:
    """See the module."""

    def __init__(
        self,
        context: Context,
        log_manager: LogManager,
        metadata_cache: MetadataCache,
        security: SecurityCache,
        on_configs: Callable[[list[ConfigRecord]], None],
        listeners: list[tuple[str, str, int, str]],
    ) -> None:
        self._context = context  # fixed before start
        self._log_manager = log_manager  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start
        self._security = security  # fixed before start
        self._on_configs = on_configs  # fixed before start; called with the configs that a registration brings
        self.on_registered: list[Callable[[], None]] = []  # fixed before start; called after each registration
        self.forwarding = self._channel("forwarding")
        self._alter_partition = self._channel("alter-partition")
        self._directory_assignments = self._channel("directory-assignments")
        self._channels = (self.forwarding, self._alter_partition, self._directory_assignments)
        self.push_state = PushState(context.fs, log_manager.directories, context.cluster_id)
        self.lifecycle = self._lifecycle(listeners)
        config = context.config
        self.controllers = ControllerNodes(config.controller_voters(), config.controller_listener_names)
        self.controllers.followers += [self.lifecycle.follow, *(channel.follow for channel in self._channels)]
        receiver = Receiver(context.cluster_id, context.broker_id, self.lifecycle.incarnation_id)
        self.push_gate = PushGate(receiver, self.push_state, context.clock)
        self.producer_ids = ProducerIds(context.broker_id, self.broker_epoch, self.forwarding)
        self.isr_changes = AlterPartitions(
            context.broker_id, self.broker_epoch, self._alter_partition, context.scheduler
        )
        self.dir_assignments = DirAssignments(
            context.broker_id, self.broker_epoch, self._directory_assignments, context.scheduler
        )

    def broker_epoch(self) -> int:
        """Return the epoch of the present registration; -1 before the first."""
        return self.lifecycle.epoch

    def start_channels(self) -> None:
        """Start the channels for requests to the controller."""
        for channel in self._channels:
            channel.start()

    def stop_channels(self) -> None:
        """Stop the channels; queued requests are completed without a response."""
        for channel in reversed(self._channels):
            channel.shutdown()

    def schedule(self) -> None:
        """Schedule the checkpoints of the push state."""
        self._context.scheduler.schedule(
            "push-state-checkpoint", self.push_state.checkpoint, CHECKPOINT_MS, CHECKPOINT_MS
        )

    def _channel(self, name: str) -> ControllerChannel:
        context = self._context
        return ControllerChannel(
            name,
            context.broker_id,
            context.controllers,
            context.clock,
            request_timeout_ms=context.config.request_timeout_ms,
            cluster_id=context.cluster_id,
            traffic=ChannelMetrics(context.registry, name, BrokerId=context.broker_id),
            connect=context.connect_to_controller,
        )

    def _lifecycle(self, listeners: list[tuple[str, str, int, str]]) -> Lifecycle:
        context, log_manager, push_state = self._context, self._log_manager, self.push_state
        directories = log_manager.directories
        log_dirs = [directory.directory_id for directory in directories if directory.directory_id]
        return Lifecycle(
            broker_id=context.broker_id,
            cluster_id=context.cluster_id,
            addresses=context.controllers,
            advertised=Advertised(listeners, log_dirs, context.config.broker_rack),
            config=context.config,
            clock=context.clock,
            metadata_cache=self._metadata_cache,
            applied=lambda: push_state.highest,
            on_registered=self._registered,
            on_refused=context.on_fatal,
            offline_log_dirs=lambda: [d.directory_id for d in directories if d.is_offline and d.directory_id],
            cordoned_log_dirs=lambda: [d.directory_id for d in directories if log_manager.is_cordoned(d)],
            previous_epoch=log_manager.previous_broker_epoch,
            traffic=ChannelMetrics(context.registry, "heartbeat", BrokerId=context.broker_id),
            connect=context.connect_to_controller,
            security=self._security,
            on_security=push_state.note_registration,
            on_configs=self._on_configs,
        )

    def _registered(self, epoch: int) -> None:
        self.push_gate.registered(epoch)
        for callback in self.on_registered:
            callback()
        self.producer_ids.prefetch()
