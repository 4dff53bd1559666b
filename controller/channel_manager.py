"""The senders: one thread, one connection and one pending set for each registered broker.

Rules
1. A sender decides nothing: it says what a committed image says about what is pending (push.py). It takes both at
   once, as they were offered together: all that is in the image is pending or was told, so the image's offset is true.
2. A push that failed becomes pending again, and is tried after a pause that doubles up to `BACKOFF_MAX_MS`. A broker
   that answers STALE_BROKER_EPOCH gets everything, once it is what the registration says.
3. A registration under a new epoch, or at a new address, starts over: FULL, at once, on a new connection.
4. A slow or dead broker delays only its own sender. But one that shuts down is told after the others, if these take
   no longer than `HEAD_START_MS`: then whom it sends its clients to knows already that it leads.

Threads: the event thread calls `publish`; each sender (`Controller-<id>-to-broker-<id>-send-thread`) runs `run`. A
sender's `_condition` guards what both touch; no other lock is taken while it is held.

Source: ControllerChannelManager, RequestSendThread (Kafka 3.9).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from barnabas.broker.request_log import error_name
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.threads import ServiceThread
from barnabas.controller.image import Broker, Delta, Image
from barnabas.controller.push import (
    Pending,
    Sender,
    affected_by_brokers,
    build,
    endpoint_of,
    pending_for,
)
from barnabas.protocol.errors import ErrorCode

log = logging.getLogger("barnabas.controller.channels")

BACKOFF_MIN_MS: Final = 20
BACKOFF_MAX_MS: Final = 1_000
HEAD_START_MS: Final = 50
HEAD_START_STEP_MS: Final = 2


class Connection(Protocol):
    """What a sender needs of `NodeConnection`."""

    def send(self, message: Any, version: int) -> Any: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class PushObserver(Protocol):
    """Who counts the pushes of one sender."""

    def pushed(self, broker_id: int, waited_ns: int) -> None:
        """A push was answered, `waited_ns` after the oldest change in it."""

    def push_failed(self, broker_id: int) -> None:
        """A push failed and will be tried again."""


Connect = Callable[[str, int], Connection]
HaveApplied = Callable[[int, Image], bool]
"""Whether all active brokers but this one have acknowledged everything in an image."""


class PushRefusedError(Exception):
    """A broker answered a push with an error that concerns all of it."""


class BrokerChannel:
    """The sender of one broker."""

    def __init__(
        self,
        sender: Sender,
        broker: Broker,
        connect: Connect,
        image: Image,
        observer: PushObserver | None = None,
        clock: Clock | None = None,
        others_have_applied: HaveApplied = lambda _id, _image: True,
    ) -> None:
        self._sender = sender  # fixed before start
        self._observer = observer  # fixed before start
        self._others_have_applied = others_have_applied  # fixed before start
        self._now_ns = (clock or SystemClock()).monotonic_ns  # fixed before start
        self._connect = connect  # fixed before start
        self._condition = threading.Condition()
        self._broker = broker  # guarded by: _condition
        self._pending = Pending(is_full=True)  # guarded by: _condition
        self._image = image  # guarded by: _condition; of which everything is pending that was not told
        self._pending_since_ns = self._now_ns()  # guarded by: _condition; when the oldest of it came
        self._connection: Connection | None = None  # guarded by: _condition; used by the sender without it
        self._is_stopped = False  # guarded by: _condition
        self._failures = 0  # guarded by: _condition; in a row
        self.applied = (broker.epoch, -1)  # replaced whole by the sender: (broker epoch, metadata offset) acknowledged
        self._thread = ServiceThread(
            f"Controller-{sender.controller_id}-to-broker-{broker.id}-send-thread",
            f"to-broker-{broker.id}",
            self.run,
        )

    # -- event thread

    @property
    def broker(self) -> Broker:
        """The registration it sends to."""
        return self._broker

    def start(self) -> None:
        """Start the sender."""
        self._thread.start()

    def offer(self, pending: Pending, image: Image) -> None:
        """Add to what is pending all that changed up to this image."""
        with self._condition:
            self._image = image
            if not self._pending:
                self._pending_since_ns = self._now_ns()
            self._pending.merge(pending)
            self._condition.notify()

    def reset(self, broker: Broker, image: Image) -> None:
        """Rule 3. What is to be deleted must still be said: a FULL push does not name it."""
        with self._condition:
            self._broker = broker
            self._image = image
            self._pending = Pending(is_full=True, stops=self._pending.stops)
            self._pending_since_ns = self._now_ns()
            self._failures = 0
            self._drop_connection()
            self._condition.notify()

    def stop(self) -> None:
        """Tell the sender to end."""
        with self._condition:
            self._is_stopped = True
            self._drop_connection()
            self._condition.notify()

    def join(self) -> None:
        """Wait for the sender's end."""
        if self._thread.is_alive():
            self._thread.join()

    def queue_size(self) -> int:
        """How much is pending, for a metric."""
        with self._condition:
            pending = self._pending
            return len(pending.leader_and_isr | pending.metadata) + len(pending.stops) + int(pending.is_full)

    def backlog(self) -> tuple[int, int, int]:
        """How much is pending, for how long (ns) the oldest of it, and how many pushes have failed in a row."""
        size = self.queue_size()
        return size, self._now_ns() - self._pending_since_ns if size else 0, self._failures

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()

    # -- sender thread

    def run(self) -> None:
        """Push until stopped."""
        while self._wait():
            self.push_once()
        with self._condition:
            self._drop_connection()

    def _wait(self) -> bool:
        """Wait until there is something to send and the pause after a failure is over; False once stopped."""
        with self._condition:
            if self._failures and not self._is_stopped:
                self._condition.wait(self._backoff_ms() / 1000)
            while not self._pending and not self._is_stopped:
                self._condition.wait()
            return not self._is_stopped

    def _backoff_ms(self) -> int:
        return min(BACKOFF_MAX_MS, BACKOFF_MIN_MS << min(self._failures - 1, 10))

    def push_once(self) -> bool:
        """Send what is pending; if that fails, it is pending again."""
        with self._condition:
            broker, pending, since_ns = self._broker, self._pending, self._pending_since_ns
            image = self._image
            self._pending = Pending()
        registered = image.brokers.get(broker.id)
        if registered is None:
            return True  # unregistered meanwhile: there is nobody to tell
        if registered.in_controlled_shutdown and pending.leader_and_isr:
            self._let_others_first(image)
        try:
            self._push(broker, image, pending)
        except (OSError, PushRefusedError) as error:
            self._failed(broker, pending, since_ns, error)
            return False
        with self._condition:
            self._failures = 0
        self.applied = (broker.epoch, image.offset)
        if self._observer is not None:
            self._observer.pushed(broker.id, self._now_ns() - since_ns)
        return True

    def _let_others_first(self, image: Image) -> None:
        """Rule 4."""
        with self._condition:
            for _ in range(HEAD_START_MS // HEAD_START_STEP_MS):
                if self._is_stopped or self._others_have_applied(self._broker.id, image):
                    return
                self._condition.wait(HEAD_START_STEP_MS / 1000)

    def _push(self, broker: Broker, image: Image, pending: Pending) -> None:
        connection = self._connected(broker)
        for message, version in build(self._sender, broker, image, pending).in_order():
            response = connection.send(message, version)
            _check(broker, message, response)

    def _connected(self, broker: Broker) -> Connection:
        """The connection of a registration; raises ConnectionAbortedError if that is not the present one any more."""
        with self._condition:
            if self._broker != broker:
                raise ConnectionAbortedError("the broker has registered anew")
            if self._connection is None:
                endpoint = endpoint_of(broker, self._sender.listener_name)
                self._connection = self._connect(endpoint.host, endpoint.port)
            return self._connection

    def _failed(self, broker: Broker, pending: Pending, since_ns: int, error: Exception) -> None:
        if self._observer is not None:
            self._observer.push_failed(broker.id)
        if isinstance(error, PushRefusedError):
            pending.is_full = True  # rule 2
        with self._condition:
            if self._broker != broker or self._is_stopped:
                self._pending.merge(Pending(stops={**pending.stops, **self._pending.stops}))
                return  # it was reset: everything else is pending anyway
            level = logging.WARNING if self._failures == 0 else logging.DEBUG
            log.log(level, "Could not push to broker %d (epoch %d): %s", broker.id, broker.epoch, error)
            pending.merge(self._pending)
            self._pending = pending
            self._pending_since_ns = since_ns
            self._failures += 1
            connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()


def _check(broker: Broker, message: Any, response: Any) -> None:
    """Raise PushRefusedError for an error of the whole request; log those of single partitions."""
    if response.error_code != ErrorCode.NONE:
        name = error_name(response.error_code)
        raise PushRefusedError(f"{type(message).__name__} was answered with {name}")
    for error in _partition_errors(response):
        log.warning(
            "Broker %d answered %s for partition %d with %s",
            broker.id, type(message).__name__, error.partition_index, error_name(error.error_code),
        )  # fmt: skip


def _partition_errors(response: Any) -> Iterable[Any]:
    found = list(getattr(response, "partition_errors", ()))
    for topic in getattr(response, "topics", ()):
        found += topic.partition_errors
    return [error for error in found if error.error_code]


class ChannelManager:
    """All senders. Owner: event thread, but for `applied_offset`, which reads only."""

    def __init__(
        self,
        sender: Sender,
        connect: Connect,
        *,
        observer: PushObserver | None = None,
        clock: Clock | None = None,
        start_threads: bool = True,
    ) -> None:
        self._sender = sender  # fixed before start
        self._observer = observer  # fixed before start
        self._clock = clock  # fixed before start
        self._connect = connect  # fixed before start
        self._start_threads = start_threads  # fixed before start; tests step the channels themselves
        self.channels: dict[int, BrokerChannel] = {}  # replaced whole by the event thread

    def start(self, image: Image) -> None:
        """Begin to tell every registered broker everything."""
        for broker in image.brokers.values():
            self._add(broker, image)

    def publish(self, image: Image, deltas: Iterable[Delta]) -> None:
        """Make committed changes pending for everyone; `image` is what they led to, all together."""
        changes: dict[int, Pending] = {}
        for delta in deltas:
            if not delta:
                continue
            affected = affected_by_brokers(image, delta)
            told = list(self.channels)
            self._follow_registrations(image, delta)
            for broker_id in told:
                changes.setdefault(broker_id, Pending()).merge(pending_for(broker_id, image, delta, affected))
        for broker_id, pending in changes.items():
            channel = self.channels.get(broker_id)
            if channel is not None:
                channel.offer(pending, image)

    def _follow_registrations(self, image: Image, delta: Delta) -> None:
        for broker_id in delta.brokers:
            broker, channel = image.brokers.get(broker_id), self.channels.get(broker_id)
            if broker is None:
                self._remove(broker_id)
            elif channel is None:
                self._add(broker, image)
            elif (channel.broker.epoch, channel.broker.endpoints) != (broker.epoch, broker.endpoints):
                channel.reset(broker, image)

    def _add(self, broker: Broker, image: Image) -> None:
        channel = BrokerChannel(
            self._sender, broker, self._connect, image, self._observer, self._clock, self._others_have_applied
        )
        self.channels = {**self.channels, broker.id: channel}
        if self._start_threads:
            channel.start()

    def _remove(self, broker_id: int) -> None:
        channel = self.channels.get(broker_id)
        if channel is not None:
            self.channels = {id_: c for id_, c in self.channels.items() if id_ != broker_id}
            channel.stop()

    def applied_offset(self, broker: Broker) -> int:
        """How far this incarnation of a broker acknowledged; -1: nothing yet."""
        channel = self.channels.get(broker.id)
        if channel is None:
            return -1
        epoch, offset = channel.applied
        return offset if epoch == broker.epoch else -1

    def _others_have_applied(self, broker_id: int, image: Image) -> bool:
        """Whether all active brokers but this one have acknowledged everything in the image; for any sender."""
        others = [broker for broker in image.brokers.values() if broker.id != broker_id and broker.is_active]
        return all(self.applied_offset(broker) >= image.offset for broker in others)

    def stop(self) -> None:
        """End all senders."""
        for channel in self.channels.values():
            channel.stop()
        for channel in self.channels.values():
            channel.join()
