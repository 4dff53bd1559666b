"""BrokerServer: one broker put together. Wiring only: build, start threads in order, stop in reverse.

Start: log directories (locked, recovered) -> purgatories, scheduler, coordinators -> channels to the controller ->
handlers -> listeners -> registration; ready when the controller has unfenced the broker.
Stop (SIGTERM): leaders move away (controlled shutdown) -> no new requests -> handlers -> connections closed ->
coordinators -> fetchers -> watermarks checkpointed -> logs flushed, marked clean.

Source: Kafka's BrokerServer (4.3).
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from barnabas.broker import broker_metrics
from barnabas.broker.affinity import REVIEW_INTERVAL_MS, RequestAffinity
from barnabas.broker.apis.at_start import served_at_start
from barnabas.broker.apis.services import Purgatories, Services
from barnabas.broker.apis.table import TABLE
from barnabas.broker.auto_topic_creation import AutoTopicCreation
from barnabas.broker.controller_channel import ControllerChannel
from barnabas.broker.coordinators import coordinator_metrics
from barnabas.broker.coordinators.group_coordinator import GroupCoordinator
from barnabas.broker.coordinators.transaction_coordinator import TransactionCoordinator
from barnabas.broker.coordinators.transaction_markers import MarkerSender, MarkerWriter
from barnabas.broker.coordinators.transaction_verification import TransactionVerification
from barnabas.broker.dir_assignments import DirAssignments
from barnabas.broker.dynamic_config import DynamicConfig, ResourceType, keep_logs_configured, keep_throttled
from barnabas.broker.dynamic_resources import DynamicResources
from barnabas.broker.fetch_sessions import FetchSessions
from barnabas.broker.handlers import CONTROL_PLANE, HandlerPool
from barnabas.broker.lag_exporter import LagExporter
from barnabas.broker.lifecycle import Advertised, BrokerState, Lifecycle
from barnabas.broker.live.view import BrokerView
from barnabas.broker.log_dir_failures import LogDirFailures
from barnabas.broker.metadata_cache import TRANSACTION_STATE_TOPIC, MetadataCache
from barnabas.broker.producer_ids import ProducerIds
from barnabas.broker.purgatory import Purgatory
from barnabas.broker.push_gate import PushGate
from barnabas.broker.push_state import CHECKPOINT_MS, PushState
from barnabas.broker.recovery_report import COPY_MS, RecoveryReporter
from barnabas.broker.replication.alter_partition import AlterPartitions
from barnabas.broker.replication.fetchers import ReplicaFetchers
from barnabas.broker.replication.high_watermarks import HighWatermarks
from barnabas.broker.replication.leadership import Leadership
from barnabas.broker.replication.log_dir_moves import COPY_RATE, LogDirMoves
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.request_channel import RequestChannel
from barnabas.broker.request_log import RequestLog
from barnabas.broker.slow_motion import SlowMotion
from barnabas.broker.socket_server import SocketServer
from barnabas.broker.storage.log_cleaner import LogCleaner
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.scheduler import Scheduler
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.metrics import catalogue, process
from barnabas.metrics.channel_metrics import ChannelMetrics
from barnabas.metrics.http import MetricsServer, Page, own_names, readiness
from barnabas.metrics.live import add_live_page
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.protocol.messages.k60_describe_cluster import DescribeClusterRequest
from barnabas.protocol.push_tags import Receiver
from barnabas.protocol.registration_tags import Applied

if TYPE_CHECKING:
    from barnabas.broker.faults.kit import FaultKit
    from barnabas.common.clock import Clock
    from barnabas.common.files import FileSystem
    from barnabas.config.config import Config

log = logging.getLogger("barnabas.broker")

CLUSTER_ID_RETRY_MS = 100
CONTROL_PLANE_REQUESTS_MAX = 20  # as Kafka's
CONTROLLERS = 2  # DescribeCluster's endpoint type
PENDING_SHUTDOWN_MS = 30_000
ISR_CHECKS_PER_LAG = 2  # a follower is noticed at most half the lag allowed too late


class StartError(Exception):
    """Why the broker cannot start, in one line for a person."""


class BrokerServer:
    """All of a broker, built but not started."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        fs: FileSystem,
        on_fatal: Callable[[str], None],
        faults: FaultKit | None = None,
    ) -> None:
        self.config = config
        self.faults = faults  # fixed before start; the clock and the files are its own, then
        self._connect: Connect = NodeConnection if faults is None else faults.connect  # fixed before start
        self.broker_id = int(config.node_id)
        self.registry = Registry(clock)
        self._clock = clock
        self._on_fatal = on_fatal  # a reason to end the process, told from any thread
        self._scheduler = Scheduler(config.background_threads, clock)
        self.log_manager = LogManager(config, config.log_dirs, clock, self._scheduler, fs)
        known_cluster_id = self.log_manager.open_directories(self.broker_id)
        try:
            self._build(fs, known_cluster_id)
        except BaseException:
            self._scheduler.shutdown()
            for directory in self.log_manager.directories:
                directory.close()
            raise

    def _build(self, fs: FileSystem, known_cluster_id: str | None) -> None:
        config, clock, registry = self.config, self._clock, self.registry
        self.channel = RequestChannel(config.queued_max_requests, CONTROL_PLANE_REQUESTS_MAX)
        request_log = self.request_log = RequestLog(
            RequestMetrics(registry), registry, config.barnabas_slow_request_ms, table=TABLE
        )
        self.sockets = SocketServer(
            config.listeners_parsed,
            config,
            self.channel,
            request_log,
            registry,
            clock,
            inter_broker_listener=config.inter_broker_listener_name,
        )
        try:
            self._addresses = config.controller_bootstrap()
            if not self._addresses:
                raise StartError(
                    "controller.quorum.bootstrap.servers (or controller.quorum.voters) must name a controller"
                )
            self.cluster_id = known_cluster_id or self._ask_cluster_id()
            self.log_manager.identify(self.cluster_id)
            self._build_services(fs)
        except BaseException:
            self.sockets.shutdown()
            raise
        # Why not the whole TABLE at once: until the controller has told this broker what there is, it would tell
        # clients that there is nothing. Their connections are closed instead, as if the broker were not up yet.
        table = TABLE if self.faults is None else self.faults.wrap(TABLE)
        self._served = served_at_start(table)  # replaced row by row once, by the whole table
        self.slow_motion = SlowMotion(config, self.channel.requests, self._served, clock)
        self.metadata_cache.on_caught_up = lambda: self.slow_motion.serve(table)
        self.handlers: HandlerPool = HandlerPool(
            config.num_io_threads,
            self.channel,
            self._served,
            self.services,
            request_log,
            registry,
            clock,
            request_bytes_max=config.barnabas_request_max_bytes,
        )
        self.control_handlers: HandlerPool = HandlerPool(
            1,
            self.channel,
            self._served,
            self.services,
            request_log,
            registry,
            clock,
            thread_prefix=CONTROL_PLANE,
            request_bytes_max=config.barnabas_request_max_bytes,
        )
        self.page: MetricsServer = MetricsServer(
            registry,
            config.barnabas_metrics_host,
            config.barnabas_metrics_port,
            clock,
            own_names(config),
            config.barnabas_metrics_dialect,
        )
        self.page.add_page("/readyz", self._readiness)
        if self.faults is not None:
            self.faults.serve_broker(self.page, self.metadata_cache, self._addresses)
        self.page.add_view("/live.json", BrokerView(self, clock).page)
        add_live_page(self.page)
        registry.gauge(catalogue.BROKER_STATE, lambda: self.lifecycle.state)
        DynamicResources(
            self.services.dynamic_config,
            self._scheduler,
            {
                "background.threads": self._scheduler.resize,
                "num.io.threads": self.handlers.resize,
                "num.replica.fetchers": self.fetchers.resize,
            },
            self.sockets,
        )
        process.register(registry)
        broker_metrics.register(self, request_log.metrics)
        coordinator_metrics.register_transactions(
            registry,
            self.transaction_coordinator,
            self.marker_sender,
            self.transaction_verification,
            self._transaction_log_bytes,
        )
        self.lag_exporter = LagExporter(
            registry, self.metadata_cache, clock, self.broker_id, config.inter_broker_listener_name, self._connect
        )

    def _build_log_dirs(self, dynamic_config: DynamicConfig) -> None:
        config, count = self.config, len(self.log_manager.directories)
        self.dir_assignments = self._make_channel("directory-assignments")
        self.log_dir_moves = LogDirMoves(
            self.replica_manager,
            DirAssignments(self.broker_id, self._broker_epoch, self.dir_assignments, self._scheduler),
            self._clock,
            thread_count=0 if count == 1 else config.num_replica_alter_log_dirs_threads or count,
            bytes_per_second=lambda: dynamic_config.broker_value(COPY_RATE),
        )
        self.leadership.log_dirs = self.log_dir_moves

    def _build_services(self, fs: FileSystem) -> None:
        config, clock, registry = self.config, self._clock, self.registry
        self.metadata_cache = MetadataCache()
        self.purgatories = self._make_purgatories()
        dynamic_config = DynamicConfig(config)
        keep_logs_configured(dynamic_config, self.log_manager)
        traffic = self.channel.requests.last_take_ns
        self.log_cleaner = LogCleaner(config, self.log_manager, clock, fs, registry, traffic)
        dynamic_config.before_change(self.log_cleaner.check_change)
        dynamic_config.on_change(lambda resource: self._reconfigure(resource.type))
        self.replica_manager = ReplicaManager(
            broker_id=self.broker_id,
            config=config,
            clock=clock,
            log_manager=self.log_manager,
            metadata_cache=self.metadata_cache,
            purgatories=self.purgatories,
            registry=registry,
        )
        keep_throttled(dynamic_config, self.replica_manager.quotas.leader, self.replica_manager.quotas.follower)
        self.forwarding = self._make_channel("forwarding")
        self.alter_partition = self._make_channel("alter-partition")
        self.replica_manager.isr_changes = AlterPartitions(
            self.broker_id, self._broker_epoch, self.alter_partition, self._scheduler
        )
        self.fetchers = ReplicaFetchers(self.replica_manager, self._broker_epoch, self._connect)
        self.high_watermarks = HighWatermarks(self.log_manager, fs)
        self.leadership = Leadership(
            self.replica_manager, self.high_watermarks, dynamic_config.topic_config, self.fetchers
        )
        self.push_state = PushState(fs, self.log_manager.directories, self.cluster_id)
        self._build_log_dirs(dynamic_config)
        self.producer_ids = ProducerIds(self.broker_id, self._broker_epoch, self.forwarding)
        self.group_coordinator = GroupCoordinator(
            config=config,
            group_config=dynamic_config.group_config,
            clock=clock,
            registry=registry,
            replica_manager=self.replica_manager,
            metadata_cache=self.metadata_cache,
        )
        self.recovery = RecoveryReporter(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            broker_epoch=self._broker_epoch,
            fs=fs,
            log_manager=self.log_manager,
            replica_manager=self.replica_manager,
            metadata_cache=self.metadata_cache,
            dynamic_config=dynamic_config,
            producer_ids=self.producer_ids,
            push_state=self.push_state,
        )
        self._build_transactions()
        self.replica_manager.listeners += [self.group_coordinator, self.transaction_coordinator]
        self.lifecycle = self._make_lifecycle()
        self.push_gate = PushGate(
            Receiver(self.cluster_id, self.broker_id, self.lifecycle.incarnation_id), self.push_state
        )
        self.log_dir_failures = LogDirFailures(
            self.log_manager, self.leadership, self.lifecycle.tell_of_failed_directory, self._on_fatal
        )
        self.services = Services(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            config=config,
            clock=clock,
            registry=registry,
            metadata_cache=self.metadata_cache,
            log_manager=self.log_manager,
            replica_manager=self.replica_manager,
            purgatories=self.purgatories,
            fetch_sessions=FetchSessions(clock, registry, slots=config.max_incremental_fetch_session_cache_slots),
            controller_channel=self.forwarding,
            log_dir_moves=self.log_dir_moves,
            auto_topic_creation=AutoTopicCreation(config, self.forwarding),
            producer_ids=self.producer_ids,
            dynamic_config=dynamic_config,
            group_coordinator=self.group_coordinator,
            transaction_coordinator=self.transaction_coordinator,
            transaction_verification=self.transaction_verification,
            marker_writer=self.marker_writer,
            leadership=self.leadership,
            push_gate=self.push_gate,
            lifecycle=self.lifecycle,
            recovery=self.recovery,
        )

    def _build_transactions(self) -> None:
        config, clock = self.config, self._clock
        to_brokers: Any = {
            "broker_id": self.broker_id,
            "clock": clock,
            "metadata_cache": self.metadata_cache,
            "listener_name": config.inter_broker_listener_name,
            "request_timeout_ms": config.request_timeout_ms,
            "connect": self._connect,
        }
        self.marker_writer = MarkerWriter(
            self.replica_manager, self.group_coordinator, clock, config.request_timeout_ms
        )
        self.marker_sender = MarkerSender(writer=self.marker_writer, **to_brokers)
        self.transaction_coordinator = TransactionCoordinator(
            config=config,
            clock=clock,
            scheduler=self._scheduler,
            replica_manager=self.replica_manager,
            metadata_cache=self.metadata_cache,
            new_producer_id=self.producer_ids.take,
            markers=self.marker_sender,
        )
        self.transaction_verification = TransactionVerification(
            coordinator=self.transaction_coordinator, scheduler=self._scheduler, config=config, **to_brokers
        )

    def _reconfigure(self, changed: int) -> None:
        if changed == ResourceType.BROKER:
            self.log_cleaner.reconfigure()
            self.lifecycle.tell_of_cordoned_directories()
            self.slow_motion.update()

    # Life

    def start(self) -> None:
        """Recover the logs, start every thread, and join the cluster; returns when the broker is unfenced."""
        self.page.start()
        self.log_manager.load_logs()
        self.log_manager.start()
        self.log_cleaner.start()
        self.log_dir_failures.start()
        self.log_dir_moves.start()
        for purgatory in self.all_purgatories():
            purgatory.start()
        self._schedule_tasks()
        self.group_coordinator.start()
        self.transaction_coordinator.start()
        self.forwarding.start()
        self.alter_partition.start()
        self.dir_assignments.start()
        self.handlers.start()
        self.control_handlers.start()
        self.sockets.start()
        self.lifecycle.start()
        self.lag_exporter.start()

    def wait_until_ready(self, timeout_ms: int) -> bool:
        """Wait until the controller has unfenced the broker; False when it stops before, or the time is up."""
        return self.lifecycle.wait_for(BrokerState.RUNNING, timeout_ms)

    def stop(self, *, controlled: bool = True) -> None:
        """Stop in reverse; `controlled`: let the controller move our leaders away first."""
        self.slow_motion.end()
        if controlled:
            self.leadership.is_leaving = True
            self.lifecycle.begin_controlled_shutdown()
            if not self.lifecycle.wait_for(BrokerState.SHUTTING_DOWN, PENDING_SHUTDOWN_MS):
                log.warning("the controller did not agree to the shutdown in time")
        self.lag_exporter.shutdown()
        self.lifecycle.shutdown()
        self.sockets.begin_shutdown()
        self.handlers.shutdown()
        self.control_handlers.shutdown()
        # Why not last: a client whose request was not read any more waits for it until its connection is closed.
        self.sockets.shutdown()
        self.transaction_verification.shutdown()
        self.transaction_coordinator.shutdown()
        self.marker_sender.shutdown()
        self.group_coordinator.shutdown()
        self.fetchers.shutdown()
        self.log_dir_moves.shutdown()
        self.alter_partition.shutdown()
        self.dir_assignments.shutdown()
        self.forwarding.shutdown()
        for purgatory in self.all_purgatories():
            purgatory.shutdown()
        self.high_watermarks.write(self.replica_manager)
        self.push_state.checkpoint()
        self.recovery.write_copy()
        self.log_cleaner.shutdown()
        self._scheduler.shutdown()
        self.log_manager.shutdown(self.lifecycle.epoch)
        self.log_dir_failures.shutdown()
        self.page.stop()
        if self.faults is not None:
            self.faults.close()

    def close(self) -> None:
        """Give up a broker that was built but could not be started."""
        self.stop(controlled=False)

    # Parts

    def _readiness(self) -> Page:
        """What an orchestrator asks: whether clients can use this broker now. For /healthz it is enough to be alive."""
        return readiness(self.lifecycle.state.name, is_ready=self.lifecycle.state == BrokerState.RUNNING)

    def _transaction_log_bytes(self) -> int:
        logs = self.log_manager.all_logs()
        return sum(log.size_in_bytes for log in logs if log.topic_partition.topic == TRANSACTION_STATE_TOPIC)

    def _broker_epoch(self) -> int:
        return self.lifecycle.epoch

    def all_purgatories(self) -> tuple[Purgatory, ...]:
        """Where requests wait."""
        p = self.purgatories
        return p.produce, p.fetch, p.delete_records, p.topic

    def _make_purgatories(self) -> Purgatories:
        config, broker_id = self.config, self.broker_id
        made = Purgatories(
            produce=Purgatory(
                "Produce",
                self._clock,
                broker_id=broker_id,
                purge_interval=config.producer_purgatory_purge_interval_requests,
            ),
            fetch=Purgatory(
                "Fetch", self._clock, broker_id=broker_id, purge_interval=config.fetch_purgatory_purge_interval_requests
            ),
            delete_records=Purgatory(
                "DeleteRecords",
                self._clock,
                broker_id=broker_id,
                purge_interval=config.delete_records_purgatory_purge_interval_requests,
            ),
            topic=Purgatory("topic", self._clock, broker_id=broker_id),
        )
        for purgatory in (made.produce, made.fetch, made.delete_records, made.topic):
            label = purgatory.name
            self.registry.gauge(catalogue.PURGATORY_SIZE, purgatory.watched, delayedOperation=label)
            self.registry.gauge(catalogue.NUM_DELAYED_OPERATIONS, purgatory.delayed, delayedOperation=label)
        return made

    def _make_channel(self, name: str) -> ControllerChannel:
        return ControllerChannel(
            name,
            self.broker_id,
            self._addresses,
            self._clock,
            request_timeout_ms=self.config.request_timeout_ms,
            traffic=ChannelMetrics(self.registry, name, BrokerId=self.broker_id),
            connect=self._connect,
        )

    def _make_lifecycle(self) -> Lifecycle:
        directories = self.log_manager.directories
        return Lifecycle(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            addresses=self._addresses,
            advertised=Advertised(
                self._advertised_listeners(),
                [directory.directory_id for directory in directories if directory.directory_id],
                self.config.broker_rack,
            ),
            config=self.config,
            clock=self._clock,
            metadata_cache=self.metadata_cache,
            applied=lambda: Applied(self.push_state.metadata_offset, self.push_state.controller_epoch),
            on_registered=self._registered,
            on_refused=self._on_fatal,
            offline_log_dirs=lambda: [d.directory_id for d in directories if d.is_offline and d.directory_id],
            cordoned_log_dirs=lambda: [d.directory_id for d in directories if self.log_manager.is_cordoned(d)],
            traffic=ChannelMetrics(self.registry, "heartbeat", BrokerId=self.broker_id),
            connect=self._connect,
        )

    def _registered(self, epoch: int) -> None:
        self.push_gate.broker_epoch = epoch
        self.log_dir_moves.on_registered()
        self.producer_ids.prefetch()

    def _advertised_listeners(self) -> list[tuple[str, str, int, str]]:
        """What clients and brokers are told to connect to: names and ports that are filled in where left open.

        The listener between brokers is the first: there the controller reaches this one, whatever it is called.
        """
        told = []
        for listener in self.config.advertised_listeners_parsed:
            if listener.name not in self.sockets.acceptors:
                raise StartError(f"advertised.listeners names {listener.name}, which listeners does not")
            port = listener.port or self.sockets.port(listener.name)
            told.append((listener.name, listener.host or socket.gethostname(), port, listener.security_protocol))
        return sorted(told, key=lambda listener: listener[0] != self.config.inter_broker_listener_name)

    def _schedule_tasks(self) -> None:
        config, every = self.config, self._scheduler.schedule
        interval_ms = config.replica_high_watermark_checkpoint_interval_ms
        every(
            "highwatermark-checkpoint",
            lambda: self.high_watermarks.write(self.replica_manager),
            interval_ms,
            interval_ms,
        )
        every("push-state-checkpoint", self.push_state.checkpoint, CHECKPOINT_MS, CHECKPOINT_MS)
        every("metadata-copy", self.recovery.write_copy, COPY_MS, COPY_MS)
        check_ms = max(1, config.replica_lag_time_max_ms // ISR_CHECKS_PER_LAG)
        every("isr-expiration", self.replica_manager.maybe_shrink_isrs, check_ms, check_ms)
        affinity = RequestAffinity(self.registry, self.broker_id, config.barnabas_cpu_affinity)
        if affinity.is_active:
            every("request-affinity", affinity.review, REVIEW_INTERVAL_MS, REVIEW_INTERVAL_MS)

    def _ask_cluster_id(self) -> str:
        """Ask the controller which cluster this is: the first start on empty directories."""
        deadline_ms = self._clock.monotonic_ms() + self.config.initial_broker_registration_timeout_ms
        request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
        pause = threading.Event()
        while self._clock.monotonic_ms() < deadline_ms:
            for host, port in self._addresses:
                with self._connect(host, port, timeout_ms=self.config.request_timeout_ms, clock=self._clock) as node:
                    try:
                        response = node.send(request, 1)
                    except NodeConnectionError as error:
                        log.debug("%s", error)
                        continue
                    if response.cluster_id:
                        return str(response.cluster_id)
            pause.wait(CLUSTER_ID_RETRY_MS / 1000)
        where = ", ".join(f"{host}:{port}" for host, port in self._addresses)
        raise StartError(f"no controller answers at {where}")
