"""Acceptors, processors, the request queue and the handlers: the path of a request through the process.

Controllers report the same fields: their network layer is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.live.requests import subject
from barnabas.broker.quotas.limits import CONTROLLER_MUTATION_RATE
from barnabas.broker.quotas.throttle import UNTHROTTLED, Throttle
from barnabas.common.clock import NS_PER_MS
from barnabas.common.pages.phrases import count

if TYPE_CHECKING:
    from barnabas.broker import handlers as threads
    from barnabas.broker import processors as network
    from barnabas.broker.live.look import Look, Section
    from barnabas.broker.live.requests import RequestViews
    from barnabas.broker.network.connection import Connection
    from barnabas.broker.requests.request import Request
    from barnabas.broker.socket_server import SocketServer
    from barnabas.common.pages.live_shape import Acceptor, Handler, Handlers, Listed, Processor, RequestQueue, Throttled
    from barnabas.metrics.registry import Registry


class NetworkLayer(NamedTuple):
    """The parts of a process's network layer."""

    sockets: SocketServer
    handlers: threads.HandlerPool
    views: RequestViews
    registry: Registry


def sections(layer: NetworkLayer) -> dict[str, Section]:
    """Return the sections of every process's network layer, in the order of the picture."""
    return {
        "acceptors": lambda _look: acceptors(layer),
        "processors": lambda look: processors(layer, look),
        "throttled": lambda look: throttled(layer, look),
        "request_queue": lambda look: request_queue(layer, look),
        "handlers": lambda look: handlers(layer, look),
    }


def acceptors(layer: NetworkLayer) -> list[Acceptor]:
    """Return every listener's acceptor."""
    found: list[Acceptor] = []
    for name, acceptor in layer.sockets.acceptors.items():
        processors = acceptor.processors
        found.append(
            {
                "listener": name,
                "security_protocol": acceptor.security_protocol,
                "port": acceptor.port,
                "connections": sum(processor.metrics.connection_count for processor in processors),
                "connections_accepted": sum(processor.metrics.created_count for processor in processors),
                "processors": [processor.id for processor in processors],
            }
        )
    return found


def processors(layer: NetworkLayer, look: Look) -> list[Processor]:
    """Return every network thread, with its connections and its response queue."""
    finished: dict[int, int] = {}
    for (ident, _), number in layer.views.finished().items():
        finished[ident] = finished.get(ident, 0) + number
    return [
        _processor(layer, processor, finished.get(processor.metrics.thread_ident or 0, 0), look)
        for processor in layer.sockets.processors()
    ]


def _processor(layer: NetworkLayer, processor: network.Processor, finished: int, look: Look) -> Processor:
    connections = processor.connections()
    sending = [c.request for c in connections if c.outgoing is not None and c.request is not None]
    queueing = processor.queueing()
    requests = layer.sockets.channel.requests
    answered = processor.responses.waiting()
    views = layer.views
    found: Processor = {
        "id": processor.id,
        "listener": processor.listener_name,
        "state": "working",
        "doing": "reads, queues and sends",
        "idle": round(processor.metrics.idle.share(), 4),
        "inbox": processor.inbox.qsize(),
        "inbox_capacity": processor.inbox.maxsize,
        "connections": len(connections),
        "muted": sum(connection.is_muted for connection in connections),
        "requests": finished,
        "response_queue": look.some([views.in_progress(r, look) for r in answered[: look.limit]], len(answered)),
        "sending": look.some([views.in_progress(r, look) for r in sending[: look.limit]], len(sending)),
    }
    if processor.metrics.idle.is_asleep():
        found["state"], found["doing"] = "sleeping", "sleeps in its selector"
        if sending:
            found["doing"] = f"waits for {count(len(sending), 'client')} to read"
    elif queueing and 0 < requests.maxsize <= requests.qsize():
        found["state"] = "waiting_for_room"
        found["doing"] = f"waits for space in the request queue for {count(queueing, 'request')}"
    return found


