"""ClientQuotas: the quotas of a broker, and what each request is charged.

Rules
1. While no limit of a kind exists, its manager is None, and nothing is counted.
2. A Produce is charged its size and its thread time when it is answered; with acks=0 only its size. A consumer's Fetch
   is charged its response and its thread time before it is answered. If it is throttled, its response carries no
   records and is not charged. Every other request is charged its thread time.
3. The longer wait counts. The response is sent at once and names the wait; the connection stays muted for as long.
4. Network threads add their time afterwards; it counts for the next request.

Threads: any. `update` is called by one thread at a time, which applies the metadata.
Source: QuotaFactory, KafkaApis, RequestHandlerHelper (Kafka 4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from barnabas.broker.authorization.nodes import is_node_by_listener
from barnabas.broker.quotas.callback import Cluster, QuotaPlugin
from barnabas.broker.quotas.limits import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaTable,
    Table,
)
from barnabas.broker.quotas.managers import RateManager, RequestManager, percent
from barnabas.broker.quotas.rates import MS_PER_S, Window
from barnabas.broker.quotas.throttle import EXEMPT, UNTHROTTLED, Throttle
from barnabas.common.clock import NS_PER_MS, Clock
from barnabas.security.principal import user_name

if TYPE_CHECKING:
    from barnabas.broker.metadata.metadata_cache import MetadataSnapshot
    from barnabas.broker.requests.request import Request
    from barnabas.config.config import Config
    from barnabas.security.values import Limits, QuotaEntity

log = logging.getLogger("barnabas.quotas")

M = TypeVar("M", RateManager, RequestManager)


class ClientQuotas:
    """See the module."""

    def __init__(self, window: Window, clock: Clock, plugin: QuotaPlugin | None = None) -> None:
        self._window = window  # fixed before start
        self._clock = clock  # fixed before start
        self._plugin = plugin  # fixed before start
        # Each replaced whole by `update`.
        self.is_active = False  # whether a Produce or a Fetch is charged
        self.produce: RateManager | None = None
        self.fetch: RateManager | None = None
        self.request: RequestManager | None = None
        if plugin is not None:  # it may limit clients for whom nothing is configured
            self.produce = self._by_plugin(plugin, PRODUCER_BYTE_RATE, self._rates)
            self.fetch = self._by_plugin(plugin, CONSUMER_BYTE_RATE, self._rates)
            self.request = self._by_plugin(plugin, REQUEST_PERCENTAGE, self._thread_time)
            self.is_active = True

    @classmethod
    def of(cls, config: Config, clock: Clock, plugin: QuotaPlugin | None = None) -> ClientQuotas:
        """Return the quotas of a process, with no limits yet."""
        return cls(Window(config.quota_window_num, config.quota_window_size_seconds * MS_PER_S), clock, plugin)

    def update(self, quotas: Mapping[QuotaEntity, Limits]) -> None:
        """Take the limits of all entities. Rates go on where limits of their kind stay."""
        if self._plugin is not None:
            self._plugin.take(quotas, (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE))
            self._ask_again()
            return
        self.produce = self._updated(self.produce, QuotaTable(quotas, PRODUCER_BYTE_RATE), self._rates)
        self.fetch = self._updated(self.fetch, QuotaTable(quotas, CONSUMER_BYTE_RATE), self._rates)
        self.request = self._updated(self.request, QuotaTable(quotas, REQUEST_PERCENTAGE), self._thread_time)
        self.is_active = self.produce is not None or self.fetch is not None or self.request is not None

    def cluster_changed(self, snapshot: MetadataSnapshot) -> None:
        """Show the operator's own class a changed cluster, if there is one."""
        if self._plugin is None:
            return
        leaders = {
            name: {number: partition.leader for number, partition in topic.partitions.items()}
            for name, topic in snapshot.topics.items()
        }
        if self._plugin.take_cluster(Cluster(frozenset(snapshot.brokers), leaders)):
            self._ask_again()

    def close(self) -> None:
        """End the operator's own class, if there is one."""
        if self._plugin is not None:
            self._plugin.close()

    def _by_plugin(self, plugin: QuotaPlugin, key: str, make: Callable[[Table], M]) -> M:
        table = plugin.table(key)
        manager = make(table)
        table.on_reset = manager.ask_again
        return manager

    def _ask_again(self) -> None:
        for manager in (self.produce, self.fetch, self.request):
            if manager is not None:
                manager.ask_again()

    def _updated(self, manager: M | None, table: QuotaTable, make: Callable[[QuotaTable], M]) -> M | None:
        """Return the manager for a table: none for an empty one, the present one if there is one."""
        if manager is None and not table:
            return None
        if manager is None or manager.table != table:
            log.info("client quotas: %s has %d limits now", table.key, len(table))
        if not table:
            return None
        if manager is None:
            return make(table)
        if manager.table != table:
            manager.set_table(table)
        return manager

    def _rates(self, table: Table) -> RateManager:
        return RateManager(table, self._window, self._clock)

    def _thread_time(self, table: Table) -> RequestManager:
        return RequestManager(table, self._window, self._clock)

    def expire(self) -> None:
        """Drop the rates of clients that were not seen for an hour; called from time to time."""
        now_ms = self._clock.monotonic_ms()
        for manager in (self.produce, self.fetch, self.request):
            if manager is not None:
                manager.expire(now_ms)

    # What a request is charged (rule 2)

    def charge(self, request: Request) -> Throttle:
        """Charge a request its thread time."""
        manager = self.request
        if manager is None:
            return UNTHROTTLED
        now_ns = self._clock.monotonic_ns()
        if is_exempt(request):
            manager.count_exempt(_thread_ns(request, now_ns), now_ns // NS_PER_MS)
            return EXEMPT
        throttle = self._time(manager, request, now_ns)
        if throttle.ms:
            manager.note(throttle, now_ns // NS_PER_MS)
        return throttle

    def charge_produce(self, request: Request, *, is_silent: bool) -> Throttle:
        """Charge a Produce; `is_silent` if it has no response (acks=0)."""
        by_size, manager = UNTHROTTLED, self.produce
        now_ns = self._clock.monotonic_ns()
        now_ms = now_ns // NS_PER_MS
        if manager is not None:
            by_size = manager.count(user_name(request.principal), request.client_id or "", request.size_bytes, now_ms)
        if is_silent:
            if self.request is not None:
                self.request.count_exempt(_thread_ns(request, now_ns), now_ms)
            by_time = EXEMPT
        else:
            by_time = self._time(self.request, request, now_ns)
        return self._longer(manager, by_size, by_time, now_ms)

    def charge_fetch(self, request: Request, response_bytes: int, *, is_sent: bool = False) -> Throttle:
        """Charge a consumer's fetch. If it is throttled, its response must carry no records, unless `is_sent`."""
        by_size, manager = UNTHROTTLED, self.fetch
        now_ns = self._clock.monotonic_ns()
        now_ms = now_ns // NS_PER_MS
        by_time = self._time(self.request, request, now_ns)
        if manager is not None:
            user, client_id = user_name(request.principal), request.client_id or ""
            by_size = manager.count(user, client_id, response_bytes, now_ms)
            if not is_sent and (by_size.ms or by_time.ms):
                manager.count_unchecked(user, client_id, -response_bytes, now_ms)
        return self._longer(manager, by_size, by_time, now_ms)

    def fetch_bytes_max(self, request: Request, max_bytes: int) -> int:
        """Return how much a consumer's Fetch may return: more than the window allows would always be throttled."""
        manager = self.fetch
        if manager is None:
            return max_bytes
        return int(min(max_bytes, manager.burst_max(user_name(request.principal), request.client_id or "")))

    def add_network_time(self, request: Request, thread_ns: int) -> None:
        """Add the time that a network thread took to read a request and to send its response (rule 4)."""
        manager = self.request
        if manager is None or request.api is None:
            return
        now_ms = self._clock.monotonic_ms()
        if request.throttle is EXEMPT:
            manager.count_exempt(thread_ns, now_ms)
        else:
            user = user_name(request.principal)
            manager.count_unchecked(user, request.client_id or "", percent(thread_ns), now_ms)

    def _time(self, manager: RequestManager | None, request: Request, now_ns: int) -> Throttle:
        if manager is None:
            return UNTHROTTLED
        value = percent(_thread_ns(request, now_ns))
        return manager.count(user_name(request.principal), request.client_id or "", value, now_ns // NS_PER_MS)

    def _longer(self, manager: RateManager | None, by_size: Throttle, by_time: Throttle, now_ms: int) -> Throttle:
        """Return the longer wait (rule 3), after recording it."""
        if by_size.ms > by_time.ms:
            assert manager is not None
            manager.note(by_size, now_ms)
            return by_size
        if by_time.ms and self.request is not None:
            self.request.note(by_time, now_ms)
        return by_time


def is_exempt(request: Request) -> bool:
    """Return whether a node sent the request on behalf of the cluster: it is never throttled."""
    row = request.api
    if row is None or row.nodes_only is None or request.message is None or not row.nodes_only(request):
        return False
    if is_node_by_listener(request):
        return not request.context.is_for_clients
    return request.access is not None and request.access.is_node


def _thread_ns(request: Request, now_ns: int) -> int:
    """Return how long the handler has worked on a request, so far or until it was parked."""
    return max(0, (request.api_local_done_ns or now_ns) - request.dequeued_ns)
