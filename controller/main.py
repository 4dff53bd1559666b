"""`python -P -m barnabas.controller.main FILE [--override KEY=VALUE]...`: one controller process.

Wiring only: build, start the threads in order, wait for SIGTERM or SIGINT, stop in reverse. An error of the operator (a
bad key, a taken port, a directory in use) is one line on stderr and exit code 1.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.apis.k18_api_versions import answer
from barnabas.broker.authorization.authorizer import make_authorizer
from barnabas.broker.channels.active_controller import ActiveController
from barnabas.broker.handlers import HandlerPool
from barnabas.broker.monitoring.broker_metrics import ClientMetrics, register_process, register_supported
from barnabas.broker.network.sasl.sources import SaslSources
from barnabas.broker.request_channel import RequestChannel
from barnabas.broker.requests.request_log import ELECTION_CODES, RequestLog
from barnabas.broker.socket_server import SocketServer
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.client.security import security_of, security_of_controller
from barnabas.common import logs, threads
from barnabas.common.clock import Clock
from barnabas.common.clocks.server_clock import ServerClock
from barnabas.common.disk.files import FileSystem, OsFileSystem
from barnabas.common.ids import random_uuid
from barnabas.common.pages.page import Page, readiness
from barnabas.common.processes.collector import collect_rarely
from barnabas.common.processes.process import EXIT_USER_ERROR, catch_signals, die_with_supervisor, end_at_once
from barnabas.config.command_line import parse_arguments
from barnabas.config.config import CONTROLLER, Config
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import PROTOCOLS, Listener
from barnabas.controller.apis.k18_api_versions import finalized_features, supported_features
from barnabas.controller.apis.services import ControllerServices
from barnabas.controller.apis.table import LOCAL_TABLE, TABLE
from barnabas.controller.controller_metrics import ControllerMetrics
from barnabas.controller.live import ControllerView
from barnabas.controller.metadata.bootstrap import bootstrap_records
from barnabas.controller.metadata.metadata_directory import DirectoryError, MetadataDirectory
from barnabas.controller.metadata.opened_log import names_several, open_log
from barnabas.controller.policies.policies import Policies
from barnabas.controller.quorum_controller import QuorumController
from barnabas.controller.quotas import ControllerQuotas
from barnabas.controller.raft.client.raft_metrics import show_thread, show_without_thread
from barnabas.controller.registration.manager import RegistrationManager, own_registration, request_of
from barnabas.metrics import process
from barnabas.metrics.channel_metrics import ChannelMetrics
from barnabas.metrics.http import MetricsServer
from barnabas.metrics.live import add_live_page
from barnabas.metrics.registry import Registry
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.metrics.table.catalogue import CONTROLLER_CLUSTER_ID
from barnabas.protocol.errors import ApiError
from barnabas.security.sasl.scopes import false_salt_secret
from barnabas.security.sasl.scram.lookup import SecurityLookup
from barnabas.security.tls.endpoints import TlsEndpoints

if TYPE_CHECKING:
    from barnabas.broker.clock.hand import ClockHand
    from barnabas.broker.faults.kit import FaultKit
    from barnabas.broker.requests.api import Api, Table
    from barnabas.controller.image import Broker, Endpoint, Image
    from barnabas.controller.raft.client.status import Entry
    from barnabas.security.tls.loaded import ExpiryLog

log = logging.getLogger("barnabas.controller")

PUSH_TIMEOUT_MS = 30_000


class SharedProcess(NamedTuple):
    """What the controller shares with the broker of the same process."""

    registry: Registry  # of the controller alone; the process shows both on one page
    page: MetricsServer  # started and stopped by the process
    expiry: ExpiryLog
    endings: queue.SimpleQueue[int | str]
    broker_apis: frozenset[int]  # faults in these are faults of the broker


class ControllerServer:
    """All parts of a controller, built but not started."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        fs: FileSystem,
        cluster_id: str | None = None,
        faults: FaultKit | None = None,
        hand: ClockHand | None = None,
        shared: SharedProcess | None = None,
    ) -> None:
        """`shared`: the process is also a broker, which starts after the controller and stops before it."""
        self.config = config
        self._shared = shared  # fixed before start
        self._moved_clock = clock if hand is None else hand.clock  # fixed before start; of what expires
        self._hand = hand  # fixed before start
        self.faults = faults  # fixed before start; if not None, `clock` and `fs` are its own
        self.registry = Registry(clock) if shared is None else shared.registry
        #: A signal, or the reason to end the process.
        self.endings: queue.SimpleQueue[int | str] = queue.SimpleQueue() if shared is None else shared.endings
        self._directory = MetadataDirectory.open(
            fs,
            str(config.metadata_log_dir),
            int(config.node_id),
            cluster_id,
            is_alone=not names_several(config),
            is_locked=config.shares_metadata_directory and shared is not None,
        )
        try:
            self._build(clock, fs)
        except BaseException:
            self._directory.close()
            raise

    def _build(self, clock: Clock, fs: FileSystem) -> None:
        self.metrics = ControllerMetrics(self.registry, clock)
        expiry = None if self._shared is None else self._shared.expiry
        self._tls = TlsEndpoints(self.config.originals, clock.wall_ms, expiry=expiry)  # fixed before start
        self._authorizer = make_authorizer(self.config, self.registry, is_controller=True)
        self.quotas = ControllerQuotas(self.config, clock)
        self._policies = Policies.of(self.config)  # fixed before start
        self.controller = self._make_controller(clock, fs)
        apis = LOCAL_TABLE if self.raft is None else TABLE
        table = apis if self.faults is None else self._with_faults(apis, self.faults)
        self._registration: RegistrationManager | None = None  # fixed before start; None for a single controller
        self._is_serving = False  # set by start, read by the page's threads
        self._build_network(clock, table)
        self._build_page(clock)

    def _with_faults(self, apis: Table, faults: FaultKit) -> dict[int, Api]:
        """Return the API table with faults; those in APIs that a broker of this process has, too, are the broker's."""
        others = frozenset() if self._shared is None else self._shared.broker_apis
        return {**apis, **faults.wrap({key: api for key, api in apis.items() if key not in others})}

    def _make_controller(self, clock: Clock, fs: FileSystem) -> QuorumController:
        config = self.config
        traffic = ChannelMetrics(self.registry, "raft-channel")
        connect: Connect = NodeConnection if self.faults is None else self.faults.connect
        own = {"timeout_ms": PUSH_TIMEOUT_MS, "client_id": str(config.node_id), "clock": clock, "traffic": traffic}

        def push(endpoint: Endpoint) -> NodeConnection:
            try:
                protocol = PROTOCOLS[endpoint.security_protocol]
                security = security_of(self._tls, config, endpoint.name, protocol, clock)
            except (ConfigError, IndexError) as error:
                raise NodeConnectionError(str(error)) from error
            return connect(endpoint.host, endpoint.port, security=security, **own)

        directory = self._directory.path

        def to_voter(host: str, port: int) -> NodeConnection:
            timeout_ms = int(config.controller_quorum_request_timeout_ms)
            return self._connect_to_controller(clock)(
                host, port, timeout_ms=timeout_ms, client_id=str(config.node_id), clock=clock, traffic=traffic
            )

        opened = open_log(config, self._directory, to_voter, clock, fs)
        self.raft = opened.raft  # fixed before start
        self._elections: Callable[[], Sequence[Entry]] = tuple  # fixed before start
        if opened.raft is None:
            show_without_thread(self.registry, self.metrics.idle_ratio)
        else:
            show_thread(self.registry, opened.raft)
            self._elections = opened.raft.elections
        return QuorumController(
            config=config,
            cluster_id=self._directory.cluster_id,
            raft=opened.log,
            flush=opened.flush,
            bootstrap=lambda: bootstrap_records(fs, directory, config),
            clock=clock,
            connect=push,
            metrics=self.metrics,
            on_hopeless=self.endings.put,
            on_committed=self._committed,
            moved_clock=self._moved_clock,
            # Why not alone: it would write only for itself, which knows whether it can.
            max_idle_ms=0 if opened.raft is None else int(config.metadata_max_idle_interval_ms),
            policies=self._policies,
        )

    def _connect_to_controller(self, clock: Clock) -> Connect:
        """Return what connects to other controllers; raises ConfigError if the settings do not allow it."""
        connect: Connect = NodeConnection if self.faults is None else self.faults.connect
        return partial(connect, security=security_of_controller(self._tls, self.config, clock))

    def _to_active_controller(self, clock: Clock) -> ActiveController:
        """Return the connection to the active controller, for a standby one."""
        config = self.config
        return ActiveController(
            int(config.node_id),
            config.controller_bootstrap(),
            clock,
            timeout_ms=int(config.request_timeout_ms),
            cluster_id=self._directory.cluster_id,
            connect=self._connect_to_controller(clock),
        )

    def _committed(self, image: Image) -> None:
        """Decide by the ACLs and the quotas of a new image; called by the event thread."""
        if self._authorizer is not None:
            self._authorizer.take(image.security.acls)
        self.quotas.take(image.security)
        if self._registration is not None:
            self._registration.committed(image)

    def _build_network(self, clock: Clock, table: Table) -> None:
        """Bind the listeners and build the handlers."""
        config, registry = self.config, self.registry
        listeners = controller_listeners(config)
        channel = RequestChannel(config.queued_max_requests)
        self.request_log = RequestLog(
            RequestMetrics(registry),
            registry,
            int(config.barnabas_slow_request_ms),
            table=table,
            routine=frozenset() if self.raft is None else ELECTION_CODES,
            clock=clock,
        )
        sasl = SaslSources()
        self.sockets = SocketServer(
            listeners,
            config,
            channel,
            self.request_log,
            registry,
            clock,
            thread_prefix="controller",
            client_quotas=self.quotas.clients,
            tls=self._tls,
            sasl=sasl,
        )
        self.quotas.limit_addresses(self.sockets.quotas.set_address_rates)
        first = listeners[0]
        self.port = self.sockets.port(first.name)
        own = own_registration(config, random_uuid(), self.sockets.port, is_alone=self.raft is None)
        self.controller.registration = request_of(own)
        if self.raft is not None:
            self._registration = RegistrationManager(own, self._to_active_controller(clock))
        services = ControllerServices(
            config=config,
            cluster_id=self._directory.cluster_id,
            clock=self._moved_clock,
            registry=registry,
            controller=self.controller,
            endpoint=(int(config.node_id), first.host or "localhost", self.port),
            table=table,
            mutations=self.quotas.mutations,
            raft=self.raft,
        )
        sasl.answer_api_versions = lambda request: answer(
            request, table, finalized_features(services), supported_features(services)
        )
        sasl.scram = SecurityLookup(lambda: self.controller.committed_image.security, config, self._moved_clock)
        sasl.false_salts = lambda: false_salt_secret(
            config, self._directory.cluster_id, self.controller.committed_image.security
        )
        self.handlers: HandlerPool = HandlerPool(
            config.num_io_threads,
            channel,
            table,
            services,
            self.request_log,
            registry,
            clock,
            thread_prefix="controller",
            request_bytes_max=int(config.barnabas_request_max_bytes),
            quotas=self.quotas.clients,
            authorizer=self._authorizer,
        )

    def _build_page(self, clock: Clock) -> None:
        """Build the metrics server with all its pages and gauges."""
        config, registry = self.config, self.registry
        if self._shared is None:  # else the process registers itself
            process.register(registry, is_controller=True)
        register_process(registry, clock, int(config.node_id), self.cluster_id, CONTROLLER_CLUSTER_ID)
        register_supported(registry)
        ClientMetrics(registry, self.request_log.metrics, self.quotas.clients)
        self.quotas.register(registry, self.sockets.throttled)
        self.page = MetricsServer.of_config(registry, config, clock) if self._shared is None else self._shared.page
        if self.faults is not None:
            self.faults.serve_controller(self.page, self._topic_name, self._brokers)
        if self._hand is not None:
            from barnabas.broker.clock.parts import EventPart  # Why here: few clusters move their clock

            self._hand.parts.append(EventPart("token-expiration", self.controller.expire_tokens))
            self._hand.serve(self.page, "controller")
        self.page.add_page("/readyz", self.readiness)
        self.view = ControllerView(
            controller=self.controller,
            state=lambda: self.state,
            sockets=self.sockets,
            handlers=self.handlers,
            metrics=self.metrics,
            registry=registry,
            request_log=self.request_log,
            clock=clock,
            moved_clock=self._moved_clock,
            elections=self._elections,
        )
        self.page.add_view("/live.json", self.view.page)
        add_live_page(self.page)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster: from the directory or the config, or random at the first start."""
        return self._directory.cluster_id

    def start(self) -> None:
        """Replay the log, then accept connections."""
        if self._shared is None:
            self.page.start()
            if self._hand is not None:
                self._hand.catch_up()
        self.controller.start()
        self.quotas.start()
        self.handlers.start()
        self.sockets.start()
        if self._registration is not None:
            self._registration.start()
        self._is_serving = True

    def _topic_name(self, topic_id: bytes) -> str | None:
        topic = self.controller.committed_image.topics.get(topic_id)
        return None if topic is None else topic.name

    def _brokers(self) -> list[Broker]:
        return list(self.controller.committed_image.brokers.values())

    @property
    def state(self) -> str:
        """Whether the controller accepts connections: "serving" or "replaying"."""
        return "serving" if self._is_serving else "replaying"

    def readiness(self) -> Page:
        """Return whether the controller accepts connections."""
        return readiness(self.state, is_ready=self._is_serving)

    def stop(self) -> None:
        """Stop in reverse order; everything acknowledged is on disk already."""
        self.sockets.begin_shutdown()
        if self._registration is not None:
            self._registration.stop()
        self.handlers.shutdown()
        self.controller.stop()  # responds to the submitted requests
        self._policies.close()
        self.sockets.shutdown()
        self.quotas.stop()
        if self._shared is None:
            self.page.stop()
        self._directory.close()
        if self.faults is not None and self._shared is None:
            self.faults.close()


def controller_listeners(config: Config) -> list[Listener]:
    """Return the listeners of `controller.listener.names`; all listeners if it matches none."""
    names = {str(name).upper() for name in config.controller_listener_names}
    chosen = [listener for listener in config.listeners_parsed if listener.name in names]
    return chosen or list(config.listeners_parsed)


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run a controller until a signal stops it; return the exit code."""
    environment = os.environ if environment is None else environment
    die_with_supervisor()
    collect_rarely()
    try:
        arguments = parse_arguments(CONTROLLER, argv)
        logs.configure()
        config = Config.load(arguments.file, role=CONTROLLER, overrides=arguments.overrides, environment=environment)
        config.require_one_role()
        logs.use_format(config.barnabas_log_format)
        server = make_server(config, environment.get("CLUSTER_ID"))
    except (ConfigError, DirectoryError, ApiError, OSError) as error:
        print(f"controller: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    return run(server)


def make_server(config: Config, cluster_id: str | None) -> ControllerServer:
    """Build a controller; it accepts fault injection and moves of its clock if the configuration allows them."""
    if not config.barnabas_faults_enable:
        clock = ServerClock()
        return ControllerServer(config, clock, OsFileSystem(), cluster_id, hand=_clock_hand(config, clock))
    from barnabas.broker.faults.kit import FaultKit  # Why here: not loaded without fault injection

    faults = FaultKit(config)
    hand = _clock_hand(config, faults.clock)
    return ControllerServer(config, faults.clock, faults.fs, cluster_id, faults, hand)


def _clock_hand(config: Config, clock: Clock) -> ClockHand | None:
    if not config.barnabas_clock_enable:
        return None
    from barnabas.broker.clock.hand import ClockHand  # Why here: few clusters move their clock

    return ClockHand(config, clock)


def run(server: ControllerServer) -> int:
    """Start, wait for a signal or a fatal error, stop; return the exit code."""
    threads.set_fatal_handler(end_at_once)
    catch_signals(server.endings)
    try:
        server.start()
    except (DirectoryError, OSError, ApiError) as error:
        print(f"controller: {error}", file=sys.stderr)
        server.stop()
        return EXIT_USER_ERROR
    log.info(
        "Controller %d is ready on port %d, cluster id %s, metrics on port %d",
        server.controller.node_id, server.port, server.cluster_id, server.page.port,
    )  # fmt: skip
    ending = server.endings.get()
    log.info("Controller %d is shutting down", server.controller.node_id)
    server.stop()
    if isinstance(ending, str):
        print(f"controller: {ending}", file=sys.stderr)
        return EXIT_USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
