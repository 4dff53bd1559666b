"""Slow motion: the stages of a request pause, so that a person can watch it travel and queues fill on a laptop.

| key, `barnabas.slow.motion.…` | pausing thread | pauses before it | shows |
|---|---|---|---|
| `network.ms` | a network thread | queues the requests that it has read in a turn | a busy network thread |
| `request.queue.ms` | a request handler | takes a request that came just now | requests in the request queue |
| `handler.ms` | a request handler | calls the API | a handler's request; with many clients, the queue filling |
| `response.ms` | a network thread | takes what was answered just now | responses in the response queue |
| `fetcher.ms` | a replica fetcher | fetches again | acks=all produces in their purgatory |

Rules
1. A broker that is not in slow motion pays one test of an attribute a turn of a processor and one a request taken; its
   API table has the plain rows.
2. The cluster stays alive. Requests between brokers and the controller, group heartbeats and the handshake
   (`UNDELAYED`, fetches of followers) do not pause in a handler. They share the queues with requests that do, and a
   network thread pauses once a turn, however many requests it has. So a follower is late by seconds at most.
3. The pauses before taking from a queue count from the arrival of the oldest entry: one that has waited that long waits
   no more. So handlers alone decide the throughput, and a full queue drains.
4. A pause holds no lock, and ends at once when the broker stops.

Threads: the pausing threads call the `before_…` methods. Main calls `serve` and `update` before the start, then the
handler of the controller's push does.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.requests.api import Api
from barnabas.common.clock import NS_PER_S
from barnabas.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from barnabas.broker.request_channel import RequestQueue, ResponseQueue
    from barnabas.broker.requests.api import Table
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request
    from barnabas.common.clock import Clock
    from barnabas.config import Config

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
    """The pauses of one broker, as configured now."""

    def __init__(
        self,
        config: Config,
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
        """Serve these APIs from now on."""
        self._rows = rows
        self.update()

    def update(self) -> None:
        """Apply the changed config."""
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
        """End all pauses: the broker stops."""
        self._over.set()

    # The stages

    def before_queueing(self) -> None:
        """Pause a network thread that has read requests."""
        self._over.wait(self._network_s)

    def before_taking(self) -> None:
        """Pause a request handler that sees waiting requests."""
        oldest = _first(self._requests)
        if oldest is not None:
            # Why the network's too: it was paused between the arrival and the queue.
            self._pause_since(oldest.received_ns, self._network_s + self._request_queue_s)

    def before_sending(self, responses: ResponseQueue) -> None:
        """Pause a network thread that sees waiting responses."""
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
        """Return the API's row with a pause before its handler; the same row if no pause is needed."""
        if not self._handler_s or api.key in UNDELAYED:
            return api

        def handle(services: Any, request: Request) -> Answer:
            if not is_from_follower(request):
                self._over.wait(self._handler_s)
            return api.handle(services, request)

        return dataclasses.replace(api, handle=handle)


def _first(waiting: RequestQueue | ResponseQueue) -> Request | None:
    """Return the request that waits longest; None if there is none, or if it is a handler's sentinel."""
    try:
        first: Request | None = waiting.queue[0]
    except IndexError:
        return None
    return first


def is_from_follower(request: Request) -> bool:
    """Return whether the request is a fetch of another broker."""
    if request.header.api_key != ApiKey.FETCH:
        return False
    message = request.message
    return bool(message.replica_id >= 0 or message.replica_state.replica_id >= 0)
