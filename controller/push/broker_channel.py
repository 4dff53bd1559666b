"""BrokerChannel: the sender of one broker: one thread, one connection and one pending set.

Rules
1. A sender decides nothing. It sends what a committed image says about the pending changes (requests.py). It takes both
   in one step, as they were offered. So every change of the image has been sent or is pending, and the image's offset
   is true.
2. The changes of a failed push become pending again. The next attempt follows after a pause, which doubles up to
   `BACKOFF_MAX_MS`. A broker that refuses a push as a whole (STALE_BROKER_EPOCH, say) receives everything next time.
3. A registration under a new epoch or address starts over: a FULL push, at once, on a new connection.
4. A slow or dead broker delays only its own sender. One exception: a broker in controlled shutdown receives a change
   of leaders after the others, unless they take longer than `HEAD_START_MS`. The brokers that it redirects its clients
   to then already know that they lead.

Threads: the event thread offers changes; each sender (`Controller-<id>-to-broker-<id>-send-thread`) runs `run`. A
sender's `_condition` guards the state that both touch. No other lock is taken while it is held.

Source: ControllerChannelManager, RequestSendThread (Kafka 3.9).
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from barnabas.broker.requests.request_log import error_name
from barnabas.common.clock import Clock, SystemClock
from barnabas.common.threads import ServiceThread
from barnabas.controller.image import Broker, Endpoint, Image
from barnabas.controller.push.pending import Pending
from barnabas.controller.push.requests import Push, Sender, build, endpoint_of
from barnabas.protocol.errors import ErrorCode

log = logging.getLogger("barnabas.controller.channels")

BACKOFF_MIN_MS: Final = 20
BACKOFF_MAX_MS: Final = 1_000
HEAD_START_MS: Final = 50
HEAD_START_STEP_MS: Final = 2


class Connection(Protocol):
    """The part of `NodeConnection` that a sender uses."""

    def send(self, message: Any, version: int) -> Any:
        """Send a request and return the response; raises OSError."""

    def abort(self) -> None:
        """Make a `send` of another thread fail."""

    def close(self) -> None:
        """Close the connection."""


class PushObserver(Protocol):
    """Counts pushes."""

    def pushed(self, broker_id: int, waited_ns: int) -> None:
        """Count a push that was acknowledged `waited_ns` after the oldest change in it."""

    def push_failed(self, broker_id: int) -> None:
        """Count a push that failed; another attempt follows."""


Connect = Callable[[Endpoint], Connection]
"""Returns a connection to a listener of a broker; raises OSError if its settings do not allow one."""
HaveApplied = Callable[[int, Image], bool]
"""Whether all active brokers except this one have acknowledged everything in an image."""


class PushRefusedError(Exception):
    """A broker refused a whole push."""


class BrokerChannel:
    """The sender of one broker. See the module."""

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
        self._image = image  # guarded by: _condition; every change up to it has been sent or is pending
        self._pending_since_ns = self._now_ns()  # guarded by: _condition; when the oldest pending change was offered
        self._connection: Connection | None = None  # guarded by: _condition; the sender uses it without the lock
        self._dropped: list[Connection] = []  # guarded by: _condition; aborted, to be closed by the sender
        self._is_stopped = False  # guarded by: _condition
        self._failures = 0  # guarded by: _condition; failed pushes in a row
        self.applied = (broker.epoch, -1)  # replaced whole by the sender: acknowledged (broker epoch, metadata offset)
        self._thread = ServiceThread(
            f"Controller-{sender.controller_id}-to-broker-{broker.id}-send-thread",
            f"to-broker-{broker.id}",
            self.run,
        )

    # -- event thread

    @property
    def broker(self) -> Broker:
        """The registration that this channel sends to."""
        return self._broker

    def start(self) -> None:
        """Start the sender thread."""
        self._thread.start()

    def offer(self, pending: Pending, image: Image) -> None:
        """Add changes that lead to this image, and wake the sender."""
        with self._condition:
            self._image = image
            if not self._pending:
                self._pending_since_ns = self._now_ns()
            self._pending.merge(pending)
            self._condition.notify()

    def reset(self, broker: Broker, image: Image) -> None:
        """Start over for a new registration (rule 3). Pending stops stay, since a FULL push does not name them."""
        with self._condition:
            self._broker = broker
            self._image = image
            self._pending = Pending(is_full=True, stops=self._pending.stops)
            self._pending_since_ns = self._now_ns()
            self._failures = 0
            self._drop_connection()
            self._condition.notify()

    def stop(self) -> None:
        """Ask the sender to end."""
        with self._condition:
            self._is_stopped = True
            self._drop_connection()
            self._condition.notify()

    def is_alive(self) -> bool:
        """Return whether the sender's thread runs."""
        return self._thread.is_alive()

    def join(self) -> None:
        """Wait for the sender to end."""
        if self._thread.is_alive():
            self._thread.join()

    def queue_size(self) -> int:
        """Return the number of pending items, for a metric."""
        with self._condition:
            pending = self._pending
            return len(pending.leader_and_isr | pending.metadata) + len(pending.stops) + int(pending.is_full)

    def backlog(self) -> tuple[int, int, int]:
        """Return the number of pending items, the age of the oldest (ns) and the number of failed pushes in a row."""
        size = self.queue_size()
        return size, self._now_ns() - self._pending_since_ns if size else 0, self._failures

    def _drop_connection(self) -> None:
        """Abort the connection, which the sender may be using; the caller holds `_condition`."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
            self._dropped.append(connection)

    # -- sender thread

    def run(self) -> None:
        """Push until stopped; the body of the sender thread."""
        while self._wait():
            self.push_once()
        with self._condition:
            self._drop_connection()
        self._close_dropped()

    def _close_dropped(self) -> None:
        with self._condition:
            dropped, self._dropped = self._dropped, []
        for connection in dropped:
            with contextlib.suppress(OSError):
                connection.close()

    def _wait(self) -> bool:
        """Wait for the pause after a failure, then for something to send; False once stopped."""
        with self._condition:
            if self._failures and not self._is_stopped:
                self._condition.wait(self._backoff_ms() / 1000)
            while not self._pending and not self._is_stopped:
                self._condition.wait()
            return not self._is_stopped

    def _backoff_ms(self) -> int:
        return min(BACKOFF_MAX_MS, BACKOFF_MIN_MS << min(self._failures - 1, 10))

    def push_once(self) -> bool:
        """Send the pending changes; returns False if that failed, and then they are pending again."""
        self._close_dropped()
        with self._condition:
            broker, pending, since_ns = self._broker, self._pending, self._pending_since_ns
            image = self._image
            self._pending = Pending()
        registered = image.brokers.get(broker.id)
        if registered is None:
            return True  # the broker was unregistered meanwhile
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
        """Wait a short time for the other brokers (rule 4)."""
        with self._condition:
            for _ in range(HEAD_START_MS // HEAD_START_STEP_MS):
                if self._is_stopped or self._others_have_applied(self._broker.id, image):
                    return
                self._condition.wait(HEAD_START_STEP_MS / 1000)

    def _push(self, broker: Broker, image: Image, pending: Pending) -> None:
        connection = self._connected(broker)
        for message in build(self._sender, broker, image, pending):
            response = connection.send(message, message.MAX_VERSION)
            _check(broker, message, response)
            del message, response  # Why: each may name every partition, and the next one is built now

    def _connected(self, broker: Broker) -> Connection:
        """Return the connection for a registration; raises ConnectionAbortedError if a newer one replaced it."""
        with self._condition:
            if self._broker != broker:
                raise ConnectionAbortedError("the broker has registered again")
            if self._connection is None:
                endpoint = endpoint_of(broker, self._sender.listener_name)
                self._connection = self._connect(endpoint)
            return self._connection

    def _failed(self, broker: Broker, pending: Pending, since_ns: int, error: Exception) -> None:
        """Make the changes of a failed push pending again (rule 2)."""
        if self._observer is not None:
            self._observer.push_failed(broker.id)
        if isinstance(error, PushRefusedError):
            pending.is_full = True  # rule 2
        with self._condition:
            if self._broker != broker or self._is_stopped:
                self._pending.merge(Pending(stops={**pending.stops, **self._pending.stops}))
                return  # after a reset everything else is pending anyway
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


def _check(broker: Broker, message: Push, response: Any) -> None:
    """Raise PushRefusedError for an error of the whole request; log the errors of single partitions."""
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
