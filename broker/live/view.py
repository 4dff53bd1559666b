"""A broker's /live.json: all its sections.

Threads: those of the page's visitors, one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas import __version__
from barnabas.broker.apis.table import TABLE
from barnabas.broker.live import groups, network, partitions
from barnabas.broker.live.clients import clients
from barnabas.broker.live.elsewhere import Elsewhere
from barnabas.broker.live.look import Look, Section, collect, json_page
from barnabas.broker.live.network import NetworkLayer
from barnabas.broker.live.peers import peers
from barnabas.broker.live.requests import RequestViews
from barnabas.broker.live.shares import shares
from barnabas.broker.live.waiting import parked, purgatories
from barnabas.common.pages.live_constants import SCHEMA

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.handlers import HandlerPool
    from barnabas.broker.replication.fetching.fetchers import ReplicaFetchers
    from barnabas.broker.requests.request_log import RequestLog
    from barnabas.broker.socket_server import SocketServer
    from barnabas.common.clock import Clock
    from barnabas.common.pages.live_shape import BrokerLive, Node
    from barnabas.common.pages.page import Page


class BrokerView:
    """Shows the state of a broker that has been built."""

    def __init__(
        self,
        services: Services,
        sockets: SocketServer,
        handlers: HandlerPool,
        fetchers: ReplicaFetchers,
        request_log: RequestLog,
        moved_clock: Clock | None = None,
    ) -> None:
        views = RequestViews(TABLE, request_log)
        layer = NetworkLayer(sockets, handlers, views, services.registry)
        elsewhere = Elsewhere(services.group_coordinator, services.transaction_coordinator)
        parked_in = services.purgatories
        all_purgatories = (
            parked_in.produce,
            parked_in.fetch,
            parked_in.share_fetch,
            parked_in.delete_records,
            parked_in.topic,
        )
        self._services = services  # fixed before start
        self._moved_clock = services.clock if moved_clock is None else moved_clock  # fixed before start
        self._started_ms = services.clock.monotonic_ms()  # fixed before start
        self._version = __version__  # fixed before start
        self._sections: dict[str, Section] = {  # fixed before start
            "schema": lambda _look: SCHEMA,
            "at_ms": lambda look: look.wall_ms - look.clock_offset_ms,
            "clock_offset_ms": lambda look: look.clock_offset_ms,
            "node": self._node,
            **network.sections(layer),
            "purgatories": lambda look: purgatories(all_purgatories, views, look),
            "elsewhere": lambda look: parked(network.in_progress(layer), elsewhere.explain, views, look),
            "requests": views.done,
            "partitions": lambda look: partitions.partitions(services.replica_manager, fetchers, look),
            "fetchers": lambda _look: partitions.fetchers(fetchers, services.registry),
            "groups": lambda look: groups.groups(services.group_coordinator, look),
            "transactions": lambda look: groups.transactions(services.transaction_coordinator, look),
            "shares": lambda look: shares(services.share_partitions, look),
            "clients": lambda look: clients(services.client_metrics.receiver.store, services.registry, look),
        }

    def look(self, query: Mapping[str, str]) -> BrokerLive:
        """Return the present state of the broker, with the keys that the query asks for."""
        answer: BrokerLive = collect(self._sections, Look.of(query, self._services.clock, self._moved_clock))
        return answer

    def page(self, query: Mapping[str, str]) -> Page:
        """Return the same as a page."""
        return json_page(self.look(query))

    def _node(self, look: Look) -> Node:
        services = self._services
        return {
            "id": services.broker_id,
            "role": "broker",
            "state": services.lifecycle.state.name.lower(),
            "epoch": services.lifecycle.epoch,
            "cluster_id": services.cluster_id,
            "controller_id": services.metadata_cache.snapshot.controller_id,
            "version": self._version,
            "up_ms": look.now_ms - self._started_ms,
            "peers": peers(services.config.barnabas_live_peers, "broker", services.broker_id),
        }
