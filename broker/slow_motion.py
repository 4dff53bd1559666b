"""Slow motion: the stages of a request pause, so that one can watch it travel and queues fill on a laptop.

| key, `barnabas.slow.motion.…` | who pauses | before it | so one sees |
|---|---|---|---|
| `network.ms` | a network thread | queues the requests that it has read in a turn | a busy network thread |
| `request.queue.ms` | a request handler | takes a request that came just now | requests in the request queue |
| `handler.ms` | a request handler | calls the API | what a handler has in hand; with many clients, the queue filling |
| `response.ms` | a network thread | takes what was answered just now | responses in the response queue |
| `fetcher.ms` | a replica fetcher | fetches again | acks=all produces in their purgatory |

Rules
1. A broker that is not in slow motion pays one test of an attribute a turn of a processor and one a request taken; the
   rows of the API table are the plain ones.
2. The cluster stays alive: what brokers and the controller ask each other, group heartbeats and the handshake
   (`UNDELAYED`, fetches of followers) do not pause in a handler. They do share the queues with what does, and a network
   thread pauses once a turn, however many requests it has: a follower is late by seconds at most.
3. The pauses before a queue is taken from count from when the oldest came: who has waited that long already waits no
   more. So handlers alone decide how much gets through, and a queue that is full drains.
4. A pause holds no lock, and ends at once when the broker stops.

Threads: the `before_…` methods by whoever pauses; `serve` and `update` by main before the start, then by the handler of
the controller's push.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.apis.api import Api
from barnabas.common.clock import NS_PER_S
from barnabas.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from barnabas.broker.answers import Answer
    from barnabas.broker.apis.api import Table
    from barnabas.broker.request_channel import Request, RequestQueue, ResponseQueue
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.slow_motion")

UNDELAYED: Final = frozenset(
    {
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.HEARTBEAT,
        ApiKey.API_VERSIONS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)


class SlowMotion:
    """The pauses of one broker, as its config says now."""

    def __init__(
        self,
        config: Any,
        requests: RequestQueue,
        served: dict[int, Api],
        clock: Clock,
        over: threading.Event | None = None,
    ) -> None:
        self._config = config  # fixed before start; its values change
        self._requests = requests  # fixed before start
        self._served = served  # fixed before start; the handlers' table, whose rows `update` replaces
        self._now_ns = clock.monotonic_ns  # fixed before start
        self._rows: Table = dict(served)  # replaced by serve; the same rows without pauses
        self._over = over or threading.Event()  # set once, by end
        # Seconds, replaced by update.
        self._network_s = 0.0
        self._request_queue_s = 0.0
        self._handler_s = 0.0
        self._response_s = 0.0
        self.update()

    def serve(self, rows: Table) -> None:
        """Have the handlers serve these APIs from now on."""
        self._rows = rows
        self.update()

    def update(self) -> None:
        """Follow the config."""
        config, before = self._config, self._pauses()
        self._network_s = config.barnabas_slow_motion_network_ms / 1000
        self._request_queue_s = config.barnabas_slow_motion_request_queue_ms / 1000
        self._handler_s = config.barnabas_slow_motion_handler_ms / 1000
        self._response_s = config.barnabas_slow_motion_response_ms / 1000
        pauses = self._pauses()
        self._requests.slow_motion = self if any(pauses) else None
        self._served.update({key: self._slowed(row) for key, row in self._rows.items()})
        if pauses != before:
            log.info("slow motion: network %g s, request queue %g s, handler %g s, response %g s", *pauses)

    def end(self) -> None:
        """Pause no more: the broker stops."""
        self._over.set()

    # The stages

    def before_queueing(self) -> None:
        """A network thread has read requests."""
        self._over.wait(self._network_s)

    def before_taking(self) -> None:
        """A request handler sees that requests wait."""
        oldest = _first(self._requests)
        if oldest is not None:
            # Why the network's too: it was paused between the arrival and the queue.
            self._pause_since(oldest.received_ns, self._network_s + self._request_queue_s)

    def before_sending(self, responses: ResponseQueue) -> None:
        """A network thread sees that responses wait."""
        oldest = _first(responses)
        if oldest is not None:
            self._pause_since(oldest.api_remote_done_ns, self._response_s)

    def _pause_since(self, start_ns: int, pause_s: float) -> None:
        left_s = pause_s - (self._now_ns() - start_ns) / NS_PER_S
        if left_s > 0:
            self._over.wait(left_s)

    def _pauses(self) -> tuple[float, float, float, float]:
        return self._network_s, self._request_queue_s, self._handler_s, self._response_s

    def _slowed(self, api: Api) -> Api:
        """The row of an API whose handlers pause first; the same row if they need not."""
        if not self._handler_s or api.key in UNDELAYED:
            return api

        def handle(services: Any, request: Request) -> Answer:
            if not is_from_follower(request):
                self._over.wait(self._handler_s)
            return api.handle(services, request)

        return dataclasses.replace(api, handle=handle)


def _first(waiting: RequestQueue | ResponseQueue) -> Request | None:
    """The request that waits longest; None if there is none (any more), or if it is a handler's sentinel."""
    try:
        first: Request | None = waiting.queue[0]
    except IndexError:
        return None
    return first


def is_from_follower(request: Request) -> bool:
    """Whether this is the fetch of another broker."""
    if request.header.api_key != ApiKey.FETCH:
        return False
    message = request.message
    return bool(message.replica_id >= 0 or message.replica_state.replica_id >= 0)
