"""The network layer put together: listeners, their acceptors and processors, and the channel to the handlers.

Each listener has one acceptor and `num.network.threads` processors; all share one request queue. Broker and controller
use the same class: it knows nothing of APIs.

Life cycle: build (every port is opened, so that a taken port is an error at start) -> `start` -> `begin_shutdown`
(accept and read no more) -> the handlers end -> `shutdown` (send what is answered, close).

Threads: main builds, starts and stops; dynamic configuration calls `resize` and `reconfigure`.
Source: Kafka's SocketServer (4.3). Different: unless socket.listen.backlog.size is configured, 1024 connections may
wait in the backlog, not Kafka's 50. Another thread may hold the interpreter's lock for milliseconds, in which none is
accepted. A client that finds the backlog full gets no answer and retries a second later.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.acceptor import Acceptor
from barnabas.broker.network.busy_poll import BusyPollTurn
from barnabas.broker.network.connection_quotas import UNLIMITED, ConnectionQuotas
from barnabas.broker.network.connections import HANDSHAKE_TIMEOUT_MS, HANDSHAKES_MAX, INBOX_SIZE, ListenerSettings
from barnabas.broker.network.memory_pool import MemoryPool
from barnabas.broker.network.network_metrics import ProcessorMetrics, register_accept_rates
from barnabas.broker.network.sasl.listeners import SaslListeners
from barnabas.broker.network.sasl.server_authenticator import ListenerSasl
from barnabas.broker.network.sasl.sources import SaslSources
from barnabas.broker.network.secure.certificate_review import CertificateReview
from barnabas.broker.network.unauthenticated.share import Share
from barnabas.broker.processors import Processor
from barnabas.broker.quotas.rates import MS_PER_S
from barnabas.broker.quotas.rates import Window as RateWindow
from barnabas.broker.request_channel import RequestChannel, parallel_threads
from barnabas.common import net
from barnabas.common.clock import NS_PER_MS, NS_PER_S, NS_PER_US
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import PLAINTEXT, SSL_KEYS, TLS_PROTOCOLS, base_name, limit_of_host
from barnabas.metrics.meters import Window
from barnabas.metrics.table import catalogue
from barnabas.security.tls.endpoints import TlsEndpoint, TlsEndpoints

if TYPE_CHECKING:
    from barnabas.broker.network.connection import Connection
    from barnabas.broker.quotas.client_quotas import ClientQuotas
    from barnabas.broker.requests.request_log import RequestLog
    from barnabas.common.clock import Clock
    from barnabas.config import Config
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.network")

BACKLOG_KEY = "socket.listen.backlog.size"
BACKLOG_DEFAULT = 1024
NO_POOL_BYTES = 2**63 - 1
# Of one core, for clients that are not authenticated, while requests of others are there (network/unauthenticated/).
UNAUTHENTICATED_PERCENT = 5
ACCEPT_PERCENT = 5
ACCEPT_PORTION_NS = NS_PER_MS


class Listener(Protocol):
    """A configured listener (barnabas.config.listeners)."""

    @property
    def name(self) -> str:
        """The listener's name."""

    @property
    def security_protocol(self) -> str:
        """The security protocol, such as PLAINTEXT."""

    @property
    def host(self) -> str:
        """The host to bind to; "" for all interfaces."""

    @property
    def port(self) -> int:
        """The port to bind to; 0 for any free one."""


