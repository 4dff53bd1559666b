"""`python -P -m barnabas.controller.main FILE [--override KEY=VALUE]...`: one controller process.

Wiring only: build, start the threads in order, wait for SIGTERM or SIGINT, stop in reverse. An error of the operator (a
bad key, a taken port, a directory in use) is one line on stderr and exit code 1.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from barnabas.broker.apis.k18_api_versions import answer
from barnabas.broker.authorization.authorizer import make_authorizer
from barnabas.broker.handlers import HandlerPool
from barnabas.broker.monitoring.broker_metrics import ClientMetrics, register_process, register_supported
from barnabas.broker.monitoring.quota_metrics import register_mutations, register_queues
from barnabas.broker.network.sasl.sources import SaslSources
from barnabas.broker.quotas.mutations import MutationQuotas
from barnabas.broker.request_channel import RequestChannel
from barnabas.broker.requests.request_log import RequestLog
from barnabas.broker.socket_server import SocketServer
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.client.security import security_of
from barnabas.common import logs, threads
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.disk.files import FileSystem, OsFileSystem
from barnabas.common.pages.page import Page, readiness
from barnabas.common.processes.process import EXIT_USER_ERROR, die_with_supervisor, end_at_once, take_signalled
from barnabas.config.command_line import parse_arguments
from barnabas.config.config import CONTROLLER, Config
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import PROTOCOLS, Listener
from barnabas.controller.apis.k18_api_versions import finalized_features
from barnabas.controller.apis.services import ControllerServices
from barnabas.controller.apis.table import TABLE
from barnabas.controller.controller_metrics import ControllerMetrics
from barnabas.controller.live import ControllerView
from barnabas.controller.metadata.metadata_directory import DirectoryError, MetadataDirectory
from barnabas.controller.metadata.metadata_log import MetadataLog
from barnabas.controller.quorum_controller import QuorumController
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
    from barnabas.broker.faults.kit import FaultKit
    from barnabas.broker.requests.api import Table
    from barnabas.controller.image import Broker, Endpoint, Image

log = logging.getLogger("barnabas.controller")

PUSH_TIMEOUT_MS = 30_000


class ControllerServer:
    """All parts of a controller, built but not started."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        fs: FileSystem,
        cluster_id: str | None = None,
        faults: FaultKit | None = None,
    ) -> None:
        self.config = config
        self.faults = faults  # fixed before start; if not None, `clock` and `fs` are its own
        self.registry = Registry(clock)
        self.endings: queue.SimpleQueue[int | str] = queue.SimpleQueue()  # a signal, or the reason to end the process
        self._directory = MetadataDirectory.open(fs, str(config.metadata_log_dir), int(config.node_id), cluster_id)
        try:
            self._build(clock, fs)
        except BaseException:
            self._directory.close()
            raise

    def _build(self, clock: Clock, fs: FileSystem) -> None:
        table = TABLE if self.faults is None else self.faults.wrap(TABLE)
        self.metrics = ControllerMetrics(self.registry, clock)
        self._tls = TlsEndpoints(self.config.originals, clock.wall_ms)  # fixed before start
        self._authorizer = make_authorizer(self.config, self.registry, is_controller=True)
        self.controller = self._make_controller(clock, fs)
        self._is_serving = False  # set by start, read by the page's threads
        self._build_network(clock, table)
        self._build_page(clock)

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

        return QuorumController(
            config=config,
            cluster_id=self._directory.cluster_id,
            metadata_log=MetadataLog(self._directory.path, config, clock, fs),
            clock=clock,
            connect=push,
            metrics=self.metrics,
            on_hopeless=self.endings.put,
            on_committed=self._committed,
        )

    def _committed(self, image: Image) -> None:
        """Decide by the ACLs of a new image; called by the event thread."""
        if self._authorizer is not None:
            self._authorizer.take(image.security.acls)

    def _build_network(self, clock: Clock, table: Table) -> None:
        """Bind the listeners and build the handlers."""
        config, registry = self.config, self.registry
        listeners = controller_listeners(config)
        channel = RequestChannel(config.queued_max_requests)
        self.request_log = RequestLog(
            RequestMetrics(registry), registry, int(config.barnabas_slow_request_ms), table=TABLE
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
            tls=self._tls,
            sasl=sasl,
        )
        first = listeners[0]
        self.port = self.sockets.port(first.name)
        self.mutations = MutationQuotas.of(config, clock)
        services = ControllerServices(
            config=config,
            cluster_id=self._directory.cluster_id,
            clock=clock,
            registry=registry,
            controller=self.controller,
            endpoints=((int(config.node_id), first.host or "localhost", self.port),),
            table=table,
            mutations=self.mutations,
        )
        sasl.answer_api_versions = lambda request: answer(request, table, finalized_features(services))
        sasl.scram = SecurityLookup(lambda: self.controller.committed_image.security, config, clock)
        sasl.secret = false_salt_secret(config, self._directory.cluster_id)
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
            authorizer=self._authorizer,
        )

    def _build_page(self, clock: Clock) -> None:
        """Build the metrics server with all its pages and gauges."""
        config, registry = self.config, self.registry
        process.register(registry, is_controller=True)
        register_process(registry, clock, int(config.node_id), self.cluster_id, CONTROLLER_CLUSTER_ID)
        register_supported(registry)
        ClientMetrics(registry, self.request_log.metrics)
        register_queues(registry, self.sockets.throttled)
        register_mutations(registry, self.mutations)
        self.page = MetricsServer.of_config(registry, config, clock)
        if self.faults is not None:
            self.faults.serve_controller(self.page, self._topic_name, self._brokers)
        self.page.add_page("/readyz", self._readiness)
        self.view = ControllerView(
            controller=self.controller,
            state=lambda: self.state,
            sockets=self.sockets,
            handlers=self.handlers,
            metrics=self.metrics,
            registry=registry,
            request_log=self.request_log,
            clock=clock,
        )
        self.page.add_view("/live.json", self.view.page)
        add_live_page(self.page)

    @property
    def cluster_id(self) -> str:
        """The id of the cluster: from the directory or the config, or random at the first start."""
        return self._directory.cluster_id

    def start(self) -> None:
        """Replay the log, then accept connections."""
        self.page.start()
        self.controller.start()
        self.handlers.start()
        self.sockets.start()
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

    def _readiness(self) -> Page:
        return readiness(self.state, is_ready=self._is_serving)

    def stop(self) -> None:
        """Stop in reverse order; everything acknowledged is on disk already."""
        self.sockets.begin_shutdown()
        self.handlers.shutdown()
        self.controller.stop()  # responds to the submitted requests
        self.sockets.shutdown()
        self.page.stop()
        self._directory.close()
        if self.faults is not None:
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
    try:
        arguments = parse_arguments(CONTROLLER, argv)
        logs.configure()
        config = Config.load(arguments.file, role=CONTROLLER, overrides=arguments.overrides, environment=environment)
        logs.use_format(config.barnabas_log_format)
        server = make_server(config, environment.get("CLUSTER_ID"))
    except (ConfigError, DirectoryError, ApiError, OSError) as error:
        print(f"controller: {error}", file=sys.stderr)
        return EXIT_USER_ERROR
    return run(server)


def make_server(config: Config, cluster_id: str | None) -> ControllerServer:
    """Build a controller; with barnabas.faults.enable it accepts fault injection."""
    if not config.barnabas_faults_enable:
        return ControllerServer(config, SystemClock(), OsFileSystem(), cluster_id)
    from barnabas.broker.faults.kit import FaultKit  # Why here: not loaded without fault injection

    faults = FaultKit(config)
    return ControllerServer(config, faults.clock, faults.fs, cluster_id, faults)


def run(server: ControllerServer) -> int:
    """Start, wait for a signal or a fatal error, stop; return the exit code."""
    threads.set_fatal_handler(end_at_once)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: server.endings.put(got))
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
    ending = take_signalled(server.endings)
    log.info("Controller %d is shutting down", server.controller.node_id)
    server.stop()
    if isinstance(ending, str):
        print(f"controller: {ending}", file=sys.stderr)
        return EXIT_USER_ERROR
    return 0


if __name__ == "__main__":
    sys.exit(main())
