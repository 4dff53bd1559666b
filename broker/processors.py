"""Network processors: the threads that read requests from and write responses to their own connections.

A turn (`Processor.run`) is: take over new connections; send what handlers answered; ask the selector what changed; read
requests; finish sends; then, seldom, what the clock asks for. A turn drains everything there is before it sleeps.

Rules
1. A processor never looks into a request: it cuts frames and hands them on. Handlers never touch a socket.
2. A connection is muted from the moment its frame is queued until its response is fully sent and its throttle time is
   over; then its next frame is looked for at once, since no edge will tell of it. Frames that came whole in the same
   read go with it as its run (`RUN_MAX`): a handler carries them out one after the other (request_channel.py, rule 4),
   and what is answered is sent together, with one wake-up of the client. A request that is parked ends that: the rest
   of the run is queued when its answer is out. Why not before, while a produce waits for its replicas, which would
   spare followers many fetches: a producer with five requests in flight would have all of them in the log when the
   leader changes, unanswered. The next leader, which has them too, goes on with newer batches, and five of those later
   it does not know the first of the old ones any more when it is sent again: OUT_OF_ORDER_SEQUENCE_NUMBER, for ever
   (found by `make stress`). A request that was not carried out is the gap that makes the next leader wait.
3. Whatever a client does wrong ends its own connection, with one line in the log.
4. The processor may wait in one place besides its selector: for room in the request queue. Response queues never block,
   so handlers go on and make that room.
5. A connection changes its processor at most once, between two requests: when it turns out to move large pieces
   (`LARGE_BYTES`), it is dealt in turn (acceptor.py, rule 3 says why).
6. No turn is long because of what one connection moves, or many do at once: a large request or response goes on in the
   next turn, so many are opened and closed in each, and idle ones are found without looking at all
   (idle_connections.py). What a connection may hold here is bounded: one frame, which the memory pool counts if there
   is one (memory_pool.py), one read ahead (`READ_AHEAD_BYTES`), one answer or those of a run, which are small
   (handlers.py, `GOES_ON_BYTES_MAX`).
7. What was answered in a turn is recorded together, when handlers have what to do and before the processor may sleep:
   the code and the counters for that are then fetched into the processor's caches once, not for each request.

Threads: each processor is one; the acceptor fills its `inbox`, anyone its response queue.
Source: Kafka's SocketServer.Processor, Selector (4.3).
"""

from __future__ import annotations

import logging
import queue
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.busy_poll import BusyPollTurn
from barnabas.broker.connection import Connection, InvalidFrameError
from barnabas.broker.event_wait import Events, EventWait
from barnabas.broker.idle_connections import IdleConnections
from barnabas.broker.memory_pool import MemoryGate, MemoryPool
from barnabas.broker.network_metrics import ProcessorMetrics
from barnabas.broker.request_channel import (
    CLOSING,
    QueueClosed,
    Request,
    RequestChannel,
    RequestContext,
    RequestQueue,
    ResponseQueue,
)
from barnabas.broker.selector import BROKEN, HUNG_UP, READABLE, WRITABLE, EdgeSelector
from barnabas.broker.throttled_connections import ThrottledConnections
from barnabas.broker.transport import Anonymous, PlainTransport
from barnabas.common import net
from barnabas.common.clock import NS_PER_MS, Clock
from barnabas.common.ownership import ThreadOwner
from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.connection_quotas import ConnectionQuotas
    from barnabas.broker.request_log import RequestLog

log = logging.getLogger("barnabas.network")

INBOX_SIZE: Final = 20
PUSH_KEYS: Final = frozenset({4, 5, 6})  # LeaderAndIsr, StopReplica, UpdateMetadata
SCRATCH_BYTES: Final = 64 * 1024
SCRATCH_BYTES_MIN: Final = 4 * 1024
# Not Final, since a test changes it: compiled, that would be its value for ever.
READ_AHEAD_BYTES = 64 * 1024 * 1024  # what all connections of a processor may have read beyond a frame's end
CLOSES_A_TURN: Final = 32
SLEEP_S_MAX: Final = 1.0
CHORES_INTERVAL_NS: Final = 250 * NS_PER_MS
LARGE_BYTES: Final = 64 * 1024  # a request with its response
RUN_MAX: Final = 8  # requests
UNLIMITED_IDLE: Final = -1
LRU_MS: Final = 600_000  # how long the order of use is kept where no connection is closed for being idle


