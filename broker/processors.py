"""Network processors: the threads that read requests from their own connections and write responses to them.

Steps of a turn (`Processor.run`): take over new connections; send what handlers answered; ask the selector for events;
read requests; finish sends; do the chores that are due. A turn does everything there is to do before it sleeps.

Rules
1. A processor never looks into a request: it cuts frames and queues them. Handlers never touch a socket.
2. A connection is muted from the moment its frame is queued until its response is fully sent and its throttle time is
   over. Then the processor looks for the next frame at once, since no edge will report it. Frames that came whole in
   the same read are queued with it as its run (`RUN_MAX`): a handler carries them out one after the other
   (request_channel.py, rule 4). Their responses are sent together, with one wake-up of the client. A parked request
   ends that: the rest of the run is queued when its answer is sent. Carrying on while a produce waits for its replicas
   would spare followers many fetches, but breaks idempotence. A producer with five requests in flight would have all of
   them in the log, unanswered, when the leader changes. The next leader has them too and appends newer batches. It
   remembers five batches a producer, so it no longer knows the first old one when the producer repeats it, and answers
   OUT_OF_ORDER_SEQUENCE_NUMBER for ever (found by `make stress`). A request that was not carried out leaves a gap,
   which makes the next leader wait.
3. A client's error ends only its own connection, with one line in the log.
4. The processor blocks in one place besides its selector: while the request queue is full. Response queues never block,
   so handlers continue and empty the request queue.
5. A connection changes its processor at most once, between two requests: when it turns out to move large pieces
   (`LARGE_BYTES`), it is assigned in turn (acceptor.py, rule 3 says why).
6. No turn is long because one connection moves much, or many connections do something at once. A large request or
   response continues in the next turn. Each turn opens and closes a limited number of connections. Idle ones are found
   without a scan (idle_connections.py). A connection holds a bounded amount of memory: one frame, which the memory pool
   counts if there is one (memory_pool.py), one read ahead (`READ_AHEAD_BYTES`; with TLS a record more), and one
   response or those of a run, which are small (requests/dispatcher.py, `GOES_ON_BYTES_MAX`).
7. Finished requests are recorded together, once a turn, when handlers have work and before the processor may sleep. The
   code and counters for that are then loaded into the CPU's caches once, not for each request.
8. Clients that are not authenticated must not slow others down. On a listener with TLS or SASL all that is done for
   them is done in steps, after the requests that were read, while their share of time lasts
   (network/unauthenticated/steps.py).
9. Small requests that are there at the same time are received by one call, and the small responses of a turn are sent
   by one (network/batches/many_sockets.py). While nothing else happens, the rest of a large response is sent where the
   processor waits, whenever the client's socket has space (network/batches/many_parts.py).

Threads: each processor is one; the acceptor fills its `inbox`, any thread its response queue.
Source: Kafka's SocketServer.Processor, Selector (4.3).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import queue
from collections import deque
from typing import TYPE_CHECKING, Final

from barnabas.broker.network.batches.many_parts import OUTPUTS, failure
from barnabas.broker.network.batches.many_sockets import AT_ONCE, SENT_BYTES_MAX, receive_each, send_each
from barnabas.broker.network.connection import Connection, InvalidFrameError
from barnabas.broker.network.connections import Accepted, Connections, ListenerSettings
from barnabas.broker.network.event_wait import Events, EventWait
from barnabas.broker.network.memory_pool import MemoryGate, MemoryPool
from barnabas.broker.network.network_metrics import ProcessorMetrics
from barnabas.broker.network.sasl.logins import Logins
from barnabas.broker.network.selector import BROKEN, HUNG_UP, READABLE, WRITABLE, EdgeSelector
from barnabas.broker.network.throttled_connections import ThrottledConnections
from barnabas.broker.network.transport import PlainTransport
from barnabas.broker.network.unauthenticated.steps import Steps
from barnabas.broker.request_channel import QueueClosed, RequestChannel, RequestQueue, ResponseQueue
from barnabas.broker.requests.request import CLOSING, Request
from barnabas.common.clock import NS_PER_MS, Clock
from barnabas.common.ownership import ThreadOwner
from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.broker.network.connection_quotas import ConnectionQuotas
    from barnabas.broker.network.unauthenticated.share import Share
    from barnabas.broker.quotas.client_quotas import ClientQuotas
    from barnabas.broker.requests.request_log import RequestLog
    from barnabas.protocol.schema import Part

log = logging.getLogger("barnabas.network")

TAKEN_OVER_A_TURN: Final = 20
PUSH_KEYS: Final = frozenset({4, 5, 6})  # LeaderAndIsr, StopReplica, UpdateMetadata
SASL_HANDSHAKE: Final = 17
SCRATCH_BYTES: Final = 64 * 1024
SECURE_SCRATCH_BYTES: Final = 128 * 1024  # with TLS: a receive buffer of Kafka's default size is read at once
SCRATCH_BYTES_MIN: Final = 4 * 1024
# Why not Final: a test changes it, and compiled code would ignore that.
READ_AHEAD_BYTES = 64 * 1024 * 1024  # what all connections of a processor may read beyond a frame's end
CLOSES_A_TURN: Final = 32
SLEEP_S: Final = 1.0  # while clients log in, whose limits are seconds, or max.connections is reached
SLEEP_S_MAX: Final = 5.0  # otherwise; an idle broker should not wake up
CHORES_INTERVAL_NS: Final = 250 * NS_PER_MS
LARGE_BYTES: Final = 64 * 1024  # of a request with its response
BUSY_POLL_BYTES_MAX: Final = 16 * 1024  # of a request that lets the processor go on spinning
RUN_MAX: Final = 8  # requests
LOGIN_READ_BYTES: Final = 4 * 1024  # at once, from a client that is not authenticated


class Processor:
    """One network thread with its selector and connections."""

    def __init__(
        self,
        processor_id: int,
        thread_name: str,
        settings: ListenerSettings,
        channel: RequestChannel,
        quotas: ConnectionQuotas,
        metrics: ProcessorMetrics,
        request_log: RequestLog,
        clock: Clock,
        pool: MemoryPool | None = None,
        client_quotas: ClientQuotas | None = None,
    ) -> None:
        # Fixed before start.
        self.id = processor_id
        self.metrics = metrics
        self._settings = settings
        self._requests = channel.requests
        self._control = None if settings.is_for_clients else channel.control
        self._request_log = request_log
        self._client_quotas = client_quotas
        self._recorder = request_log.metrics.recorder()  # replaced by its own when the processor's thread starts
        self._now_ns = clock.monotonic_ns
        self._selector = EdgeSelector()
        self.responses = ResponseQueue(self._selector.wake)
        self.inbox: queue.Queue[Accepted | Connection] = queue.Queue(settings.inbox_size)
        self._owner = ThreadOwner()
        self._service = ServiceThread(thread_name, f"net-{settings.listener_name[:8]}-{processor_id}", self.run)
        # Set by others.
        self._is_running = True  # cleared by `begin_shutdown`
        self._is_reading = True  # cleared by `stop_reading`
        self._has_ended = False  # set by the processor's own thread: its inbox is not emptied any more
        self.next_processor: Callable[[], Processor] = lambda: self  # set before start; the next in turn
        # owner: processor
        self._gate: MemoryGate[Connection] | None = None if pool is None else MemoryGate(pool, self.responses.interrupt)
        self._connections = Connections(
            processor_id, settings, self._selector, quotas, metrics, self._gate, self._owner, self._now_ns, self._resume
        )
        self._steps = (  # None: the listener's clients need not be authenticated
            None
            if settings.share is None
            else Steps(settings.share, self._open, self._continue, self.responses.has_waiting)
        )
        self._logins = (
            None
            if settings.sasl is None
            else Logins(settings.sasl, self._connections, metrics, settings.frame_size_max)
        )
        self._hung_up: deque[Connection] = deque()  # their clients send no more; not closed yet
        self._unfinished: deque[Connection] = deque()  # moved much in their turn; they continue in the next
        # Their sockets were full since the last wait; at most one more than OUTPUTS.
        self._blocked: list[Connection] = []
        self._ready: list[Request] = []  # read in this turn, not queued yet
        self._finished: list[Request] = []  # answered, not recorded yet
        self._wait = EventWait(
            self._selector, self._requests, self.responses, settings.busy_poll, metrics.idle, clock.monotonic_ns
        )
        self._queued_last = 0  # how many requests it queued last
        self._is_quiet = False  # nothing happened while it slept last; it may then sleep for longer
        self._sleep_s_max = min(max(SLEEP_S, self._connections.idle_step_s), SLEEP_S_MAX)  # fixed before start
        self._throttled = ThrottledConnections()
        self._is_timing = False  # whether its time for a connection counts for a quota; looked up once a turn
        self._queueing = 0  # requests being put into the request queue, which may be full
        scratch_bytes = SCRATCH_BYTES if settings.tls is None else SECURE_SCRATCH_BYTES
        self._whole_scratch = memoryview(bytearray(scratch_bytes))
        self._scratch = self._whole_scratch  # the part that one read may fill
        self._login_scratch = self._whole_scratch[:LOGIN_READ_BYTES]
        self._chores_due_ns = 0

    # Called by any thread

    def start(self) -> None:
        """Start the thread."""
        self._service.start()

    def offer(self, accepted: Accepted | Connection, timeout_s: float = 0) -> bool:
        """Hand over an accepted socket, or another processor's connection.

        Returns false if the inbox stays full for `timeout_s`, or if it has ended (num.network.threads was lowered).
        """
        try:
            self.inbox.put(accepted, timeout_s > 0, timeout_s or None)
        except queue.Full:
            return False
        if self._has_ended and self._take_back(accepted):
            return False
        self.responses.interrupt()
        return True

    def _take_back(self, accepted: Accepted | Connection) -> bool:
        """Remove from the inbox what came after the processor's end; false if it came in time and was closed."""
        with self.inbox.mutex:
            if accepted not in self.inbox.queue:
                return False
            self.inbox.queue.remove(accepted)
            return True

    def load(self) -> int:
        """Return how many connections it has, those that it has not taken over included."""
        return self._connections.count() + self.inbox.qsize() + self._waiting_sockets()

    def _waiting_sockets(self) -> int:
        return 0 if self._steps is None else self._steps.waiting_sockets()

    def has_space(self, waiting_max: int) -> bool:
        """Return whether fewer accepted sockets than that wait for it; they wait in the order in which they came."""
        return self.inbox.qsize() + self._waiting_sockets() < waiting_max

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
        """The listener whose connections it serves."""
        return self._settings.listener_name

    def connections(self) -> list[Connection]:
        """Return a snapshot of its connections, which go on changing, for the live page."""
        return self._connections.snapshot()

    def handshakes(self) -> int:
        """Return how many TLS handshakes are not complete."""
        return self._connections.handshakes.count()

    def throttled(self) -> list[Connection]:
        """Return the connections that wait because of a quota; from any thread."""
        now_ns = self._now_ns()
        return [c for c in self._throttled.snapshot() if c.muted_until_ns > now_ns and not c.is_closed]

    def queueing(self) -> int:
        """Return how many requests it is putting into the request queue now."""
        return self._queueing

    # Called by the processor's own thread

    def run(self) -> None:
        """Do turns until `begin_shutdown`."""
        self._owner.claim()
        self._recorder = self._request_log.metrics.recorder()
        self.metrics.started()
        try:
            while self._is_running:
                try:
                    self._is_timing = self._client_quotas is not None and self._client_quotas.request is not None
                    self._configure_new_connections()
                    self._send_responses()
                    if self._unfinished:
                        self._continue_unfinished()
                    self._queue_requests()
                    self._record_finished()
                    self._handle_events(self._poll())
                    self._queue_requests()
                    if self._steps is not None and self._steps.waiting:
                        self._steps.do()
                    self._do_chores()
                except Exception:
                    # Why: a processor that ends leaves all its connections hanging. Errors of one connection are
                    # caught where they happen; this is for bugs.
                    log.exception("processor %d got an uncaught exception", self.id)
            self._send_responses()
            self._record_finished()
        finally:
            self._wait.stop()
            self._close_all()

    def _configure_new_connections(self) -> None:
        """Take over accepted sockets, some a turn, so that other connections do not wait."""
        if not self.inbox.queue:  # Why not `empty`: it takes the inbox's lock, in every turn of the processor
            return
        for _ in range(TAKEN_OVER_A_TURN):
            try:
                accepted = self.inbox.get_nowait()
            except queue.Empty:
                return
            self._register(accepted)

    def _register(self, accepted: Accepted | Connection) -> None:
        if isinstance(accepted, Connection):
            self._adopt(accepted)
        elif self._steps is not None:
            self._steps.accept(accepted)
        else:
            self._connections.open(accepted)

    def _adopt(self, connection: Connection) -> None:
        """Take over a connection that another processor had (rule 5)."""
        self._connections.adopt(connection)
        self._unmute(connection)

    def _hand_over(self, connection: Connection) -> bool:
        """Give a connection that is between two requests to the next processor in turn; false if that is this one."""
        other = self.next_processor()
        if other is self:
            return False
        self._connections.release(connection)
        if not other.offer(connection):
            self._adopt(connection)
        return True

    def _send_responses(self) -> None:
        """Begin to send all queued responses."""
        if self._requests.slow_motion is not None and self.responses.qsize():
            self._requests.slow_motion.before_sending(self.responses)
        answered = self.responses.take_all()
        if not answered:
            return
        now_ns = self._now_ns()
        gate = self._gate
        ready: list[Connection] = []
        held: list[Connection] = []  # more of their runs is answered soon, perhaps in this turn
        for request in answered:
            request.response_dequeued_ns = now_ns
            connection = request.connection
            assert isinstance(connection, Connection)
            if gate is not None and not request.goes_on:
                gate.release(connection)
            if connection.is_closed:
                self._request_log.dropped(request)
                if not request.goes_on:
                    connection.request = None  # they refer to each other
                continue
            self._take_answer(connection, request)
            if request.goes_on:
                held.append(connection)
            else:
                ready.append(connection)
        self._answer_all(ready)
        for connection in held:
            # Why asked: it may have been answered since, and then closed or given to another processor.
            if self._connections.has(connection) and connection.answered is not None:
                self._answer(connection)

    def _take_answer(self, connection: Connection, request: Request) -> None:
        if request.client_software_name:
            self._connections.identify(connection, (request.client_software_name, request.client_software_version))
        if request.api_throttle_ms > 0:
            connection.throttle = request.throttle
            self._throttled.add(connection, request.api_remote_done_ns + request.api_throttle_ms * NS_PER_MS)
        connection.take_answer(request)

    def _answer(self, connection: Connection) -> None:
        """Send the responses to a run that are known so far."""
        if connection.outgoing is None:
            self._conclude(connection)
        else:
            self._send(connection)

    def _answer_all(self, ready: list[Connection]) -> None:
        """Send the responses to the runs of several connections: small ones together, and before the others."""
        if len(ready) == 1 or self._is_timing:
            for connection in ready:
                self._answer(connection)
            return
        small: list[Connection] = []
        others: list[Connection] = []
        outputs: list[bytes] = []
        size = 0
        for connection in ready:
            output = connection.small_output()
            if output is None:
                others.append(connection)
                continue
            small.append(connection)
            outputs.append(output)
            size += len(output)
            if len(small) == AT_ONCE or size >= SENT_BYTES_MAX:
                self._send_small(small, outputs)
                small, outputs, size = [], [], 0
        if small:
            self._send_small(small, outputs)
        for connection in others:
            self._answer(connection)

    def _send_small(self, small: list[Connection], outputs: list[bytes]) -> None:
        sent = send_each([connection.fd for connection in small], outputs)
        for index, count in enumerate(sent):
            try:
                self._note_sent(small[index], outputs[index], count)
            except Exception:
                self._give_up(small[index])

    def _give_up(self, connection: Connection) -> None:
        """Close a connection after an uncaught exception. Why: what was received or sent of others must be noted."""
        log.exception("processor %d got an uncaught exception and closes a connection", self.id)
        try:
            if self._connections.has(connection):
                self._connections.close(connection, "")
        except Exception:
            log.exception("processor %d got another one while it closed the connection", self.id)

    def _note_sent(self, connection: Connection, output: bytes, count: int) -> None:
        """Note what `send_each` returned for a connection."""
        if count < 0 and count != -errno.EAGAIN:
            self._end_sending(connection, str(failure(-count)))
            return
        connection.outgoing = None if count == len(output) else [memoryview(output)[max(count, 0) :]]
        self._end_send(connection)

    def _send(self, connection: Connection) -> None:
        """Continue sending a connection's response; when it is sent, look for the next request."""
        assert connection.outgoing is not None
        started_ns = self._now_ns() if self._is_timing else 0
        try:
            connection.outgoing = connection.transport.send(connection.outgoing)
        except OSError as error:
            self._end_sending(connection, str(error))
            return
        except Exception:
            self._give_up(connection)
            return
        if started_ns:
            connection.thread_ns += self._now_ns() - started_ns
        self._end_send(connection)

    def _end_sending(self, connection: Connection, error: str) -> None:
        self._connections.close(connection, f"the client went away while being answered ({error})")

    def _end_send(self, connection: Connection) -> None:
        """Conclude the response if it is sent, or wait for the client."""
        if connection.outgoing is not None:
            connection.last_active_ns = self._now_ns()
            if connection.transport.may_go_on:
                connection.transport.may_go_on = False
                self._unfinished.append(connection)
            else:
                self._note_blocked(connection)
            return
        self._conclude(connection)

    def _note_blocked(self, connection: Connection) -> None:
        """Let a response go on while the processor waits, when its socket has space again.

        Otherwise an edge reports that. Why not more of them: to look for a connection must not take long.
        """
        is_plain = connection.is_authenticated and connection.secure is None
        if is_plain and len(self._blocked) <= OUTPUTS and connection not in self._blocked:
            self._blocked.append(connection)

    def _conclude(self, connection: Connection) -> None:
        """End the requests whose responses are sent; the rest of their run follows, or the next request."""
        request, last = connection.request, connection.answered
        if request is None:
            self._continue_login(connection)
            return
        assert last is not None
        connection.answered = None
        connection.last_active_ns = now_ns = self._now_ns()
        if connection.thread_ns:
            self._charge(connection, last)
        while True:
            request.sent_ns = now_ns
            self._finished.append(request)
            if not connection.is_large and request.size_bytes + request.response_size_bytes >= LARGE_BYTES:
                connection.is_large = connection.may_change_processor = True
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
            self._connections.close(connection, "")
        else:
            self._unmute(connection)

    def _charge(self, connection: Connection, last: Request) -> None:
        """Charge the time that this thread took for a connection to the client of its last request."""
        if self._client_quotas is not None:
            self._client_quotas.add_network_time(last, connection.thread_ns)
        connection.thread_ns = 0

    def _take_login(self, connection: Connection, frame: memoryview, now_ns: int) -> bool:
        """Give a frame to the connection's login and send the answer; false if the frame is a request."""
        logins = self._logins
        assert logins is not None
        if not logins.take(connection, frame, now_ns):
            return False
        if connection.outgoing is not None:
            self._send(connection)
        elif self._connections.has(connection) and logins.is_satisfied(connection):
            self._continue_login(connection)
        return True

    def _continue_login(self, connection: Connection) -> None:
        """Let the next frame in after an answer of the connection's authenticator; close it if the login failed."""
        authenticator = connection.authenticator
        assert authenticator is not None
        if authenticator.is_failed:
            self._connections.close(connection, "")
            return
        connection.is_muted = False
        if connection.may_have_input or not connection.frames.is_at_boundary():
            # Why not read here: a client would decide how deep the calls are.
            if connection.is_authenticated:
                self._unfinished.append(connection)
            else:
                self._resume(connection)

    def _record_finished(self) -> None:
        """Record the requests finished since the last turn (rule 7)."""
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
            connection.throttle = None
        if connection.may_change_processor:
            connection.may_change_processor = False
            if self._hand_over(connection):
                return
        if connection.postponed is not None:
            self._queue_postponed(connection, connection.postponed)
            return
        connection.is_muted = False
        if connection.may_have_input or not connection.frames.is_at_boundary():
            self._read(connection)

    def _queue_postponed(self, connection: Connection, postponed: Request) -> None:
        """Queue the rest of a run, as if it had been read only now."""
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

    def _poll(self) -> Events:
        """Ask the selector; wait only when nothing is left to do."""
        steps_ns = self._steps.wait_ns() if self._steps is not None and self._steps.waiting else None
        if self._ready or self._hung_up or self._unfinished or steps_ns == 0:
            return self._selector.poll(0)
        if self._queued_last == 1:
            events = self._wait.for_answer()
            if events or self.responses.has_waiting():
                return events
        if not self.responses.may_sleep():
            return self._selector.poll(0)
        if self.inbox.queue:  # checked after `may_sleep`: a later offer wakes
            return self._selector.poll(0)
        if self._gate is not None and self._gate.is_due():  # likewise: memory given back later wakes
            return self._selector.poll(0)
        now_ns = self._now_ns()
        due_ns = self._due_ns(now_ns)
        if steps_ns is not None and (due_ns is None or steps_ns < due_ns):
            due_ns = steps_ns
        timeout_s = self._sleep_s() if self._is_quiet else SLEEP_S
        if due_ns is not None:
            timeout_s = min(timeout_s, (due_ns + NS_PER_MS) / 1e9)
        if self._blocked:
            return self._wait_and_send(now_ns, timeout_s)
        return self._wait_for_events(now_ns, timeout_s)

    def _wait_for_events(self, now_ns: int, timeout_s: float) -> Events:
        events = self._wait.for_events(now_ns, timeout_s)
        self._is_quiet = not events
        return events

    def _wait_and_send(self, now_ns: int, timeout_s: float) -> Events:
        """Wait for events; go on sending responses whenever their clients' sockets have space (rule 9)."""
        noted, self._blocked = self._blocked, []
        blocked = [c for c in noted if c.outgoing is not None and self._connections.has(c)]
        if not blocked or len(blocked) > OUTPUTS or self._is_timing:
            return self._wait_for_events(now_ns, timeout_s)
        outgoing = [connection.outgoing or [] for connection in blocked]
        try:
            events, sent = self._wait.while_sending(now_ns, timeout_s, [c.fd for c in blocked], outgoing)
        except Exception:
            for connection in blocked:  # Why all: nobody knows what was sent
                self._give_up(connection)
            return []
        self._is_quiet = not events
        for connection, parts, (done, count, is_full, error) in zip(blocked, outgoing, sent, strict=True):
            try:
                self._note_progress(connection, parts, done, count, is_full, error)
            except Exception:
                self._give_up(connection)
        return events

    def _note_progress(
        self, connection: Connection, parts: list[Part], done: int, count: int, is_full: bool, error: int
    ) -> None:
        """Note what was sent to a connection while the processor waited.

        Why nothing if that is nothing: a client that does not read costs one such wait. An edge reports when it reads.
        """
        if error:
            self._end_sending(connection, str(failure(error)))
        elif (done or count) and connection.outgoing is parts:  # not closed meanwhile
            self._is_quiet = False
            assert isinstance(connection.transport, PlainTransport)
            connection.outgoing = connection.transport.rest(parts, done, count, is_full)
            self._end_send(connection)

    def _sleep_s(self) -> float:
        """Return how long the chores may wait if nothing happens."""
        connections, logins = self._connections, self._logins
        if connections.handshakes.count() or (logins is not None and logins.count()) or connections.may_have_excess():
            return SLEEP_S
        return self._sleep_s_max

    def _due_ns(self, now_ns: int) -> int | None:
        """Return the nanoseconds until a throttle time or the delay of a failed login ends; None if there is none."""
        throttled_ns = self._throttled.wait_ns(now_ns)
        failed_ns = self._logins.wait_ns(now_ns) if self._logins is not None and self._logins.failed else None
        if throttled_ns is None or failed_ns is None:
            return failed_ns if throttled_ns is None else throttled_ns
        return min(throttled_ns, failed_ns)

    def _handle_events(self, events: Events) -> None:
        connections = self._connections.by_fd
        readers: list[Connection] = []
        for fd, event in events:
            connection = connections.get(fd)
            if connection is None:  # the wake-up, or closed earlier in this turn
                continue
            if not connection.is_authenticated and self._steps is not None:
                self._steps.note(connection, event)
                continue
            if event & BROKEN:
                connection.is_broken = True
                self._hung_up.append(connection)
                continue
            if event & WRITABLE and connection.outgoing is not None:
                self._send(connection)
            if event & READABLE and connections.get(fd) is connection:  # not closed or handed over meanwhile
                connection.may_have_input = True
                if event & HUNG_UP:
                    connection.is_hung_up = True
                    self._hung_up.append(connection)
                elif not connection.is_muted:
                    readers.append(connection)
        self._read_all(readers)

    def _read_all(self, readers: list[Connection]) -> None:
        """Read the next requests of several connections: those that are probably small together, and first."""
        if len(readers) == 1 or self._is_timing or not self._is_reading:
            for connection in readers:
                self._read(connection)
            return
        small: list[Connection] = []
        others: list[Connection] = []
        for connection in readers:
            (small if connection.reads_small() else others).append(connection)
        for start in range(0, len(small), AT_ONCE):
            received = receive_each([connection.fd for connection in small[start : start + AT_ONCE]])
            for index, chunk in enumerate(received, start):
                try:
                    self._read_received(small[index], chunk)
                except Exception:
                    self._give_up(small[index])
        for connection in others:
            self._read(connection)

    def _read_received(self, connection: Connection, received: bytearray | int) -> None:
        """Take what `receive_each` returned for a connection."""
        try:
            frame = connection.take_frame(received)
        except (InvalidFrameError, OSError, EOFError) as error:
            self._end_reading(connection, error)
            return
        connection.last_active_ns = now_ns = self._now_ns()
        self._take_frame(connection, frame, now_ns)

    def _read(self, connection: Connection) -> None:
        """Read the connection's next request, if all of it is there."""
        if not self._is_reading:
            return
        started_ns = self._now_ns() if self._is_timing else 0
        try:
            frame = connection.read_frame(self._scratch)
        except (InvalidFrameError, OSError, EOFError) as error:
            self._end_reading(connection, error)
            return
        if frame is not None and self._gate is not None:
            self._gate.count_whole(connection, len(frame))
        connection.last_active_ns = now_ns = self._now_ns()
        if started_ns:
            connection.thread_ns += now_ns - started_ns
        self._take_frame(connection, frame, now_ns)

    def _take_frame(self, connection: Connection, frame: memoryview | None, now_ns: int) -> None:
        """Begin the request of a frame that was read, or go on reading if it is not whole."""
        if frame is None:
            if connection.may_have_input and not connection.frames.is_held():
                self._unfinished.append(connection)
            return
        if connection.may_log_in and self._take_login(connection, frame, now_ns):
            return
        request = Request(connection, self, connection.context, frame)
        request.received_ns = now_ns
        connection.mute(request)
        self._ready.append(request)
        if not connection.frames.is_at_boundary():
            self._add_following(connection, request)
        elif self._control is not None and len(frame) > 1 and frame[1] in PUSH_KEYS and not frame[0]:
            self._queue_push(self._control)

    def _end_reading(self, connection: Connection, error: Exception) -> None:
        """Close a connection that cannot be read any further; a login that is in progress fails."""
        if not isinstance(error, InvalidFrameError):
            self._connections.close(connection, str(error) if isinstance(error, OSError) else "")
        elif self._logins is None or not self._logins.refuse(connection, str(error), self._now_ns()):
            self._connections.close(connection, str(error), logging.WARNING)

    def _queue_push(self, control: RequestQueue) -> None:
        """Queue the last request read for the control plane; if its queue is full, treat it like any other."""
        try:
            control.put(self._ready[-1], block=False)
        except queue.Full:
            return
        except QueueClosed:
            log.debug("processor %d dropped a push at shutdown", self.id)
        self._ready.pop()

    def _add_following(self, connection: Connection, request: Request) -> None:
        """Let frames that came whole with a request follow it (rule 2)."""
        size = 0
        for _ in range(RUN_MAX - 1):
            if connection.may_log_in and connection.frames.next_key() == SASL_HANDSHAKE:
                break  # the client authenticates again
            try:
                frame = connection.frames.next_frame(_only_whole)
            except InvalidFrameError:  # raised again when the request is answered
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

    def _continue_unfinished(self) -> None:
        """Continue the connections that moved much in the last turn (rule 6)."""
        for _ in range(len(self._unfinished)):
            connection = self._unfinished.popleft()
            if not self._connections.has(connection):
                continue
            if connection.outgoing is not None:
                self._send(connection)
            elif not connection.is_muted:
                self._read(connection)

    def _resume(self, connection: Connection) -> None:
        """Let a step follow for a connection that is not authenticated."""
        assert self._steps is not None
        self._steps.resume(connection)

    def _open(self, accepted: Accepted) -> None:
        connection = self._connections.open(accepted)
        if self._logins is not None and connection.handshake is None:
            self._logins.opened(connection, connection.last_active_ns)

    def _continue(self, connection: Connection) -> None:
        """Continue the TLS handshake or the login of a connection, or end it."""
        if not self._connections.has(connection):
            return
        logins = self._logins
        if connection.handshake is not None:
            if not self._connections.continue_handshake(connection):
                return
            if logins is None:
                self._read(connection)
                return
            logins.opened(connection, connection.last_active_ns)
        authenticator = connection.authenticator
        assert logins is not None
        assert authenticator is not None
        if connection.is_broken:
            self._connections.close(connection, "")
        elif connection.outgoing is not None:
            self._send(connection)
        elif authenticator.is_failed:
            self._connections.close(connection, "")
        elif not connection.is_muted:
            self._read_login(logins, connection)

    def _read_login(self, logins: Logins, connection: Connection) -> None:
        """Read the next frame of a client that is not authenticated, if all of it is there."""
        if not self._is_reading:
            return
        try:
            frame = connection.read_frame(self._login_scratch)
        except (InvalidFrameError, OSError, EOFError) as error:
            self._end_reading(connection, error)
            return
        connection.last_active_ns = now_ns = self._now_ns()
        if frame is not None:
            self._take_login(connection, frame, now_ns)
        elif connection.may_have_input:
            self._resume(connection)
        if not connection.is_authenticated and not connection.is_closed:
            logins.hold(connection)

    def _queue_requests(self) -> None:
        """Queue the requests read, blocking while the queue is full (rule 4)."""
        if not self._ready:
            return
        if self._requests.slow_motion is not None:
            self._requests.slow_motion.before_queueing()
        ready, self._ready = self._ready, []
        self._queueing = self._queued_last = len(ready)
        if ready[0].size_bytes > BUSY_POLL_BYTES_MAX:
            self._wait.stop()
        try:
            self._requests.put_all(ready)
        except QueueClosed:
            log.debug("processor %d dropped %d requests at shutdown", self.id, len(ready))
        self._queueing = 0

    def _do_chores(self) -> None:
        """Do what is due: end throttles, close connections that hung up, were idle too long or are too many."""
        now_ns = self._now_ns()
        while (connection := self._throttled.next_expired(now_ns)) is not None:
            if self._connections.has(connection) and connection.is_muted and connection.request is None:
                self._unmute(connection)
        if self._logins is not None and self._logins.failed:
            self._end_logins(self._logins, now_ns)
        if self._hung_up:
            self._close_hung_up()
        if self._gate is not None:
            self._read_starved(self._gate)
        if now_ns < self._chores_due_ns:
            return
        self._chores_due_ns = now_ns + CHORES_INTERVAL_NS
        share = READ_AHEAD_BYTES // (self._connections.count() or 1)
        self._scratch = self._whole_scratch[: max(SCRATCH_BYTES_MIN, share)]
        if self._settings.share is not None:
            self._close_late(self._settings.share, now_ns)
        self._connections.close_idle(now_ns)
        self._connections.close_excess()

    def _end_logins(self, logins: Logins, now_ns: int) -> None:
        """Let steps answer and close the connections whose logins failed a while ago."""
        for connection in logins.take_ended(now_ns):
            self._resume(connection)

    def _close_late(self, share: Share, now_ns: int) -> None:
        """Close connections that take too long to be authenticated, at the expense of others that are not."""
        began_ns = share.cpu_ns()
        self._connections.close_half_open(now_ns)
        if self._logins is not None:
            self._logins.close_overdue(now_ns)
        share.charge(share.cpu_ns() - began_ns)

    def _close_hung_up(self) -> None:
        """Close some of the connections whose clients hung up, once all that they sent is read (rule 6).

        Why not at their events: when thousands hang up at once, requests of others would wait behind all of them.
        """
        for _ in range(min(CLOSES_A_TURN, len(self._hung_up))):
            connection = self._hung_up.popleft()
            if not self._connections.has(connection):
                continue
            if connection.is_broken:
                self._connections.close(connection, "")
            elif not connection.is_muted:
                self._read(connection)
        self._queue_requests()

    def _read_starved(self, gate: MemoryGate[Connection]) -> None:
        """Read the connections that waited for memory, while there is some."""
        while (connection := gate.next_admitted()) is not None:
            if self._connections.has(connection) and not connection.is_muted:
                self._read(connection)
        self._queue_requests()

    def _close_all(self) -> None:
        self._has_ended = True  # Why first: what is offered from now on is taken here, or back by its owner
        with contextlib.suppress(queue.Empty):
            while True:
                self._register(self.inbox.get_nowait())
        if self._steps is not None:
            for accepted in self._steps.take_accepted():
                self._connections.open(accepted)
        self._connections.close_all()
        self.responses.end()  # Why after: a connection without a request in progress gives its memory back itself
        self._selector.close()
        self._owner.release()


def _only_whole(_size_bytes: int) -> bool:
    """Admit no frame whose end is missing."""
    return False
