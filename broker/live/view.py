"""A broker's /live.json: every part, put together.

Threads: the page's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas import __version__
from barnabas.broker.apis.table import TABLE
from barnabas.broker.live import groups, network, partitions
from barnabas.broker.live.elsewhere import Elsewhere
from barnabas.broker.live.look import Look, Section, json_page, told
from barnabas.broker.live.network import Rooms
from barnabas.broker.live.peers import peers
from barnabas.broker.live.requests import RequestViews
from barnabas.broker.live.waiting import parked, purgatories
from barnabas.common.live_shape import SCHEMA, BrokerLive, Node

if TYPE_CHECKING:
    from barnabas.broker.broker_server import BrokerServer
    from barnabas.common.clock import Clock
    from barnabas.metrics.http import Page


class BrokerView:
    """Looks into a broker that has been built."""

    def __init__(self, server: BrokerServer, clock: Clock) -> None:
        views = RequestViews(TABLE, server.request_log)
        rooms = Rooms(server.sockets, server.handlers, views, server.registry)
        manager, groups_of, transactions_of = (
            server.replica_manager,
            server.group_coordinator,
            server.transaction_coordinator,
        )
        elsewhere = Elsewhere(groups_of, transactions_of)
        all_purgatories = server.all_purgatories()
        self._server = server  # fixed before start
        self._clock = clock  # fixed before start
        self._started_ms = clock.monotonic_ms()  # fixed before start
        self._version = __version__  # fixed before start
        self._sections: dict[str, Section] = {  # fixed before start
            "schema": lambda _look: SCHEMA,
            "at_ms": lambda look: look.wall_ms,
            "node": self._node,
            **network.sections(rooms),
            "purgatories": lambda look: purgatories(all_purgatories, views, look),
            "elsewhere": lambda look: parked(network.in_progress(rooms), elsewhere.explain, views, look),
            "requests": views.done,
            "partitions": lambda look: partitions.partitions(manager, server.fetchers, look),
            "fetchers": lambda _look: partitions.fetchers(server.fetchers, server.registry),
            "groups": lambda look: groups.groups(groups_of, look),
            "transactions": lambda look: groups.transactions(transactions_of, look),
        }

    def look(self, query: Mapping[str, str]) -> BrokerLive:
        """What is in the broker now, as far as the query asks for it (then keys are missing)."""
        answer: BrokerLive = told(self._sections, Look.of(query, self._clock))
        return answer

    def page(self, query: Mapping[str, str]) -> Page:
        """The same as a page."""
        return json_page(self.look(query))

    def _node(self, look: Look) -> Node:
        server = self._server
        return {
            "id": server.broker_id,
            "role": "broker",
            "state": server.lifecycle.state.name.lower(),
            "epoch": server.lifecycle.epoch,
            "cluster_id": server.cluster_id,
            "controller_id": server.metadata_cache.snapshot.controller_id,
            "version": self._version,
            "up_ms": look.now_ms - self._started_ms,
            "peers": peers(server.config.barnabas_live_peers, "broker", server.broker_id),
        }