class SocketServer:
    """All listeners of a process."""

    def __init__(
        self,
        listeners: Iterable[Listener],
        config: Config,
        channel: RequestChannel,
        request_log: RequestLog,
        registry: Registry,
        clock: Clock,
        *,
        thread_prefix: str = "data-plane",
        inter_broker_listener: str | None = None,
        client_quotas: ClientQuotas | None = None,
        tls: TlsEndpoints | None = None,
        sasl: SaslSources | None = None,
    ) -> None:
        # Fixed before start.
        self.channel = channel
        self._config = config
        self._request_log = request_log
        self._registry = registry
        self._clock = clock
        self._thread_prefix = thread_prefix
        self._inter_broker_listener = inter_broker_listener
        self._logins = None if sasl is None else SaslListeners(sasl, config, clock)
        self._client_quotas = client_quotas
        listeners = list(listeners)
        self._has_inter_broker_listener = any(listener.name == inter_broker_listener for listener in listeners)
        self._tls = TlsEndpoints(config.originals, clock.wall_ms) if tls is None else tls
        for listener in listeners:  # before any port is opened: an unusable certificate ends the start
            self._endpoint(listener)
        self._review: CertificateReview | None = None  # made by `start`
        self.quotas = ConnectionQuotas(
            clock,
            max_connections=config.max_connections,
            max_per_ip=config.max_connections_per_ip,
            per_ip_overrides=parse_overrides(config.max_connections_per_ip_overrides),
            max_creation_rate=config.max_connection_creation_rate,
            inter_broker_listener=inter_broker_listener,
            window=RateWindow(config.quota_window_num, config.quota_window_size_seconds * MS_PER_S),
        )
        pool_bytes = config.queued_max_request_bytes
        self._busy_poll = BusyPollTurn(config.barnabas_busy_poll_max_us * NS_PER_US)
        self._pool = MemoryPool(pool_bytes, clock.monotonic_ns) if pool_bytes > 0 else None
        self._share = Share(UNAUTHENTICATED_PERCENT, channel.requests, clock.monotonic_ns)
        self._accept_share = Share(ACCEPT_PERCENT, channel.requests, clock.monotonic_ns, portion_ns=ACCEPT_PORTION_NS)
        self._processor_ids = itertools.count()
        self._lock = threading.Lock()  # a start of a listener is over before the shutdown begins
        self._held: list[Acceptor] = []  # guarded by: _lock; acceptors that wait for `admit_clients`
        self.acceptors: dict[str, Acceptor] = {}  # by listener name
        try:
            for listener in listeners:
                self._add_listener(listener)
        except (OSError, ConfigError):
            self.shutdown()
            raise
        self._register_gauges()

    def start(self, *, holds_clients: bool = False) -> None:
        """Start the processors and accept connections.

        With `holds_clients` the listeners for clients wait for `admit_clients`. A single listener for all, and one for
        nodes with TLS or SASL, waits for that or `admit_nodes`. Their sockets are bound already, so clients connect and
        wait.
        """
        if self._logins is not None:
            self._logins.start()
        if any(base_name(name) in SSL_KEYS for name in self._config.originals):
            self._review = CertificateReview(self._tls, self._config.barnabas_ssl_review_interval_ms)
            self._review.start()
        with self._lock:
            for acceptor in self.acceptors.values():
                is_plain = acceptor.security_protocol == PLAINTEXT
                is_for_nodes = len(self.acceptors) > 1 and not self._is_for_clients(acceptor.listener_name)
                if holds_clients and not (is_plain and is_for_nodes):
                    self._held.append(acceptor)
                else:
                    self._start(acceptor)

    def admit_clients(self) -> None:
        """Accept connections on the listeners that `start` has held back; from any thread.

        What was set at run time has been applied before.
        """
        self._tls.settle()
        with self._lock:
            held, self._held = self._held, []
            for acceptor in held:
                self._start(acceptor)

    def admit_nodes(self) -> None:
        """Accept connections on the listeners that nodes use too and `start` has held back; from any thread."""
        with self._lock:
            held, self._held = self._held, []
            for acceptor in held:
                if self._is_for_clients(acceptor.listener_name):
                    self._held.append(acceptor)
                else:
                    self._start(acceptor)

    def _start(self, acceptor: Acceptor) -> None:
        acceptor.start()
        log.info("listening on port %d for listener %s", acceptor.port, acceptor.listener_name)

    def port(self, listener_name: str) -> int:
        """Return the port that a listener has, also when its configured port was 0."""
        return self.acceptors[listener_name].port

    def begin_shutdown(self) -> None:
        """Accept no more connections and read no more requests."""
        with self._lock:
            self._held = []
        self.quotas.close()
        if self._logins is not None:
            self._logins.stop()
        for acceptor in self.acceptors.values():
            acceptor.begin_shutdown()
        for processor in self.processors():
            processor.stop_reading()

    def shutdown(self) -> None:
        """End all threads and close all connections; call it after the handlers have ended."""
        self.begin_shutdown()
        self.channel.close()
        if self._review is not None:
            self._review.shutdown()
        for acceptor in self.acceptors.values():
            acceptor.join()
        processors = self.processors()
        for processor in processors:
            processor.begin_shutdown()
        for processor in processors:
            self._end(processor)

    def resize(self, processors_per_listener: int) -> None:
        """Change the number of processors of each listener."""
        for acceptor in self.acceptors.values():
            self._resize(acceptor, processors_per_listener)

    def check(self, changed: Config) -> None:
        """Raise ConfigError if the settings of TLS and SASL of a changed config could not be applied."""
        self._tls.check(changed.originals)
        if self._logins is not None:
            self._logins.check(changed)

    def reconfigure(self) -> None:
        """Apply the limits of connections and the numbers of processors that are in force.

        The connections of surplus processors are closed; their clients reconnect.
        """
        config = self._config
        self.quotas.update(
            max_connections=config.max_connections,
            max_per_ip=config.max_connections_per_ip,
            per_ip_overrides=parse_overrides(config.max_connections_per_ip_overrides),
            max_creation_rate=config.max_connection_creation_rate,
        )
        for name, acceptor in self.acceptors.items():
            limits = listener_overrides(config.current, name)
            self.quotas.update_listener(
                name,
                int(limits.get("max.connections", UNLIMITED)),
                int(limits.get("max.connection.creation.rate", UNLIMITED)),
            )
            self._resize(acceptor, int(limits.get("num.network.threads", config.num_network_threads)))

    def reconfigure_security(self) -> None:
        """Let new connections use the settings of TLS and SASL in force. Waits for no thread, so a push may do it."""
        self._tls.reconfigure(self._config.current)
        if self._logins is not None:
            self._logins.reconfigure()

    def _resize(self, acceptor: Acceptor, count: int) -> None:
        for processor in acceptor.resize(count):
            processor.begin_shutdown()
            self._end(processor)

    def processors(self) -> list[Processor]:
        """Return all processors, in order of listeners."""
        return [processor for acceptor in self.acceptors.values() for processor in acceptor.processors]

    def throttled(self) -> list[Connection]:
        """Return the connections that wait because of a quota; from any thread."""
        return [connection for processor in self.processors() for connection in processor.throttled()]

    def _add_listener(self, listener: Listener) -> None:
        config = self._config
        limits = listener_overrides(config.originals, listener.name)
        sasl = self._make_sasl(listener)
        server = net.listen(listener.host, listener.port, backlog(config), config.socket_receive_buffer_bytes)
        self.quotas.add_listener(
            listener.name,
            int(limits.get("max.connections", UNLIMITED)),
            int(limits.get("max.connection.creation.rate", UNLIMITED)),
        )
        acceptor = Acceptor(
            server,
            listener.name,
            listener.security_protocol,
            self.quotas,
            self._clock,
            self._registry.meter(catalogue.ACCEPTOR_BLOCKED_PERCENT, listener=listener.name),
            lambda: self._make_processor(listener, sasl),
            thread_prefix=self._thread_prefix,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            connections_per_processor=config.barnabas_connections_per_processor,
            filled_together=parallel_threads(len(os.sched_getaffinity(0))),
            share=None if listener.security_protocol == PLAINTEXT else self._accept_share,
        )
        self.acceptors[listener.name] = acceptor
        acceptor.resize(int(limits.get("num.network.threads", config.num_network_threads)))

    def _make_sasl(self, listener: Listener) -> ListenerSasl | None:
        if not listener.security_protocol.startswith("SASL_"):
            return None
        assert self._logins is not None, "the process has no credentials"
        return self._logins.add(listener.name)

    def _make_processor(self, listener: Listener, sasl: ListenerSasl | None) -> Processor:
        processor_id = next(self._processor_ids)
        tls = self._endpoint(listener)
        config = self._config
        metrics = ProcessorMetrics(self._registry, self._clock, listener.name, processor_id, self._request_log.metrics)
        processor = Processor(
            processor_id,
            f"{self._thread_prefix}-kafka-network-thread-{self._config.node_id}-"
            f"ListenerName({listener.name})-{listener.security_protocol}-{processor_id}",
            ListenerSettings(
                listener.name,
                listener.security_protocol,
                frame_size_max=self._config.socket_request_max_bytes,
                idle_ms_max=self._config.connections_max_idle_ms,
                is_for_clients=self._is_for_clients(listener.name),
                busy_poll=self._busy_poll,
                inbox_size=max(INBOX_SIZE, self._config.barnabas_connections_per_processor),
                sasl=sasl,
                share=None if listener.security_protocol == PLAINTEXT else self._share,
                tls=tls,
                handshakes_max=HANDSHAKES_MAX if tls is None else config.barnabas_ssl_handshakes_max,
                handshake_timeout_ms=HANDSHAKE_TIMEOUT_MS if tls is None else config.barnabas_ssl_handshake_timeout_ms,
            ),
            self.channel,
            self.quotas,
            metrics,
            self._request_log,
            self._clock,
            self._pool,
            self._client_quotas,
        )
        self.channel.add_processor(processor_id, processor.responses)
        self._registry.gauge(catalogue.RESPONSE_QUEUE_SIZE, processor.responses.qsize, processor=processor_id)
        self._registry.gauge(catalogue.PROCESSOR_INBOX_SIZE, processor.inbox.qsize, networkProcessor=processor_id)
        self._registry.gauge(
            catalogue.PROCESSOR_INBOX_CAPACITY, lambda: processor.inbox.maxsize, networkProcessor=processor_id
        )
        return processor

    def _endpoint(self, listener: Listener) -> TlsEndpoint | None:
        """Return the TLS of a listener; None if it has none. Raises ConfigError."""
        if listener.security_protocol not in TLS_PROTOCOLS:
            return None
        is_between_nodes = listener.name == self._inter_broker_listener
        return self._tls.listener(listener.name, listener.security_protocol, is_between_nodes=is_between_nodes)

    def _is_for_clients(self, listener_name: str) -> bool:
        """Return whether brokers and controllers use another listener; a single listener is for all."""
        return self._has_inter_broker_listener and listener_name != self._inter_broker_listener

    def _end(self, processor: Processor) -> None:
        processor.join()
        self.channel.remove_processor(processor.id)
        self._registry.remove(catalogue.RESPONSE_QUEUE_SIZE, processor=processor.id)
        self._registry.remove(catalogue.PROCESSOR_INBOX_SIZE, networkProcessor=processor.id)
        self._registry.remove(catalogue.PROCESSOR_INBOX_CAPACITY, networkProcessor=processor.id)
        processor.metrics.remove()

    def _register_gauges(self) -> None:
        registry, channel = self._registry, self.channel
        registry.gauge(catalogue.REQUEST_QUEUE_SIZE, channel.request_queue_size)
        registry.gauge(catalogue.REQUEST_QUEUE_CAPACITY, lambda: channel.requests.maxsize)
        registry.gauge(catalogue.RESPONSE_QUEUE_SIZE, channel.response_queue_size)
        registry.gauge(catalogue.NETWORK_PROCESSOR_AVG_IDLE_PERCENT, self._idle_share)
        registry.gauge(
            catalogue.EXPIRED_CONNECTIONS_KILLED_COUNT,
            lambda: sum(processor.metrics.expired_count for processor in self.processors()),
        )
        registry.gauge(catalogue.MAX_CONNECTIONS, lambda: self._config.max_connections)
        self._register_pool_gauges()
        for endpoint in self._tls.all():
            registry.gauge(
                catalogue.TLS_CERTIFICATE_SECONDS_LEFT,
                partial(self._tls.seconds_left, endpoint.name),
                listener=endpoint.name,
            )
            registry.gauge(catalogue.TLS_HANDSHAKES, partial(self._handshakes, endpoint.name), listener=endpoint.name)
        for name in self.acceptors:
            registry.gauge(catalogue.ACCEPT_THROTTLE_TIME, partial(self.quotas.throttle_ms, name), listener=name)
            registry.gauge(
                catalogue.ADDRESS_ACCEPT_THROTTLE_TIME, partial(self.quotas.address_throttle_ms, name), listener=name
            )
        register_accept_rates(registry, {name: partial(_accepted, a) for name, a in self.acceptors.items()})

    def _register_pool_gauges(self) -> None:
        registry, pool = self._registry, self._pool
        if pool is None:  # as in Kafka: an unlimited pool reports nothing used
            registry.gauge(catalogue.MEMORY_POOL_AVAILABLE, lambda: NO_POOL_BYTES)
            for row in (
                catalogue.MEMORY_POOL_USED,
                catalogue.MEMORY_POOL_DEPLETED_TIME,
                catalogue.MEMORY_POOL_DEPLETED_SHARE,
            ):
                registry.gauge(row, lambda: 0)
            return
        share = Window(registry.now_s())
        registry.gauge(catalogue.MEMORY_POOL_AVAILABLE, pool.left_bytes)
        registry.gauge(catalogue.MEMORY_POOL_USED, pool.used_bytes)
        registry.gauge(catalogue.MEMORY_POOL_DEPLETED_TIME, lambda: pool.depleted_ns() // NS_PER_MS)
        registry.gauge(
            catalogue.MEMORY_POOL_DEPLETED_SHARE,
            lambda: share.rate(pool.depleted_ns() / NS_PER_S, registry.now_s()),
        )

    def _handshakes(self, listener_name: str) -> int:
        return sum(processor.handshakes() for processor in self.acceptors[listener_name].processors)

    def _idle_share(self) -> float:
        shares = [processor.metrics.idle.share() for processor in self.processors()]
        return sum(shares) / len(shares) if shares else 1.0


def _accepted(acceptor: Acceptor) -> int:
    return sum(processor.metrics.created_count for processor in acceptor.processors)


def backlog(config: Config) -> int:
    """Return how many connections may wait to be accepted: the configured number, or our own default."""
    if BACKLOG_KEY in config.originals:
        return int(config.socket_listen_backlog_size)
    return max(BACKLOG_DEFAULT, int(config.socket_listen_backlog_size))


def parse_overrides(value: str | Mapping[str, int] | Iterable[str] | None) -> dict[str, int]:
    """Parse max.connections.per.ip.overrides: `host:limit,host:limit`, a list of these, or a mapping."""
    if isinstance(value, Mapping):
        return {str(host): int(limit) for host, limit in value.items()}
    items = value.split(",") if isinstance(value, str) else list(value or ())
    overrides: dict[str, int] = {}
    for item in items:
        if item.strip():
            host, limit = limit_of_host(item)
            overrides[host] = int(limit)
    return overrides


def listener_overrides(texts: Mapping[str, str], listener_name: str) -> Mapping[str, str]:
    """Return the keys set for one listener only (listener.name.<name in lower case>.<key>), without their prefix."""
    prefix = f"listener.name.{listener_name.lower()}."
    return {key[len(prefix) :]: value for key, value in texts.items() if key.startswith(prefix)}
