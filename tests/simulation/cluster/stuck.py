"""Requests that wait for what is there already: a wake-up that was lost, which the next one would hide.

A request is stuck if it is found in several looks in a row, while its process runs,

1. in the purgatory of produce requests although its partitions have reached their offsets, or have failed;
2. in the purgatory of fetch requests although there is something to read, or an error to report;
3. in either although its time is up;
4. in a queue: of requests without a handler, of answers without a processor;
5. in a connection that may be read, and has enough bytes to be.

A broker whose disk is not sound is left alone, and for a while after that: its handlers may be in a flush of seconds.
But no request waits for a handler while another one sleeps, and no push of a controller waits behind other requests.
The looks take no lock: a task of the simulation is not interrupted in between.

Threads: a task of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.processors import PUSH_KEYS
from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

NS_PER_MS: Final = 1_000_000
LOOK_NS: Final = 100 * NS_PER_MS
#: Not more, since most waits end by themselves after 500 ms: those of fetches.
LOOKS: Final = 4
LATE_MS: Final = 300
#: After a disk was slow.
LOOKS_LEFT_OUT: Final = 150


class StuckRequests:
    """The looks at the brokers of a cluster."""

    def __init__(self, nodes: Any) -> None:
        self._nodes = nodes
        self._seen: dict[Any, int] = {}  # what was stuck at the last look -> for how many looks
        self._left_out: dict[str, int] = {}  # broker -> looks
        self.problems: list[str] = []

    def look(self) -> None:
        """Look at every broker that runs."""
        seen: dict[Any, int] = {}
        for broker in self._nodes.brokers:
            if not broker.disk.faults.is_sound:
                self._left_out[broker.name] = LOOKS_LEFT_OUT
            left_out = self._left_out[broker.name] = max(0, self._left_out.get(broker.name, 0) - 1)
            if not broker.is_running or broker.process.is_paused:
                continue
            if getattr(broker.server, "services", None) is None:
                continue
            stuck = _without_handler(broker) if left_out else self._stuck(broker)
            for found, words in (*stuck, *_pushes_behind(broker)):
                seen[found] = self._seen.get(found, 0) + 1
                if seen[found] == LOOKS:
                    self.problems.append(f"{broker.name}: {words}")
        self._seen = seen

    def _stuck(self, broker: Any) -> Iterator[tuple[Any, str]]:
        services, now_ms = broker.server.services, broker.process.monotonic_ns() // NS_PER_MS
        for purgatory, is_satisfied in (
            (services.purgatories.produce, _produce_is_satisfied),
            (services.purgatories.fetch, _fetch_is_satisfied),
        ):
            for operation in _waiting(purgatory):
                if is_satisfied(operation):
                    yield operation, f"a request waits in purgatory {purgatory.name} for what is there"
                elif 0 <= operation.started_ms < now_ms - operation.delay_ms - LATE_MS:
                    yield operation, f"a request waits in purgatory {purgatory.name} although its time is up"
        channel = broker.server.network.channel
        for request in list(channel.requests.queue):
            if request is not None:
                yield request, "a request waits in the queue, and no handler takes it"
        yield from _unread(broker)
        for responses in list(channel._responses.values()):
            for answered in list(responses.queue):
                yield answered, "an answer waits in the queue, and no processor takes it"


def _without_handler(broker: Any) -> Iterator[tuple[Any, str]]:
    requests = broker.server.network.channel.requests
    if requests.sleeping_handlers():
        for request in filter(None, list(requests.queue)):
            yield request, "a request waits in the queue, and a handler sleeps"


def _pushes_behind(broker: Any) -> Iterator[tuple[Any, str]]:
    for request in list(broker.server.network.channel.requests.queue):
        if request is not None and request.buffer is not None and request.buffer[1] in PUSH_KEYS:
            # Why not the request: it is there for another reason, too, and would be counted twice a look.
            yield (request, "push"), "a push waits behind the requests of clients"


def _unread(broker: Any) -> Iterator[tuple[Any, str]]:
    for processor in broker.server.network.sockets.processors():
        # Why: a broker that stops reads no more, and answers for a while what it has read.
        for connection in processor.connections() if processor._is_reading else ():
            if not connection.is_muted and connection.outgoing is None and not connection.is_closed:
                socket = broker.process.descriptors.get(connection.fd)
                end = None if socket is None else socket.pollable
                if end is not None and len(end.received) >= max(1, connection.expected_bytes):
                    # Why the time: a client that asks without a pause has bytes there at each look, other ones.
                    found = connection, connection.last_active_ns
                    yield found, "bytes wait in a connection, and its processor does not read them"


def _waiting(purgatory: Any) -> list[Any]:
    found: dict[Any, None] = {}
    for operations in purgatory._lists.values():
        found.update((operation, None) for operation in operations if not operation.is_completed)
    return list(found)


def _produce_is_satisfied(operation: Any) -> bool:
    return all(
        is_reached or error
        for is_reached, error in (operation._progress(tp, offset) for tp, offset in operation._pending.items())
    )


def _fetch_is_satisfied(operation: Any) -> bool:
    if operation._params.min_bytes > 1:
        return False  # it would read files, on behalf of another process
    try:
        return any(operation._available_bytes(item) for item in operation._items)
    except ApiError:
        return True