def throttled(layer: NetworkLayer, look: Look) -> Listed:
    """Return the connections that wait because of a quota, those that wait longest first."""
    connections = layer.sockets.throttled()
    connections.sort(key=lambda connection: -connection.muted_until_ns)
    return look.some([_throttled(c, look) for c in connections[: look.limit]], len(connections))


def _throttled(connection: Connection, look: Look) -> Throttled:
    context, throttle = connection.context, connection.throttle or UNTHROTTLED
    left_ms = round(max(0, connection.muted_until_ns - look.now_ns) / NS_PER_MS, 3)
    return {
        "connection": context.connection_id,
        "listener": context.listener_name,
        "principal": context.principal,
        "quota": throttle.quota,
        "user": throttle.user,
        "client_id": throttle.client_id,
        "limit": throttle.limit,
        "observed": throttle.observed,
        "left_ms": left_ms,
        "sentence": _reason(throttle, context.principal, left_ms),
    }


def _reason(throttle: Throttle, principal: str, left_ms: float) -> str:
    """Return until when a client waits, and why."""
    whose = [f"{kind} {name}" for kind, name in (("user", throttle.user), ("client id", throttle.client_id)) if name]
    until = f"{' with '.join(whose) or principal} goes on in {left_ms / 1000:.1f} s"
    if not throttle.quota:
        return f"{until}: a quota of the controller, or an injected fault, says so"
    if throttle.quota == CONTROLLER_MUTATION_RATE:
        return f"{until}: it is {-throttle.observed:.0f} partitions ahead of its {throttle.quota}, {throttle.limit:g}"
    return f"{until}: its {throttle.quota} is {throttle.observed:.10g}, and its limit {throttle.limit:.10g}"


def request_queue(layer: NetworkLayer, look: Look) -> RequestQueue:
    """Return the requests that wait for a handler."""
    requests = layer.sockets.channel.requests
    waiting = requests.waiting()
    return {
        "capacity": requests.maxsize,
        "total": len(waiting),
        "items": [layer.views.in_progress(request, look) for request in waiting[: look.limit]],
        "blocked_processors": requests.blocked_putters(),
    }


def handlers(layer: NetworkLayer, look: Look) -> Handlers:
    """Return every handler with its activity."""
    pool = layer.handlers
    now = pool.handlers()
    with layer.registry.scraping:
        idle = pool.idle_share(layer.registry.now_s())
    return {
        "total": len(now),
        "sleeping": layer.sockets.channel.requests.sleeping_handlers(),
        "idle": round(idle, 4),
        "items": [_handler(layer, handler, look) for handler in now[: look.limit]],
    }


def _handler(layer: NetworkLayer, handler: threads.Handler, look: Look) -> Handler:
    request = handler.request
    if request is None:
        since_ms = look.ms_since(handler.since_ns)
        return {
            "id": handler.id,
            "state": "idle",
            "doing": "waits for a request",
            "since_ms": since_ms,
            "request": None,
        }
    shape = layer.views.in_progress(request, look)
    return {
        "id": handler.id,
        "state": "busy",
        "doing": f"{_verb(request)} {subject(shape)}",
        "since_ms": look.ms_since(request.dequeued_ns) if request.dequeued_ns else 0.0,
        "request": shape,
    }


def _verb(request: Request) -> str:
    """Return what a handler does with its request, as a verb."""
    if request.api is None:
        return "decodes"
    if request.api_local_done_ns == 0:
        return "handles"
    return "completes operations that waited for" if request.moved else "answers"


def in_progress(layer: NetworkLayer) -> list[Request]:
    """Return every request in progress: one of each connection, with those that arrived in the same run."""
    connections = [connection for processor in layer.sockets.processors() for connection in processor.connections()]
    firsts = [first for connection in connections if (first := connection.request or connection.postponed) is not None]
    return [request for first in firsts for request in first.run()]
