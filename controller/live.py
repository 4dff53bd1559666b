"""A controller's /live.json: its network layer, its event queue, and the brokers that it pushes to.

The shape is `barnabas.common.pages.live_shape.ControllerLive`. The broker's page has the same network sections.

Threads: the metrics server's. It reads single numbers, and objects that the event thread replaces whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from barnabas import __version__
from barnabas.broker.live import network
from barnabas.broker.live.look import Look, Section, collect, json_page
from barnabas.broker.live.network import NetworkLayer
from barnabas.broker.live.peers import peers
from barnabas.broker.live.requests import RequestViews
from barnabas.broker.live.waiting import parked
from barnabas.common.pages.live_constants import SCHEMA
from barnabas.controller.apis.table import TABLE
from barnabas.controller.controller_metrics import leader_id
from barnabas.controller.image import NO_LEADER, Broker, Image

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.handlers import HandlerPool
    from barnabas.broker.requests.request_log import RequestLog
    from barnabas.broker.socket_server import SocketServer
    from barnabas.common.clock import Clock
    from barnabas.common.pages.live_shape import (
        ControllerLive,
        EventQueue,
        Node,
        QuorumChange,
        QuorumLive,
        QuorumMember,
        Reason,
        RegisteredBroker,
    )
    from barnabas.common.pages.page import Page
    from barnabas.controller.controller_metrics import ControllerMetrics
    from barnabas.controller.quorum_controller import QuorumController
    from barnabas.controller.raft.client.status import Entry, Member, RaftStatus
    from barnabas.metrics.registry import Registry


class ControllerView:
    """Shows a controller that has been built; `state()` is the state of its process."""

    def __init__(
        self,
        *,
        controller: QuorumController,
        state: Callable[[], str],
        sockets: SocketServer,
        handlers: HandlerPool,
        metrics: ControllerMetrics,
        registry: Registry,
        request_log: RequestLog,
        clock: Clock,
        moved_clock: Clock | None = None,
        elections: Callable[[], Sequence[Entry]] = tuple,
    ) -> None:
        views = RequestViews(TABLE, request_log)
        layer = NetworkLayer(sockets, handlers, views, registry)
        self._controller = controller  # fixed before start
        self._state = state  # fixed before start
        self._metrics = metrics  # fixed before start
        self._registry = registry  # fixed before start
        self._clock = clock  # fixed before start
        self._moved_clock = moved_clock  # fixed before start
        self._started_ms = clock.monotonic_ms()  # fixed before start
        self._version = __version__  # fixed before start
        self._counted: tuple[Image | None, dict[str, int], Counter[int], Counter[int]] = (
            None, {}, Counter(), Counter()
        )  # owner: the page's thread; (image, its sizes, partitions led by broker, replicas by broker)  # fmt: skip
        self._sections: dict[str, Section] = {  # fixed before start
            "schema": lambda _look: SCHEMA,
            "at_ms": lambda look: look.wall_ms - look.clock_offset_ms,
            "clock_offset_ms": lambda look: look.clock_offset_ms,
            "node": self._node,
            **network.sections(layer),
            "elsewhere": lambda look: parked(network.in_progress(layer), _explain, views, look),
            "requests": views.done,
            "events": self._events,
            "brokers": self._brokers,
            "quorum": lambda look: quorum_view(controller.quorum(), elections(), look.limit),
            "metadata": lambda _look: self._count(controller.committed_image)[0],
        }

    def look(self, query: Mapping[str, str]) -> ControllerLive:
        """Return the state of the controller now; the query may select single keys."""
        answer: ControllerLive = collect(self._sections, Look.of(query, self._clock, self._moved_clock))
        return answer

    def page(self, query: Mapping[str, str]) -> Page:
        """Return the same as a page."""
        return json_page(self.look(query))

    def _node(self, look: Look) -> Node:
        controller = self._controller
        return {
            "id": controller.node_id,
            "role": "controller",
            "state": self._state(),
            "epoch": controller.epoch,
            "cluster_id": controller.cluster_id,
            "controller_id": leader_id(controller),
            "version": self._version,
            "up_ms": look.now_ms - self._started_ms,
            "peers": peers(controller.config.barnabas_live_peers, "controller", controller.node_id),
        }

    def _events(self, look: Look) -> EventQueue:
        loop, metrics = self._controller.loop, self._metrics
        waiting = loop.waiting()
        with self._registry.scraping:
            idle = metrics.idle_ratio()
        return {
            "total": len(waiting),
            "items": [{"name": e.name, "age_ms": look.ms_since(e.enqueued_ns)} for e in waiting[: look.limit]],
            "idle": round(idle, 4),
            "processed": metrics.events_started,
            "deciding": loop.deciding,
        }

    def _brokers(self, look: Look) -> list[RegisteredBroker]:
        image = self._controller.committed_image
        _, leads, holds = self._count(image)
        return [self._broker(image, image.brokers[id_], leads[id_], holds[id_], look) for id_ in sorted(image.brokers)]

    def _broker(self, image: Image, broker: Broker, leads: int, holds: int, look: Look) -> RegisteredBroker:
        manager, pushed = self._controller.channels, self._controller.pushed_offset
        channel = None if manager is None else manager.channels.get(broker.id)
        size, age_ns, failures = (0, 0, 0) if channel is None else channel.backlog()
        first = broker.endpoints[0] if broker.endpoints else None
        return {
            "id": broker.id,
            "epoch": broker.epoch,
            "address": "" if first is None else f"{first.host}:{first.port}",
            "rack": broker.rack,
            "state": "fenced" if broker.is_fenced else "shutting_down" if broker.in_controlled_shutdown else "active",
            "last_heartbeat_ms": max(0, round(self._controller.sessions.contact_age_ms(broker.id, look.now_ms))),
            "push_queue": size,
            "push_age_ms": round(age_ns / 1e6, 3),
            "push_failures": failures,
            "metadata_lag": 0 if manager is None else max(0, pushed - manager.applied_offset(broker)),
            "leads": leads,
            "replicas": holds,
        }

    def _count(self, image: Image) -> tuple[dict[str, int], Counter[int], Counter[int]]:
        """Return the sizes of an image, and the partitions that each broker leads and holds; counted once an image."""
        if self._counted[0] is not image:
            leads: Counter[int] = Counter()
            holds: Counter[int] = Counter()
            total = lacking = 0
            for _, _, partition in image.each_partition():
                total += 1
                lacking += len(partition.isr) < len(partition.replicas)
                leads[partition.leader] += 1
                holds.update(partition.replicas)
            sizes = {
                "offset": image.offset,
                "topics": len(image.topics),
                "partitions": total,
                "offline": leads[NO_LEADER],
                "under_replicated": lacking,
            }
            self._counted = (image, sizes, leads, holds)
        return self._counted[1:]


def quorum_view(status: RaftStatus, elections: Sequence[Entry], limit: int) -> QuorumLive:
    """Return the quorum as this controller sees it."""

    def member(found: Member, role: Literal["voter", "observer"]) -> QuorumMember:
        id_ = found.key.id
        # Why not of others: only the leader knows how far they are.
        is_known = status.role == "leader" and found.end_offset >= 0
        return {
            "id": id_,
            "role": "leader" if id_ == status.leader_id else role,
            "address": found.address,
            "end_offset": found.end_offset,
            "behind": max(0, status.end_offset - found.end_offset) if is_known else -1,
            "fetched_ms": found.fetched_ms,
            "vote": "granted" if id_ in status.granted else "rejected" if id_ in status.rejected else None,
        }

    changes: list[QuorumChange] = [
        {"at_ms": at_ms, "role": what.role, "epoch": what.epoch, "leader": what.leader_id, "reason": what.reason}
        for at_ms, what in reversed(elections)
    ]
    return {
        "role": status.role,
        "epoch": status.epoch,
        "leader": status.leader_id,
        "voted": None if status.voted is None else status.voted.id,
        "high_watermark": status.high_watermark,
        "end_offset": status.end_offset,
        "members": [
            *(member(found, "voter") for found in status.voters),
            *(member(found, "observer") for found in status.observers[:limit]),
        ],
        "changes": changes[:limit],
    }


def _explain(_api: str, _message: object) -> list[Reason]:
    return [{"kind": "decision", "text": "for the event thread to decide"}]
