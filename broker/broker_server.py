"""BrokerServer: a whole broker. It builds the parts, starts their threads in order, and stops them in reverse.

The parts are in `broker/wiring/`.

Start: log directories (locked, recovered) -> purgatories, scheduled tasks, coordinators -> channels to the controller
-> handlers -> listeners -> registration. The broker is ready when the controller has unfenced it.
Stop (SIGTERM): leaders move away (controlled shutdown) -> no new requests -> handlers -> connections closed ->
coordinators -> fetchers -> high watermarks written -> logs flushed and marked clean.

Threads: main.
Source: Kafka's BrokerServer (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from barnabas.broker.apis.services import Services
from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization.authorizer import make_authorizer
from barnabas.broker.channels.forwarding import ForwardingManager
from barnabas.broker.channels.lifecycle import SECURITY_PROTOCOL_IDS, BrokerState
from barnabas.broker.fetch_sessions.sessions import FetchSessions
from barnabas.broker.log_dir_failures import LogDirFailures
from barnabas.broker.metadata.auto_topic_creation import AutoTopicCreation
from barnabas.broker.metadata.metadata_cache import BrokerInfo, Endpoint, MetadataCache
from barnabas.broker.metadata.recovery_reporter import COPY_MS, RecoveryReporter, tls_set_before
from barnabas.broker.metadata.security_cache import SecurityCache
from barnabas.broker.network.affinity import REVIEW_INTERVAL_MS, RequestAffinity
from barnabas.broker.quotas.updates import QuotaUpdates
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import stable_versions
from barnabas.broker.settings.dynamic_config import DynamicConfig, Resource, ResourceType, keep_logs_configured
from barnabas.broker.settings.dynamic_resources import DynamicResources
from barnabas.broker.share.manager import SharePartitionManager
from barnabas.broker.storage.cleaner.log_cleaner import LogCleaner
from barnabas.broker.storage.log_manager import LogManager
from barnabas.broker.storage.scheduler import Scheduler
from barnabas.broker.telemetry.manager import EXPIRE_MS, ClientMetricsManager
from barnabas.broker.telemetry.receiver import TelemetryReceiver
from barnabas.broker.wiring.cluster_id import ask_cluster_id
from barnabas.broker.wiring.context import Context, SharedProcess, StartError
from barnabas.broker.wiring.controller_link import ControllerLink
from barnabas.broker.wiring.coordinators import Coordinators
from barnabas.broker.wiring.network import Network
from barnabas.broker.wiring.older_release import table_of_release
from barnabas.broker.wiring.pages import Pages
from barnabas.broker.wiring.replication import Replication
from barnabas.broker.wiring.request_handling import RequestHandling
from barnabas.client.connection import Connect, NodeConnection
from barnabas.client.security import check_security, security_of_brokers, security_of_controller
from barnabas.metrics.registry import Registry
from barnabas.protocol.api_keys import ApiKey
from barnabas.security.sasl.scopes import false_salt_secret
from barnabas.security.sasl.scram.lookup import SecurityLookup

if TYPE_CHECKING:
    from barnabas.broker.clock.hand import ClockHand
    from barnabas.broker.faults.kit import FaultKit
    from barnabas.broker.requests.api import Table
    from barnabas.broker.requests.request import Request
    from barnabas.common.clock import Clock
    from barnabas.common.disk.files import FileSystem
    from barnabas.config.config import Config

log = logging.getLogger("barnabas.broker")

PENDING_SHUTDOWN_MS: Final = 30_000
LOOK_MS: Final = 1_000
LEADERLESS_LOOKS_MAX: Final = 5  # longer than an election takes
QUOTAS_EXPIRE_MS: Final = 60_000
HELD_MAX_MS: Final = 10_000  # how long a single listener for all waits for the security metadata


class BrokerServer:
    """All parts of a broker, built but not started.

    The constructor locks the log directories and binds the sockets. Raises StartError, LogDirectoryError, OSError.
    `on_fatal` is called from any thread with the reason why the process must end.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        fs: FileSystem,
        on_fatal: Callable[[str], None],
        faults: FaultKit | None = None,
        hand: ClockHand | None = None,
        shared: SharedProcess | None = None,
    ) -> None:
        """`shared`: the process is also a controller, which starts before the broker and stops after it."""
        self.config = config  # fixed before start
        self._shared = shared  # fixed before start
        self.broker_id = int(config.node_id)  # fixed before start
        self._faults = faults  # fixed before start; if not None, `clock` and `fs` are its own
        self._hand = hand  # fixed before start
        self._moved_clock = clock if hand is None else hand.clock  # fixed before start
        registry = Registry(clock) if shared is None else shared.registry
        self._scheduler = Scheduler(config.background_threads, self._moved_clock)
        self.log_manager = LogManager(config, config.log_dirs, self._moved_clock, self._scheduler, fs)
        known_cluster_id = self.log_manager.open_directories(self.broker_id)
        try:
            set_before = partial(tls_set_before, fs, self.log_manager, known_cluster_id, self.broker_id)
            self.network = Network(config, registry, clock, None if shared is None else shared.expiry, set_before)
            try:
                context = self._make_context(clock, fs, registry, on_fatal, known_cluster_id)
                self._build(context)
            except BaseException:
                self.network.sockets.shutdown()
                raise
        except BaseException:
            self._scheduler.shutdown()
            for directory in self.log_manager.directories:
                directory.close()
            raise

    def _make_context(
        self,
        clock: Clock,
        fs: FileSystem,
        registry: Registry,
        on_fatal: Callable[[str], None],
        known_cluster_id: str | None,
    ) -> Context:
        """Return what all parts share; asks a controller for the cluster id if the directories do not have it."""
        controllers = self.config.controller_bootstrap()
        if not controllers:
            raise StartError("controller.quorum.bootstrap.servers (or controller.quorum.voters) must name a controller")
        connect: Connect = NodeConnection if self._faults is None else self._faults.connect
        tls = self.network.tls
        check_security(tls, self.config, clock)
        to_controller = partial(connect, security=security_of_controller(tls, self.config, clock))
        if self._shared is not None:
            cluster_id = self._shared.build_controller(known_cluster_id)
        else:
            cluster_id = known_cluster_id or ask_cluster_id(self.config, controllers, to_controller, clock)
        return Context(
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            controllers=controllers,
            config=self.config,
            clock=clock,
            moved_clock=self._moved_clock,
            fs=fs,
            registry=registry,
            scheduler=self._scheduler,
            connect=partial(connect, security=security_of_brokers(tls, self.config, clock)),
            connect_to_controller=to_controller,
            on_fatal=on_fatal,
            page=None if self._shared is None else self._shared.page,
        )

    def _build(self, context: Context) -> None:
        """Build the parts, in order of their dependencies."""
        self._context = context  # fixed before start
        self.log_manager.identify(context.cluster_id)
        advertised = self.network.advertised_listeners()
        endpoints = {name: Endpoint(host, port, SECURITY_PROTOCOL_IDS[kind]) for name, host, port, kind in advertised}
        own = BrokerInfo(context.broker_id, context.config.broker_rack, endpoints)
        self._metadata_cache = MetadataCache(own)
        self._security = SecurityCache()
        quotas = QuotaUpdates(
            self.network.client_quotas, self.network.sockets.quotas.set_address_rates, context.scheduler
        )
        self._security.on_change(quotas.security_changed)
        self._dynamic_config = DynamicConfig(context.config, context.clock)
        keep_logs_configured(self._dynamic_config, self.log_manager)
        self._log_cleaner = self._make_log_cleaner(context)
        self.link = ControllerLink(
            context,
            self.log_manager,
            self._metadata_cache,
            self._security,
            self._dynamic_config.apply_first,
            advertised,
        )
        self._replication = Replication(
            context, self.log_manager, self._metadata_cache, self._dynamic_config, self.link
        )
        self._auto_topic_creation = AutoTopicCreation(context.config, self.link.forwarding, context.clock)
        self._coordinators = Coordinators(
            context,
            self._metadata_cache,
            self._dynamic_config,
            self._replication,
            self.link.producer_ids,
            self._auto_topic_creation,
        )
        self._recovery = self._make_recovery(context)
        self._log_dir_failures = LogDirFailures(
            self.log_manager,
            self._replication.leadership,
            self.link.lifecycle.report_failed_directory,
            context.on_fatal,
        )
        apis = TABLE if context.config.unstable_api_versions_enable else stable_versions(TABLE)
        self.services = self._make_services(context, apis)
        table = table_of_release(apis, context.config.barnabas_compat_release)
        self._serve_logins(context, table)
        if self._faults is not None:
            table = self._faults.wrap(table)
        authorizer = make_authorizer(context.config, context.registry)
        if authorizer is not None:
            self._security.on_change(lambda image, _kinds: authorizer.take(image.acls))
        self._handling = RequestHandling(context, self.network, self.services, table, authorizer)
        self.pages = Pages(
            context,
            self.network,
            self._handling,
            self.services,
            self._replication.fetchers,
            self.link,
            self._faults,
        )
        if self._hand is not None:
            self._serve_hand(self._hand)
        self._coordinators.register_metrics(self.log_manager)
        self._dynamic_config.before_change(self.network.sockets.check)
        self._dynamic_config.before_change(lambda changed: check_security(self.network.tls, changed, context.clock))
        self._dynamic_config.on_change(self._reconfigure)
        DynamicResources(
            self._dynamic_config,
            self._scheduler,
            {
                "background.threads": self._scheduler.resize,
                "num.io.threads": self._handling.handlers.resize,
                "num.replica.fetchers": self._replication.fetchers.resize,
            },
            self.network.sockets,
        )
        # Why nodes: the response to the registration brings users, ACLs and what was set at run time, and the first
        # push may come over a single listener for all. Why not clients: they would find no topics yet.
        self._security.on_change(lambda _image, _changed: self.network.sockets.admit_nodes())
        self._metadata_cache.on_caught_up.append(lambda: self.network.sockets.admit_clients())

    def _serve_logins(self, context: Context, table: Table) -> None:
        """Give logins what they need of the other parts."""
        sasl = self.network.sasl

        def versions(request: Request) -> Reply:
            reply = table[ApiKey.API_VERSIONS].handle(self.services, request)
            assert isinstance(reply, Reply)
            return reply

        sasl.answer_api_versions = versions
        sasl.scram = SecurityLookup(lambda: self._security.image, context.config, context.moved_clock)
        sasl.false_salts = lambda: false_salt_secret(context.config, context.cluster_id, self._security.image)

    def _serve_hand(self, hand: ClockHand) -> None:
        """Let the clock be moved: give the hand all parts that wait by it."""
        from barnabas.broker.clock.parts import parts_of  # Why here: few clusters move their clock

        hand.parts += parts_of(self._scheduler, self._replication.purgatories, self._coordinators, self._log_cleaner)
        hand.serve(self.pages.server, "broker")

    def _make_log_cleaner(self, context: Context) -> LogCleaner:
        traffic = self.network.channel.requests.last_take_ns
        cleaner = LogCleaner(
            context.config,
            self.log_manager,
            context.moved_clock,
            context.fs,
            context.registry,
            traffic,
            lambda tp: self._replication.manager.is_in_sync(tp),
        )
        self._dynamic_config.before_change(cleaner.check_change)
        return cleaner

    def _make_recovery(self, context: Context) -> RecoveryReporter:
        return RecoveryReporter(
            broker_id=context.broker_id,
            cluster_id=context.cluster_id,
            broker_epoch=self.link.broker_epoch,
            fs=context.fs,
            log_manager=self.log_manager,
            replica_manager=self._replication.manager,
            metadata_cache=self._metadata_cache,
            dynamic_config=self._dynamic_config,
            producer_ids=self.link.producer_ids,
            push_state=self.link.push_state,
            security=self._security,
        )

    def _make_services(self, context: Context, apis: Table) -> Services:
        config, link, replication, coordinators = context.config, self.link, self._replication, self._coordinators
        slots = config.max_incremental_fetch_session_cache_slots
        return Services(
            broker_id=context.broker_id,
            cluster_id=context.cluster_id,
            config=config,
            table=apis,
            clock=context.clock,
            registry=context.registry,
            metadata_cache=self._metadata_cache,
            security=self._security,
            log_manager=self.log_manager,
            replica_manager=replication.manager,
            purgatories=replication.purgatories,
            fetch_sessions=FetchSessions(
                context.clock, context.registry, slots=slots, idle_partitions=replication.manager.idle_partitions
            ),
            quotas=self.network.client_quotas,
            forwarding=ForwardingManager(config, link.forwarding, replication.purgatories.topic, context.clock),
            auto_topic_creation=self._auto_topic_creation,
            producer_ids=link.producer_ids,
            dynamic_config=self._dynamic_config,
            group_coordinator=coordinators.groups,
            share_groups=coordinators.share_groups,
            streams_groups=coordinators.streams_groups,
            transaction_coordinator=coordinators.transactions,
            share_coordinator=coordinators.share_state,
            persister=coordinators.persister,
            share_partitions=self._make_share_partitions(context),
            transaction_verification=coordinators.verification,
            marker_writer=coordinators.marker_writer,
            leadership=replication.leadership,
            push_gate=link.push_gate,
            lifecycle=link.lifecycle,
            controllers=link.controllers,
            log_dir_moves=replication.log_dir_moves,
            recovery=self._recovery,
            client_metrics=self._make_client_metrics(context),
        )

    def _make_share_partitions(self, context: Context) -> SharePartitionManager:
        replication = self._replication
        made = SharePartitionManager(
            config=context.config,
            clock=context.moved_clock,
            registry=context.registry,
            dynamic_config=self._dynamic_config,
            hosted=replication.manager.hosted,
            purgatory=replication.purgatories.share_fetch,
            persister=self._coordinators.persister,
        )
        replication.leadership.listeners.append(made)
        return made

    def _make_client_metrics(self, context: Context) -> ClientMetricsManager:
        receiver = TelemetryReceiver(context.registry)
        manager = ClientMetricsManager(context.clock, context.registry, receiver, context.config.telemetry_max_bytes)
        manager.follow(self._dynamic_config)
        return manager

    def _reconfigure(self, changed: Resource) -> None:
        """Apply a change of this broker's config to the parts that keep values of it."""
        if changed.type == ResourceType.BROKER:
            # Why here: after a restart no client may connect or log in by the settings of the file alone.
            self.network.sockets.reconfigure_security()
            self._log_cleaner.reconfigure()
            self.link.lifecycle.report_cordoned_directories()
            self._handling.slow_motion.update()

    def start(self) -> None:
        """Recover the logs, start every thread, and begin to register; `wait_until_ready` waits for the rest."""
        if self._shared is None:
            self.pages.server.start()
            if self._hand is not None:
                self._hand.catch_up()
        self.log_manager.load_logs()
        self.log_manager.start()
        self._log_cleaner.start()
        self._log_dir_failures.start()
        self._replication.start()
        self._schedule_tasks()
        self._coordinators.start()
        self.link.start_channels()
        self._handling.start()
        # Why: a client that is refused by mistake, before the ACLs and users have arrived, does not try again.
        self.network.sockets.start(holds_clients=self.network.needs_security_metadata)
        # Why at all: without a controller, `barnabas controller recover` must reach the broker.
        self._admit_nodes(self._context.clock.monotonic_ms() + HELD_MAX_MS)
        self.link.lifecycle.start()
        self.pages.lag_exporter.start()

    def _admit_nodes(self, due_ms: int) -> None:
        """Admit nodes at this time of the machine's clock. The scheduler's may be moved, and looks too early then."""
        left_ms = due_ms - self._context.clock.monotonic_ms()
        if left_ms > 0:
            self._scheduler.schedule_once("admit-nodes", lambda: self._admit_nodes(due_ms), left_ms)
        else:
            self.network.sockets.admit_nodes()

    def _schedule_tasks(self) -> None:
        context, every = self._context, self._scheduler.schedule
        self._replication.schedule()
        self.link.schedule()
        every("metadata-copy", self._recovery.write_copy, COPY_MS, COPY_MS)
        every("client-quotas", self.network.client_quotas.expire, QUOTAS_EXPIRE_MS, QUOTAS_EXPIRE_MS)
        every("client-metrics", self.services.client_metrics.expire, EXPIRE_MS, EXPIRE_MS)
        affinity = RequestAffinity(context.registry, context.broker_id, context.config.barnabas_cpu_affinity)
        if affinity.is_active:

            def review() -> None:
                task.period_ms = affinity.review()

            task = every("request-affinity", review, REVIEW_INTERVAL_MS, REVIEW_INTERVAL_MS)

    def wait_until_ready(self, timeout_ms: int) -> bool:
        """Wait until the controller has unfenced the broker; False if it stops before, or the time is up."""
        return self.link.lifecycle.wait_for(BrokerState.RUNNING, timeout_ms)

    def stop(self, *, controlled: bool = True) -> None:
        """Stop in reverse order; with `controlled` the controller first moves the broker's leaders away.

        `controlled.shutdown.enable=false` leaves that out.
        """
        self._handling.slow_motion.end()
        if controlled and self.services.config.controlled_shutdown_enable:
            self._leave()
        self.pages.lag_exporter.shutdown()
        self.link.lifecycle.shutdown()
        self.network.sockets.begin_shutdown()
        self._handling.stop()
        # Why not last: a client whose request is no longer read waits for it until its connection is closed.
        self.network.sockets.shutdown()
        self.network.client_quotas.close()
        self._coordinators.stop()
        self._replication.stop_copying()
        self.link.stop_channels()
        self._replication.stop()
        self.link.push_state.checkpoint()
        self._recovery.write_copy()
        self._log_cleaner.shutdown()
        self._scheduler.shutdown()
        self.log_manager.shutdown(self.link.lifecycle.epoch)
        self._log_dir_failures.shutdown()
        if self._shared is None:
            self.pages.server.stop()
            if self._faults is not None:
                self._faults.close()

    def _leave(self) -> None:
        """Wait until the controller has moved the leaders away (controlled shutdown).

        If all nodes of a cluster stop at once, and are its controllers, the last ones have no majority to wait for.
        """
        self._replication.leadership.is_leaving = True
        self.link.lifecycle.begin_controlled_shutdown()
        without_leader = 0
        for _ in range(PENDING_SHUTDOWN_MS // LOOK_MS):
            if self.link.lifecycle.wait_for(BrokerState.SHUTTING_DOWN, LOOK_MS):
                return
            has_leader = self._shared is None or self._shared.has_leader()
            without_leader = 0 if has_leader else without_leader + 1
            if without_leader == LEADERLESS_LOOKS_MAX:
                break
        log.warning("the controller did not agree to the shutdown in time")

    def close(self) -> None:
        """Stop a broker that was built but could not be started."""
        self.stop(controlled=False)
