"""Acceptors: one thread a listener, which accepts connections and assigns them to the listener's processors.

Rules
1. An acceptor never reads what a client sends.
2. A connection is counted by the quotas before it is assigned; from then on its processor must release it.
3. Each processor gets `connections_per_processor` connections (barnabas.connections.per.processor) before the next one
   gets any. After that all are assigned in turn, as Kafka always does. With a global interpreter lock, threads that
   wake for a few connections each only pass the lock around: one thread answers many small requests faster. The inbox
   has space for as many, so that clients that connect at once stay together. A connection that moves large pieces is
   assigned in turn after all (`next_processor`), since the kernel does most of that work and several threads can run
   in it at once. Without a global lock, as many processors are filled together as threads of a kind can run at once
   (`parallel_threads`).
4. A processor whose inbox is full is skipped. When all are full, the acceptor waits for the last: clients then wait in
   the kernel's backlog.
5. A connection of an address that opens them too fast (connection_creation_rate) is closed when the address is back
   within its rate, so that its client does not try again at once. At most `DELAYED_MAX` wait for that.
6. The last file descriptors of the process are reserved for files. When connections have taken all others, clients wait
   in the backlog until some are free, so that a log can still open its next segment. One log line reports it.
7. On a listener with TLS or SASL, accepted connections wait here while the processors have no time for clients that are
   not authenticated (network/unauthenticated/). Networks take turns. While the processor that comes next by rule 3 has
   enough of them, they wait here and not there, since only here they take turns. Those whose clients have left
   meanwhile are closed. Under load the acceptor has a share of time, too, and rests when that is used up, so that many
   new connections interrupt the other threads rarely.

Threads: the acceptor's own, except `resize`, `start`, `begin_shutdown` and `join`, which the server calls.
Source: Kafka's SocketServer.Acceptor (4.3).
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import logging
import os
import selectors
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.network.connection_quotas import ConnectionThrottledError, TooManyConnectionsError
from barnabas.broker.network.connections import INBOX_SIZE, Accepted
from barnabas.broker.network.unauthenticated.waiting_sockets import WaitingSockets
from barnabas.common import net
from barnabas.common.clock import NS_PER_MS, NS_PER_S
from barnabas.common.disk.open_files import descriptors_for_connections
from barnabas.common.logs import LogLimit
from barnabas.common.threads import ServiceThread

if TYPE_CHECKING:
    from barnabas.broker.network.connection_quotas import ConnectionQuotas
    from barnabas.broker.network.unauthenticated.share import Share
    from barnabas.broker.processors import Processor
    from barnabas.common.clock import Clock
    from barnabas.metrics.meters import Meter

log = logging.getLogger("barnabas.network")

ACCEPTS_A_TURN_MAX = 256
UNAUTHENTICATED_A_TURN_MAX = 128
UNAUTHENTICATED_WAIT_MAX = 4  # for a processor, while requests are under way
_LOOK_AGAIN_S = 0.02
DELAYED_MAX = 1000
_OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_RECOVER_S = 0.1
_OFFER_S = 0.2


class Acceptor:
    """Accepts one listener's connections."""

    def __init__(
        self,
        server: socket.socket,
        listener_name: str,
        security_protocol: str,
        quotas: ConnectionQuotas,
        clock: Clock,
        blocked: Meter,
        make_processor: Callable[[], Processor],
        *,
        thread_prefix: str = "data-plane",
        send_buffer_bytes: int = net.DEFAULT_BUFFER_SIZE,
        connections_per_processor: int = 1,
        filled_together: int = 1,
        share: Share | None = None,
    ) -> None:
        # Fixed before start.
        self.listener_name = listener_name
        self.security_protocol = security_protocol
        self.port: int = server.getsockname()[1]
        self._server = server
        self._quotas = quotas
        self._clock = clock
        self._lines = LogLimit(log, clock.monotonic_ns)
        self._blocked = blocked
        self._make_processor = make_processor
        self._send_buffer_bytes = send_buffer_bytes
        self._connections_per_processor = connections_per_processor
        self._filled_together = filled_together
        self._share = share  # None: the clients of the listener need not be authenticated
        self._selector = selectors.DefaultSelector()
        self._stop_receiver, self._stop_sender = socket.socketpair()
        self._thread = ServiceThread(
            f"{thread_prefix}-kafka-socket-acceptor-ListenerName({listener_name})-{security_protocol}-{self.port}",
            f"acceptor-{self.port}",
            self._run,
        )
        self._delayed: list[tuple[int, int, socket.socket]] = []  # owner: acceptor; a heap of (due, number, socket)
        self._delayed_count = 0  # owner: acceptor; so far
        self._waiting = WaitingSockets()  # owner: acceptor
        self._inbox_max = INBOX_SIZE  # owner: acceptor; how many sockets may wait for a processor
        self._descriptors_max = 0  # owner: acceptor; descriptors from this number on are reserved for files
        self._is_running = True  # cleared by `begin_shutdown`
        self._lock = threading.Lock()  # a leaf
        self._processors: list[Processor] = []  # guarded by: _lock
        self._has_started = False  # guarded by: _lock; the processors run, and so must those that are added
        self._next_index = 0  # guarded by: _lock

    @property
    def processors(self) -> list[Processor]:
        """Return a copy of the list of processors."""
        with self._lock:
            return list(self._processors)

    def resize(self, count: int) -> list[Processor]:
        """Change the number of processors (num.network.threads); return those that the caller must end.

        New ones are started if the acceptor runs.
        """
        assert count > 0
        with self._lock:
            removed = self._processors[count:]
            del self._processors[count:]
            added = [self._make_processor() for _ in range(count - len(self._processors))]
            if self._connections_per_processor > 1:
                for processor in added:
                    processor.next_processor = self.next_processor
            self._processors += added
            if self._has_started:
                for processor in added:
                    processor.start()
        return removed

    def next_processor(self) -> Processor:
        """Return the next processor in turn; from any thread."""
        with self._lock:
            self._next_index += 1
            return self._processors[(self._next_index - 1) % len(self._processors)]

    def start(self) -> None:
        """Start the processors, then accept."""
        with self._lock:  # Why: another thread may add processors meanwhile, and each must be started by one of both
            self._has_started = True
            for processor in self._processors:
                processor.start()
        self._thread.start()

    def begin_shutdown(self) -> None:
        """Accept no more."""
        with self._lock:
            self._has_started = False
        if self._is_running:
            self._is_running = False
            self._stop_sender.send(b"\0")

    def join(self) -> None:
        """Wait for the end after `begin_shutdown`."""
        if self._thread.ident is not None:
            self._thread.join()
        else:
            self._server.close()
        self._selector.close()
        self._stop_sender.close()
        self._stop_receiver.close()

    def _run(self) -> None:
        self._selector.register(self._server, selectors.EVENT_READ)
        self._selector.register(self._stop_receiver, selectors.EVENT_READ)
        try:
            while self._is_running:
                self._selector.select(self._delay_s())
                try:
                    self._do_turn()
                except Exception:
                    # Why: a broker that accepts no more is of no use, and one connection may be the reason.
                    log.exception("the acceptor of listener %s got an uncaught exception", self.listener_name)
                    self._rest(_RECOVER_S)
        finally:
            for _, _, sock in self._delayed:
                net.close_quietly(sock)
            for accepted in self._waiting.take_all():
                net.close_quietly(accepted.sock)
            self._server.close()

    def _do_turn(self) -> None:
        if self._share is None:
            self._accept_all(ACCEPTS_A_TURN_MAX)
        else:
            self._accept_unauthenticated(self._share)
        self._close_delayed()

    def _accept_unauthenticated(self, share: Share) -> None:
        """Accept some of the waiting connections and give some to processors (rule 7)."""
        began_ns = share.cpu_ns()
        self._accept_all(UNAUTHENTICATED_A_TURN_MAX)
        now_ns = self._clock.monotonic_ns()
        for late in self._waiting.take_late(now_ns):
            net.close_quietly(late.sock)
        is_free = share.is_free()
        self._inbox_max = INBOX_SIZE if is_free else UNAUTHENTICATED_WAIT_MAX
        while self._waiting and self._is_running and self._has_space():
            accepted = self._waiting.take()
            # Why: clients that waited for long have given up, and a handshake with these would be wasted.
            if not is_free and net.is_hung_up(accepted.sock):
                net.close_quietly(accepted.sock)
            else:
                self._assign_unauthenticated(accepted)
        share.charge(share.cpu_ns() - began_ns)
        while self._is_running and (wait_ns := share.wait_ns()):
            self._rest(wait_ns / NS_PER_S)

    def _has_space(self) -> bool:
        """Return whether the processor that gets the next connection (rule 3) has space for it."""
        processors = self.processors
        if self._connections_per_processor > 1:
            for processor in self._in_order_of_filling(processors):
                if processor.load() < self._connections_per_processor:
                    return processor.has_space(self._inbox_max)
        return any(processor.has_space(self._inbox_max) for processor in processors)

    def _in_order_of_filling(self, processors: list[Processor]) -> list[Processor]:
        """Return the processors in the order in which they get connections (rule 3)."""
        together = self._filled_together
        return [*sorted(processors[:together], key=lambda processor: processor.load()), *processors[together:]]

    def _assign_unauthenticated(self, accepted: Accepted) -> None:
        try:
            self._set_up(accepted.sock, accepted.address, accepted.port)
        except OSError as error:
            self._fail(accepted.sock, accepted.address, error)

    def _fail(self, sock: socket.socket, address: str, error: OSError) -> None:
        if self._lines.admits(logging.WARNING, "connections could not be set up"):
            log.warning("closing a connection from %s, which could not be set up: %s", address, error)
        self._drop(sock, address)

    def _rest(self, seconds: float) -> None:
        """Accept nothing for a while, unless the end comes."""
        self._stop_receiver.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            self._stop_receiver.recv(1, socket.MSG_PEEK)

    def _accept_all(self, count_max: int) -> None:
        """Accept the waiting connections, some at a time, so that a stop is noticed."""
        for _ in range(count_max):
            if not self._is_running:
                return
            try:
                sock, peer = self._server.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._report(error)
                return
            if sock.fileno() >= self._descriptors_max and not self._has_descriptors(sock.fileno()):
                self._wait_for_descriptors("connections have taken all descriptors that are not reserved for files")
            address = net.plain_host(peer[0])
            if self._share is not None:
                lost = self._waiting.add(Accepted(sock, address, peer[1]), self._clock.monotonic_ns())
                if lost is not None:
                    net.close_quietly(lost.sock)
                continue
            try:
                self._set_up(sock, address, peer[1])
            except OSError as error:
                self._fail(sock, address, error)

    def _report(self, error: OSError) -> None:
        if error.errno in _OUT_OF_DESCRIPTORS:
            self._wait_for_descriptors(str(error))
        else:
            log.debug("a client went away before it was accepted: %s", error)

    def _wait_for_descriptors(self, reason: str) -> None:
        """Accept nothing until descriptors are free (rule 6).

        Why not the selector: it would report the backlog at once, again and again.
        """
        log.error("cannot accept connections on port %d: %s", self.port, reason)
        while self._is_running:
            self._rest(_RECOVER_S)
            try:
                lowest = os.dup(self._stop_receiver.fileno())
            except OSError:
                continue
            os.close(lowest)
            if self._has_descriptors(lowest):
                log.info("accepting connections on port %d again", self.port)
                return

    def _has_descriptors(self, lowest: int) -> bool:
        """Return whether another connection may be accepted; `lowest` is the lowest free descriptor."""
        self._descriptors_max = descriptors_for_connections()
        return lowest < self._descriptors_max

    def _set_up(self, sock: socket.socket, address: str, port: int) -> None:
        try:
            waited_ns = self._quotas.acquire(self.listener_name, address)
        except TooManyConnectionsError as error:
            if self._lines.admits(logging.INFO, "connections rejected"):
                log.info("rejected connection from %s: %s", address, error)
            self._drop(sock, address)
            return
        except ConnectionThrottledError as error:
            log.debug("closing a connection in %d ms: %s", error.throttle_ms, error)
            self._delay(sock, error.throttle_ms)
            return
        if waited_ns:
            self._blocked.mark(waited_ns)
        if not self._is_running:
            self._drop(sock, address)
            return
        net.configure_accepted(sock, self._send_buffer_bytes)
        self._assign(Accepted(sock, address, port))

    def _delay(self, sock: socket.socket, delay_ms: int) -> None:
        """Close a connection later (rule 5)."""
        if len(self._delayed) >= DELAYED_MAX:
            net.close_quietly(heapq.heappop(self._delayed)[2])
        self._delayed_count += 1
        due_ns = self._clock.monotonic_ns() + delay_ms * NS_PER_MS
        heapq.heappush(self._delayed, (due_ns, self._delayed_count, sock))

    def _delay_s(self) -> float | None:
        """Return the time until a delayed connection must be closed, or a waiting one may go on; None if none is."""
        if self._waiting:
            return _LOOK_AGAIN_S
        if not self._delayed:
            return None
        return max(0, self._delayed[0][0] - self._clock.monotonic_ns()) / NS_PER_S

    def _close_delayed(self) -> None:
        now_ns = self._clock.monotonic_ns()
        while self._delayed and self._delayed[0][0] <= now_ns:
            net.close_quietly(heapq.heappop(self._delayed)[2])

    def _assign(self, accepted: Accepted) -> None:
        processors = self.processors
        if self._connections_per_processor > 1:
            for processor in self._in_order_of_filling(processors):
                if processor.load() < self._connections_per_processor and processor.offer(accepted):
                    return
        for last in range(len(processors) - 1, -1, -1):
            processor = self.next_processor()
            if processor.has_space(self._inbox_max) and processor.offer(accepted):
                return
            if last == 0:
                self._wait_for_inbox(processor, accepted)

    def _wait_for_inbox(self, processor: Processor, accepted: Accepted) -> None:
        started_ns = self._clock.monotonic_ns()
        while not processor.offer(accepted, timeout_s=_OFFER_S):
            if not self._is_running:
                self._drop(accepted.sock, accepted.address)
                return
            processor = self.next_processor()  # Why another: this one may have ended
        self._blocked.mark(self._clock.monotonic_ns() - started_ns)

    def _drop(self, sock: socket.socket, address: str) -> None:
        self._quotas.release(self.listener_name, address)
        net.close_quietly(sock)
