"""Pages: the metrics server of a broker with all its pages and gauges, and the exporter of consumer lag.

Threads: main builds, starts and stops it; the metrics server has its own thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.channels.lifecycle import BrokerState
from barnabas.broker.live.view import BrokerView
from barnabas.broker.monitoring import broker_metrics
from barnabas.broker.monitoring.lag_exporter import LagExporter
from barnabas.broker.monitoring.quota_metrics import register_exempt, register_queues
from barnabas.common.pages.page import Page, readiness
from barnabas.metrics import process
from barnabas.metrics.http import MetricsServer
from barnabas.metrics.live import add_live_page
from barnabas.metrics.table import catalogue

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.faults.kit import FaultKit
    from barnabas.broker.replication.fetching.fetchers import ReplicaFetchers
    from barnabas.broker.wiring.context import Context
    from barnabas.broker.wiring.controller_link import ControllerLink
    from barnabas.broker.wiring.network import Network
    from barnabas.broker.wiring.request_handling import RequestHandling


class Pages:
    """See the module."""

    def __init__(
        self,
        context: Context,
        network: Network,
        handling: RequestHandling,
        services: Services,
        fetchers: ReplicaFetchers,
        link: ControllerLink,
        faults: FaultKit | None,
    ) -> None:
        config, registry = context.config, context.registry
        self._lifecycle = link.lifecycle  # fixed before start
        self.server = context.page or MetricsServer.of_config(registry, config, context.clock)
        self.server.add_page("/readyz", self.readiness)
        if faults is not None:
            faults.serve_broker(self.server, services.metadata_cache, context.controllers)
        self.view = BrokerView(
            services, network.sockets, handling.handlers, fetchers, network.request_log, context.moved_clock
        )
        self.server.add_view("/live.json", self.view.page)
        add_live_page(self.server)
        registry.gauge(catalogue.BROKER_STATE, lambda: self._lifecycle.state)
        if context.page is None:  # else the process registers itself
            process.register(registry)
        register_queues(registry, network.sockets.throttled)
        register_exempt(registry, network.client_quotas)
        broker_metrics.register(services, link.forwarding.queue_size, network.request_log.metrics)
        self.lag_exporter = LagExporter(
            registry,
            services.metadata_cache,
            context.clock,
            context.broker_id,
            config.inter_broker_listener_name,
            context.connect,
        )

    def readiness(self) -> Page:
        """Return whether clients can use this broker now. (/healthz only needs the process to be alive.)"""
        state = self._lifecycle.state
        return readiness(state.name, is_ready=state == BrokerState.RUNNING)
