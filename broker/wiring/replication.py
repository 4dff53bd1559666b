"""Replication: the partitions of a broker, their leaders and followers, and the purgatories for their requests.

Threads: main builds, starts and stops it; each component names its own threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.broker.purgatory import Purgatories, Purgatory
from barnabas.broker.replication.fetching.fetchers import ReplicaFetchers
from barnabas.broker.replication.high_watermarks import HighWatermarks
from barnabas.broker.replication.leadership import Leadership
from barnabas.broker.replication.log_dir_moves import COPY_RATE, LogDirMoves
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.settings.dynamic_config import keep_throttled
from barnabas.metrics.table import catalogue

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import MetadataCache
    from barnabas.broker.settings.dynamic_config import DynamicConfig
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.broker.wiring.context import Context
    from barnabas.broker.wiring.controller_link import ControllerLink

ISR_CHECKS_PER_LAG: Final = 2  # so a lagging follower is noticed at most half of the allowed lag too late


class Replication:
    """See the module."""

    def __init__(
        self,
        context: Context,
        log_manager: LogManager,
        metadata_cache: MetadataCache,
        dynamic_config: DynamicConfig,
        link: ControllerLink,
    ) -> None:
        self._context = context  # fixed before start
        self.purgatories = make_purgatories(context)
        self.manager = ReplicaManager(
            broker_id=context.broker_id,
            config=context.config,
            clock=context.clock,
            log_manager=log_manager,
            metadata_cache=metadata_cache,
            purgatories=self.purgatories,
            registry=context.registry,
        )
        keep_throttled(dynamic_config, self.manager.quotas.leader, self.manager.quotas.follower)
        self.manager.isr_updates.channel = link.isr_changes
        self.fetchers = ReplicaFetchers(self.manager, link.broker_epoch, context.connect)
        self.high_watermarks = HighWatermarks(log_manager, context.fs)
        self.leadership = Leadership(self.manager, self.high_watermarks, dynamic_config.topic_config, self.fetchers)
        count = len(log_manager.directories)
        self.log_dir_moves = LogDirMoves(
            self.manager,
            link.dir_assignments,
            context.clock,
            thread_count=0 if count == 1 else context.config.num_replica_alter_log_dirs_threads or count,
            bytes_per_second=lambda: dynamic_config.broker_value(COPY_RATE),
        )
        self.leadership.log_dirs = self.log_dir_moves
        link.on_registered.append(self.log_dir_moves.on_registered)

    def start(self) -> None:
        """Start the moves between log directories, and the purgatories."""
        self.log_dir_moves.start()
        for purgatory in all_purgatories(self.purgatories):
            purgatory.start()

    def schedule(self) -> None:
        """Schedule the checkpoints of high watermarks and the checks for lagging followers."""
        config, every = self._context.config, self._context.scheduler.schedule
        interval_ms = config.replica_high_watermark_checkpoint_interval_ms
        every("highwatermark-checkpoint", self.write_high_watermarks, interval_ms, interval_ms)
        check_ms = max(1, config.replica_lag_time_max_ms // ISR_CHECKS_PER_LAG)
        every("isr-expiration", self.manager.maybe_shrink_isrs, check_ms, check_ms)

    def write_high_watermarks(self) -> None:
        """Write the checkpoint of the high watermarks."""
        self.high_watermarks.write(self.manager.partitions())

    def stop_copying(self) -> None:
        """Stop the fetchers and the moves between log directories."""
        self.fetchers.shutdown()
        self.log_dir_moves.shutdown()

    def stop(self) -> None:
        """Complete the parked requests and write the high watermarks."""
        for purgatory in all_purgatories(self.purgatories):
            purgatory.shutdown()
        self.write_high_watermarks()


def all_purgatories(purgatories: Purgatories) -> tuple[Purgatory, ...]:
    """Return each of a broker's purgatories."""
    return (
        purgatories.produce,
        purgatories.fetch,
        purgatories.delete_records,
        purgatories.topic,
        purgatories.share_fetch,
    )


def make_purgatories(context: Context) -> Purgatories:
    """Build a broker's purgatories and register their gauges."""
    config, clock, broker_id = context.config, context.clock, context.broker_id
    purgatories = Purgatories(
        produce=Purgatory(
            "Produce", clock, broker_id=broker_id, purge_interval=config.producer_purgatory_purge_interval_requests
        ),
        fetch=Purgatory(
            "Fetch",
            context.moved_clock,
            broker_id=broker_id,
            purge_interval=config.fetch_purgatory_purge_interval_requests,
        ),
        delete_records=Purgatory(
            "DeleteRecords",
            clock,
            broker_id=broker_id,
            purge_interval=config.delete_records_purgatory_purge_interval_requests,
        ),
        topic=Purgatory("topic", clock, broker_id=broker_id),
        share_fetch=Purgatory(
            "ShareFetch",
            context.moved_clock,
            broker_id=broker_id,
            purge_interval=config.share_fetch_purgatory_purge_interval_requests,
        ),
    )
    for purgatory in all_purgatories(purgatories):
        label = purgatory.name
        context.registry.gauge(catalogue.PURGATORY_SIZE, purgatory.watched, delayedOperation=label)
        context.registry.gauge(catalogue.NUM_DELAYED_OPERATIONS, purgatory.delayed, delayedOperation=label)
    return purgatories