class ProcessorSettings:
    """What all processors of a listener have in common. Fixed before start."""

    __slots__ = (
        "busy_poll",
        "frame_size_max",
        "idle_ms_max",
        "is_for_clients",
        "listener_name",
        "security_protocol",
    )

    def __init__(
        self,
        listener_name: str,
        security_protocol: str,
        *,
        frame_size_max: int,
        idle_ms_max: int = UNLIMITED_IDLE,
        busy_poll: BusyPollTurn,
        is_for_clients: bool = False,
    ) -> None:
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.frame_size_max = frame_size_max
        self.idle_ms_max = idle_ms_max
        self.is_for_clients = is_for_clients
        self.busy_poll = busy_poll


class Accepted(NamedTuple):
    """A socket on its way from the acceptor to a processor, counted by the quotas."""

    sock: socket.socket
    address: str
    port: int


class Processor:
    """One network thread with its selector and connections."""

    def __init__(
        self,
        processor_id: int,
        thread_name: str,
        settings: ProcessorSettings,
        channel: RequestChannel,
        quotas: ConnectionQuotas,
        metrics: ProcessorMetrics,
        request_log: RequestLog,
        clock: Clock,
        pool: MemoryPool | None = None,
    ) -> None:
        # Fixed before start.
        self.id = processor_id
        self.metrics = metrics
        self._settings = settings
        self._requests = channel.requests
        self._control = None if settings.is_for_clients else channel.control
        self._quotas = quotas
        self._request_log = request_log
        self._recorder = request_log.metrics.recorder()  # replaced by its own when the processor's thread starts
        self._now_ns = clock.monotonic_ns
        self._selector = EdgeSelector()
        self.responses = ResponseQueue(self._selector.wake)
        self.inbox: queue.Queue[Accepted | Connection] = queue.Queue(INBOX_SIZE)
        self._owner = ThreadOwner()
        self._service = ServiceThread(thread_name, f"net-{settings.listener_name[:8]}-{processor_id}", self.run)
        # Set by others.
        self._is_running = True  # cleared by `begin_shutdown`
        self._is_reading = True  # cleared by `stop_reading`
        self.deal: Callable[[], Processor] = lambda: self  # set before start; whose turn it is
        # owner: processor
        self._connections: dict[int, Connection] = {}  # by descriptor
        self._idle = IdleConnections((settings.idle_ms_max if settings.idle_ms_max >= 0 else LRU_MS) * NS_PER_MS)
        self._gate = None if pool is None else MemoryGate(pool, self.responses.interrupt)
        self._left: deque[Connection] = deque()  # whose clients send no more, not closed yet
        self._unfinished: deque[Connection] = deque()  # moved much in their turn and go on in the next
        self._ready: list[Request] = []  # read in this turn, not queued yet
        self._finished: list[Request] = []  # answered, not recorded yet
        self._wait = EventWait(
            self._selector, self._requests, self.responses, settings.busy_poll, metrics.idle, clock.monotonic_ns
        )
        self._queued_last = 0  # how many requests it queued last
        self._throttled = ThrottledConnections()
        self._sequence = 0  # numbers connections
        self._queueing = 0  # requests that it is putting into the request queue, which may be full
        self._whole_scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._scratch = self._whole_scratch  # as much of it as is read at once
        self._chores_due_ns = 0

    # Called by any thread

    def start(self) -> None:
        self._service.start()

    def offer(self, accepted: Accepted | Connection, timeout_s: float = 0) -> bool:
        """Hand an accepted socket, or another processor's connection, over; false when the inbox is full and stays so
        for `timeout_s`.
        """
        try:
            self.inbox.put(accepted, timeout_s > 0, timeout_s or None)
        except queue.Full:
            return False
        self.responses.interrupt()
        return True

    def load(self) -> int:
        """Return how many connections it has, or will have."""
        return len(self._connections) + self.inbox.qsize()

    def stop_reading(self) -> None:
        """Read no more requests; those in progress are still answered."""
        self._is_reading = False

    def begin_shutdown(self) -> None:
        """Send what is answered, close all connections and end."""
        if self._is_running:
            self._is_running = False
            self._selector.wake()

    def join(self) -> None:
        """Wait for the end after `begin_shutdown`; a processor that never started is closed here."""
        if self._service.ident is not None:
            self._service.join()
        else:
            self._close_all()

    @property
    def listener_name(self) -> str:
        """Whose connections it has."""
        return self._settings.listener_name

    def connections(self) -> list[Connection]:
        """Return a snapshot of its connections, for the live page: look, and expect them to change."""
        return list(self._connections.values())

    def queueing(self) -> int:
        """Return how many requests it is putting into the request queue at this moment."""
        return self._queueing

    # Called by the processor's own thread

    def run(self) -> None:
        """Do turns until told to end."""
        self._owner.claim()
        self._recorder = self._request_log.metrics.recorder()
        self.metrics.started()
        try:
            while self._is_running:
                try:
                    self._configure_new_connections()
                    self._send_responses()
                    if self._unfinished:
                        self._go_on()
                    self._queue_requests()
                    self._record_finished()
                    self._handle_events(self._poll())
                    self._queue_requests()
                    self._do_chores()
                except Exception:
                    # Why: a processor that ends leaves all its connections hanging. What one connection does is
                    # caught where it happens; this is for mistakes of ours.
                    log.exception("processor %d got an uncaught exception", self.id)
            self._send_responses()
            self._record_finished()
        finally:
            self._wait.stop()
            self._close_all()

    def _configure_new_connections(self) -> None:
        """Take over accepted sockets, at most an inbox full a turn, so that others are not kept waiting."""
        if self.inbox.empty():
            return
        for _ in range(INBOX_SIZE):
            try:
                accepted = self.inbox.get_nowait()
            except queue.Empty:
                return
            self._register(accepted)

    def _register(self, accepted: Accepted | Connection) -> None:
        assert self._owner.is_current()
        if isinstance(accepted, Connection):
            self._adopt(accepted)
            return
        settings = self._settings
        sock = accepted.sock
        local = sock.getsockname()
        self._sequence += 1
        connection_id = (
            f"{net.format_address(net.plain_host(local[0]), local[1])}-"
            f"{net.format_address(accepted.address, accepted.port)}-{self.id}-{self._sequence}"
        )
        authenticator = Anonymous()
        context = RequestContext(
            settings.listener_name,
            settings.security_protocol,
            accepted.address,
            accepted.port,
            connection_id,
            authenticator.principal(),
            settings.is_for_clients,
        )
        connection = Connection(sock.fileno(), PlainTransport(sock), authenticator, context, settings.frame_size_max)
        connection.last_active_ns = self._now_ns()
        self._connections[connection.fd] = connection
        connection.gate = self._gate
        self._idle.add(connection)
        self._selector.register(connection.fd, 0)
        self.metrics.opened()

    def _adopt(self, connection: Connection) -> None:
        """Take over a connection that another processor had (rule 5)."""
        self._connections[connection.fd] = connection
        connection.gate = self._gate
        self._idle.add(connection)
        self._selector.register(connection.fd, 0)
        self.metrics.joined(connection.client_software)
        self._unmute(connection)

    def _hand_over(self, connection: Connection) -> bool:
        """Give a connection that is between two requests to the processor whose turn it is, if that is another."""
        other = self.deal()
        if other is self:
            return False
        del self._connections[connection.fd]
        self._idle.discard(connection)
        self._selector.unregister(connection.fd)
        self.metrics.left(connection.client_software)
        if not other.offer(connection):
            self._adopt(connection)
        return True

    def _send_responses(self) -> None:
        """Begin to send everything that was answered."""
        if self._requests.slow_motion is not None and self.responses.qsize():
            self._requests.slow_motion.before_sending(self.responses)
        answered = self.responses.take_all()
        if not answered:
            return
        now_ns = self._now_ns()
        gate = self._gate
        held: list[Connection] = []  # of whose run more is answered soon, maybe in this turn
        for request in answered:
            request.response_dequeued_ns = now_ns
            connection: Connection = request.connection
            if gate is not None and not request.goes_on:
                gate.release(connection)
            if connection.is_closed:
                self._request_log.dropped(request)
                continue
            self._take_answer(connection, request)
            if request.goes_on:
                held.append(connection)
            else:
                self._answer(connection)
        for connection in held:
            if connection.answered is not None:
                self._answer(connection)

    def _take_answer(self, connection: Connection, request: Request) -> None:
        if request.client_software_name:
            self._identify(connection, request)
        if request.api_throttle_ms > 0:
            self._throttled.add(connection, request.api_remote_done_ns + request.api_throttle_ms * NS_PER_MS)
        connection.take_answer(request)

    def _answer(self, connection: Connection) -> None:
        """Send what is known of the answers to a run."""
        if connection.outgoing is None:
            self._conclude(connection)
        else:
            self._send(connection)

    def _send(self, connection: Connection) -> None:
        """Go on sending a connection's response; when it is out, look for the next request."""
        assert connection.outgoing is not None
        try:
            connection.outgoing = connection.transport.send(connection.outgoing)
        except OSError as error:
            self._close(connection, f"the client went away while being answered ({error})")
            return
        if connection.outgoing is not None:
            connection.last_active_ns = self._now_ns()
            if connection.transport.may_go_on:
                connection.transport.may_go_on = False
                self._unfinished.append(connection)
            # Why nothing to do otherwise: the socket is full, and an edge will tell when it is not.
            return
        self._conclude(connection)

    def _conclude(self, connection: Connection) -> None:
        """End the requests of which the answers are out; then comes the rest of their run, or the next request."""
        request, last = connection.request, connection.answered
        assert request is not None
        assert last is not None
        connection.answered = None
        connection.last_active_ns = now_ns = self._now_ns()
        while True:
            request.sent_ns = now_ns
            self._finished.append(request)
            if not connection.is_large and request.size_bytes + request.response_size_bytes >= LARGE_BYTES:
                connection.is_large = connection.is_to_be_dealt = True
            if request is last:
                break
            request = request.following
            assert request is not None
        if last.goes_on:
            connection.request = last.following
            return
        connection.request = None
        connection.postponed = last.following
        if last.action in CLOSING:
            self._close(connection, "")
        else:
            self._unmute(connection)

    def _record_finished(self) -> None:
        """Record what was answered since the last turn (rule 7)."""
        if not self._finished:
            return
        finished, self._finished = self._finished, []
        for request in finished:
            self._request_log.completed(request, self._recorder)

    def _unmute(self, connection: Connection) -> None:
        """Let the connection's next request in, unless its client must wait (rule 2)."""
        if connection.muted_until_ns:
            if connection.muted_until_ns > self._now_ns():
                return
            connection.muted_until_ns = 0
        if connection.is_to_be_dealt:
            connection.is_to_be_dealt = False
            if self._hand_over(connection):
                return
        if connection.postponed is not None:
            self._queue_postponed(connection, connection.postponed)
            return
        connection.is_muted = False
        if connection.may_have_input or not connection.frames.is_at_boundary():
            self._read(connection)

    def _queue_postponed(self, connection: Connection, postponed: Request) -> None:
        """Let the rest of a run in, as if it had been read only now."""
        if not self._is_reading:
            return
        now_ns = self._now_ns()
        size = 0
        for request in postponed.run():
            request.processor = self
            request.received_ns = now_ns
            size += request.size_bytes
        if self._gate is not None:
            self._gate.count_more(connection, size)
        connection.postponed = None
        connection.request = postponed
        self._ready.append(postponed)

    def _identify(self, connection: Connection, request: Request) -> None:
        software = (request.client_software_name, request.client_software_version)
        if software != connection.client_software:
            self.metrics.identified(connection.client_software, software)
            connection.client_software = software

    def _poll(self) -> Events:
        """Ask the selector; wait only when nothing is left to do."""
        if self._ready or self._left or self._unfinished:
            return self._selector.poll(0)
        if self._queued_last == 1:
            events = self._wait.for_answer()
            if events or self.responses.has_waiting():
                return events
        if not self.responses.may_sleep():
            return self._selector.poll(0)
        if not self.inbox.empty():  # asked after `may_sleep`: who offers then wakes
            return self._selector.poll(0)
        if self._gate is not None and self._gate.is_due():  # likewise: who makes room then wakes
            return self._selector.poll(0)
        now_ns = self._now_ns()
        throttled_ns = self._throttled.wait_ns(now_ns)
        timeout_s = SLEEP_S_MAX if throttled_ns is None else min(SLEEP_S_MAX, (throttled_ns + NS_PER_MS) / 1e9)
        return self._wait.for_events(now_ns, timeout_s)

    def _handle_events(self, events: Events) -> None:
        connections = self._connections
        for fd, event in events:
            connection = connections.get(fd)
            if connection is None:  # the wake-up, or closed earlier in this turn
                continue
            if event & BROKEN:
                connection.is_broken = True
                self._left.append(connection)
                continue
            if event & WRITABLE and connection.outgoing is not None:
                self._send(connection)
            if event & READABLE and connections.get(fd) is connection:  # not closed or handed over meanwhile
                connection.may_have_input = True
                if event & HUNG_UP:
                    connection.is_hung_up = True
                    self._left.append(connection)
                elif not connection.is_muted:
                    self._read(connection)

    def _read(self, connection: Connection) -> None:
        """Read the connection's next request, if all of it is there."""
        if not self._is_reading:
            return
        try:
            frame = connection.read_frame(self._scratch)
        except InvalidFrameError as error:
            log.warning("closing connection %s: %s", connection.context.connection_id, error)
            self._close(connection, "")
            return
        except EOFError:
            self._close(connection, "")
            return
        except OSError as failure:
            self._close(connection, str(failure))
            return
        if frame is not None and self._gate is not None:
            self._gate.count_whole(connection, len(frame))
        connection.last_active_ns = now_ns = self._now_ns()
        if frame is None:
            if connection.may_have_input and not connection.frames.is_held():
                self._unfinished.append(connection)
            return
        request = Request(connection, self, connection.context, frame)
        request.received_ns = now_ns
        connection.mute(request)
        self._ready.append(request)
        if not connection.frames.is_at_boundary():
            self._add_following(connection, request)
        elif self._control is not None and len(frame) > 1 and frame[1] in PUSH_KEYS and not frame[0]:
            self._queue_push(self._control)

    def _queue_push(self, control: RequestQueue) -> None:
        """Queue what was read last for the control plane; if that has no room it is a request like any other."""
        try:
            control.put(self._ready[-1], block=False)
        except queue.Full:
            return
        except QueueClosed:
            log.debug("processor %d dropped a push at shutdown", self.id)
        self._ready.pop()

    def _add_following(self, connection: Connection, request: Request) -> None:
        """Let what came whole with a request follow it (rule 2)."""
        size = 0
        for _ in range(RUN_MAX - 1):
            try:
                frame = connection.frames.next_frame(_only_whole)
            except InvalidFrameError:  # comes again, when the request is answered
                break
            if frame is None:
                break
            following = Request(connection, self, connection.context, frame)
            following.received_ns = request.received_ns
            request.following = following
            request = following
            size += len(frame)
        if size and self._gate is not None:
            self._gate.count_more(connection, size)

    def _go_on(self) -> None:
        """Have those go on who moved much in the last turn (rule 6)."""
        for _ in range(len(self._unfinished)):
            connection = self._unfinished.popleft()
            if self._connections.get(connection.fd) is not connection:
                continue
            if connection.outgoing is not None:
                self._send(connection)
            elif not connection.is_muted:
                self._read(connection)

    def _queue_requests(self) -> None:
        """Queue what was read, waiting for room (rule 4)."""
        if not self._ready:
            return
        if self._requests.slow_motion is not None:
            self._requests.slow_motion.before_queueing()
        ready, self._ready = self._ready, []
        self._queueing = self._queued_last = len(ready)
        try:
            self._requests.put_all(ready)
        except QueueClosed:
            log.debug("processor %d dropped %d requests at shutdown", self.id, len(ready))
        self._queueing = 0

    def _do_chores(self) -> None:
        """Do what the clock asks for: end throttles, close idle connections, close one that is too many."""
        now_ns = self._now_ns()
        while (connection := self._throttled.next_expired(now_ns)) is not None:
            if (
                self._connections.get(connection.fd) is connection
                and connection.is_muted
                and connection.request is None
            ):
                self._unmute(connection)
        if self._left:
            self._let_go()
        if self._gate is not None:
            self._read_starved(self._gate)
        if now_ns < self._chores_due_ns:
            return
        self._chores_due_ns = now_ns + CHORES_INTERVAL_NS
        scratch_bytes = min(SCRATCH_BYTES, max(SCRATCH_BYTES_MIN, READ_AHEAD_BYTES // (len(self._connections) or 1)))
        self._scratch = self._whole_scratch[:scratch_bytes]
        if self._settings.idle_ms_max >= 0:
            for connection in self._idle.take_expired(now_ns):
                self._close(connection, f"idle for more than {self._settings.idle_ms_max} ms")
        if self._quotas.is_exceeded(self._settings.listener_name):
            self._close_least_recently_used()

    def _let_go(self) -> None:
        """Close some of the connections whose clients left, once all that they sent is read (rule 6).

        Why not at their events: when thousands leave at once, what others sent would be found behind all of them.
        """
        for _ in range(min(CLOSES_A_TURN, len(self._left))):
            connection = self._left.popleft()
            if self._connections.get(connection.fd) is not connection:  # closed or handed over meanwhile
                continue
            if connection.is_broken:
                self._close(connection, "")
            elif not connection.is_muted:
                self._read(connection)
        self._queue_requests()

    def _read_starved(self, gate: MemoryGate) -> None:
        """Read the connections that waited for memory, while there is some."""
        while (connection := gate.next_admitted()) is not None:
            if self._connections.get(connection.fd) is connection and not connection.is_muted:
                self._read(connection)
        self._queue_requests()

    def _close_least_recently_used(self) -> None:
        oldest = self._idle.least_recently_active()
        if oldest is not None:
            self._close(oldest, "too many connections, and this one was used least recently")

    def _close(self, connection: Connection, reason: str) -> None:
        """Close a connection and forget what was still to be sent; `reason` "" is nothing to talk about."""
        assert self._owner.is_current()
        if connection.is_closed:
            return
        connection.is_closed = True
        if reason:
            log.info("closing connection %s: %s", connection.context.connection_id, reason)
        del self._connections[connection.fd]
        self._idle.discard(connection)
        if self._gate is not None:
            self._gate.forget(connection)
            if connection.request is None:  # else a handler has its frame, until it answers
                self._gate.release(connection)
        self._selector.unregister(connection.fd)
        try:
            connection.transport.close()
        except OSError as error:
            log.debug("closing connection %s: %s", connection.context.connection_id, error)
        connection.outgoing = connection.answered = None
        self._quotas.release(self._settings.listener_name, connection.context.client_address)
        self.metrics.closed(connection.client_software)

    def _close_all(self) -> None:
        while not self.inbox.empty():
            self._register(self.inbox.get_nowait())
        for connection in list(self._connections.values()):
            self._close(connection, "")
        self._selector.close()
        self._owner.release()


def _only_whole(_size_bytes: int) -> bool:
    """Let no frame begin of which the rest is missing."""
    return False
