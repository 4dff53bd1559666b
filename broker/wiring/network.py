"""Network: the listening sockets of a broker, its request queues and its request log.

The sockets are bound when this part is built. So a taken port ends the start early, and the ports that the system chose
are known before the broker registers.

Threads: main builds and stops it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from barnabas.broker.apis.table import TABLE
from barnabas.broker.network.sasl.sources import SaslSources
from barnabas.broker.quotas.callback import QuotaPlugin
from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.request_channel import RequestChannel
from barnabas.broker.requests.request_log import RequestLog
from barnabas.broker.socket_server import SocketServer
from barnabas.broker.wiring.context import StartError
from barnabas.common.processes.host_name import own_host_name
from barnabas.config.listeners import PLAINTEXT
from barnabas.metrics.request_metrics import RequestMetrics
from barnabas.security.tls.endpoints import TlsEndpoints

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.metrics.registry import Registry
    from barnabas.security.tls.loaded import ExpiryLog

CONTROL_PLANE_REQUESTS_MAX: Final = 20  # as in Kafka


class Network:
    """See the module."""

    def __init__(
        self,
        config: Config,
        registry: Registry,
        clock: Clock,
        expiry: ExpiryLog | None = None,
        tls_set_before: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`tls_set_before` returns what of TLS was set at run time, as far as an earlier process knew it."""
        self._config = config  # fixed before start
        self.channel = RequestChannel(config.queued_max_requests, CONTROL_PLANE_REQUESTS_MAX)
        self.request_log = RequestLog(
            RequestMetrics(registry), registry, config.barnabas_slow_request_ms, table=TABLE, clock=clock
        )
        self.client_quotas = ClientQuotas.of(config, clock, QuotaPlugin.of(config, clock))
        self.tls = TlsEndpoints(
            config.originals, clock.wall_ms, awaits_settings=True, expiry=expiry, set_before=tls_set_before
        )
        self.sasl = SaslSources()
        self.sockets = SocketServer(
            config.listeners_parsed,
            config,
            self.channel,
            self.request_log,
            registry,
            clock,
            inter_broker_listener=config.inter_broker_listener_name,
            client_quotas=self.client_quotas,
            tls=self.tls,
            sasl=self.sasl,
        )

    @property
    def needs_security_metadata(self) -> bool:
        """Whether clients cannot be served before the ACLs, users, tokens and settings of TLS have arrived."""
        protocols = {listener.security_protocol for listener in self._config.listeners_parsed}
        return protocols != {PLAINTEXT} or bool(self._config.authorizer_class_name)

    def advertised_listeners(self) -> list[tuple[str, str, int, str]]:
        """Return (name, host, port, security protocol) of each advertised listener; raises StartError.

        An open host or port is filled in. The inter-broker listener is the first: the controller reaches the broker
        there, under any name.
        """
        advertised = []
        for listener in self._config.advertised_listeners_parsed:
            if listener.name not in self.sockets.acceptors:
                raise StartError(f"advertised.listeners names {listener.name}, which listeners does not")
            port = listener.port or self.sockets.port(listener.name)
            advertised.append((listener.name, listener.host or own_host_name(), port, listener.security_protocol))
        return sorted(advertised, key=lambda listener: listener[0] != self._config.inter_broker_listener_name)
