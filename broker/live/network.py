"""Acceptors, processors, the request queue and the handlers: the way of a request through the process.

A controller is told of alike: its network layer is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.broker.live.requests import subject
from barnabas.common.live_shape import Acceptor, Handler, Handlers, Processor, RequestQueue
from barnabas.common.phrases import count

if TYPE_CHECKING:
    from barnabas.broker import handlers as threads
    from barnabas.broker import processors as network
    from barnabas.broker.live.look import Look, Section
    from barnabas.broker.live.requests import RequestViews
    from barnabas.broker.request_channel import Request
    from barnabas.broker.socket_server import SocketServer
    from barnabas.metrics.registry import Registry


class Rooms(NamedTuple):
    """What of a process there is to look into."""

    sockets: SocketServer
    handlers: threads.HandlerPool
    views: RequestViews
    registry: Registry


def sections(rooms: Rooms) -> dict[str, Section]:
    """What every process tells of its network layer, in the order of the picture."""
    return {
        "acceptors": lambda _look: acceptors(rooms),
        "processors": lambda look: processors(rooms, look),
        "request_queue": lambda look: request_queue(rooms, look),
        "handlers": lambda look: handlers(rooms, look),
    }


def acceptors(rooms: Rooms) -> list[Acceptor]:
    """Every listener's acceptor."""
    told: list[Acceptor] = []
    for name, acceptor in rooms.sockets.acceptors.items():
        processors = acceptor.processors
        told.append(
            {
                "listener": name,
                "security_protocol": acceptor.security_protocol,
                "port": acceptor.port,
                "connections": sum(processor.metrics.connection_count for processor in processors),
                "connections_accepted": sum(processor.metrics.created_count for processor in processors),
                "processors": [processor.id for processor in processors],
            }
        )
    return told


def processors(rooms: Rooms, look: Look) -> list[Processor]:
    """Every network thread, with its connections and its response queue."""
    finished: dict[int, int] = {}
    for (ident, _), number in rooms.views.finished().items():
        finished[ident] = finished.get(ident, 0) + number
    return [
        _processor(rooms, processor, finished.get(processor.metrics.thread_ident or 0, 0), look)
        for processor in rooms.sockets.processors()
    ]


def _processor(rooms: Rooms, processor: network.Processor, finished: int, look: Look) -> Processor:
    connections = processor.connections()
    sending = [c.request for c in connections if c.outgoing is not None and c.request is not None]
    queueing = processor.queueing()
    requests = rooms.sockets.channel.requests
    answered = processor.responses.waiting()
    views = rooms.views
    told: Processor = {
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
        "response_queue": look.some([views.on_its_way(r, look) for r in answered[: look.limit]], len(answered)),
        "sending": look.some([views.on_its_way(r, look) for r in sending[: look.limit]], len(sending)),
    }
    if processor.metrics.idle.is_asleep():
        told["state"], told["doing"] = "sleeping", "sleeps in its selector"
        if sending:
            told["doing"] = f"waits for {count(len(sending), 'client')} to read"
    elif queueing and 0 < requests.maxsize <= requests.qsize():
        told["state"] = "waiting_for_room"
        told["doing"] = f"waits for room in the request queue for {count(queueing, 'request')}"
    return told


def request_queue(rooms: Rooms, look: Look) -> RequestQueue:
    """What waits for a handler."""
    requests = rooms.sockets.channel.requests
    waiting = requests.waiting()
    return {
        "capacity": requests.maxsize,
        "total": len(waiting),
        "items": [rooms.views.on_its_way(request, look) for request in waiting[: look.limit]],
        "blocked_processors": requests.blocked_putters(),
    }


def handlers(rooms: Rooms, look: Look) -> Handlers:
    """Every handler, and what it does."""
    pool = rooms.handlers
    now = pool.handlers()
    with rooms.registry.scraping:
        idle = pool.idle_share(rooms.registry.now_s())
    return {
        "total": len(now),
        "sleeping": rooms.sockets.channel.requests.sleeping_handlers(),
        "idle": round(idle, 4),
        "items": [_handler(rooms, handler, look) for handler in now[: look.limit]],
    }


def _handler(rooms: Rooms, handler: threads.Handler, look: Look) -> Handler:
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
    shape = rooms.views.on_its_way(request, look)
    return {
        "id": handler.id,
        "state": "busy",
        "doing": f"{_verb(request)} {subject(shape)}",
        "since_ms": look.ms_since(request.dequeued_ns) if request.dequeued_ns else 0.0,
        "request": shape,
    }


def _verb(request: Request) -> str:
    """What a handler does with the request in its hand."""
    if request.api is None:
        return "decodes"
    if request.api_local_done_ns == 0:
        return "carries out"
    return "wakes what waited for" if request.moved else "answers"


def in_progress(rooms: Rooms) -> list[Request]:
    """Every request that is anywhere: each connection has one with what came together with it."""
    connections = [connection for processor in rooms.sockets.processors() for connection in processor.connections()]
    firsts = [first for connection in connections if (first := connection.request or connection.postponed) is not None]
    return [request for first in firsts for request in first.run()]
