"""SharePersister: sends operations on share state to the share coordinators of their share partitions.

Rules
1. A method returns at once. The operations of one share partition are carried out one after another (`lanes.py`);
   those of different ones have no order.
2. The operations for one coordinator go together: all that came while the last request was on its way are in the next
   requests, by kind and group (`wire.py`). The broker's own coordinator gets them in one call.
3. Errors that are normal while coordinators move are retried at the coordinator of that time, after a pause that
   doubles, for `GIVE_UP_MS`. No thread waits: a timer starts the next attempt. The first operation creates
   __share_group_state. An overdue operation is not sent any more, nor a deletion that its group coordinator no longer
   wants.
4. A request whose response did not come may have been carried out. Repeating it does no harm (rule 4 of
   `share_state/state.py`).
5. At the end, all operations are answered with COORDINATOR_NOT_AVAILABLE.

Threads: any thread calls; `share-persister-<id>-to-<broker>` for each coordinating broker, this one included, sends.
Answers come on these, on the scheduler's, and on those that commit records here.
Source: Kafka's DefaultStatePersister, PersisterStateManager (4.3).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.channels.broker_senders import BrokerSenders
from barnabas.broker.coordinators.persister.lanes import Lanes
from barnabas.broker.coordinators.persister.wire import answers_of, request_of, together
from barnabas.broker.coordinators.share_state.operations import (
    Delete,
    Initialize,
    Operation,
    Read,
    ReadSummary,
    Write,
)
from barnabas.broker.metadata.metadata_cache import SHARE_GROUP_STATE_TOPIC
from barnabas.client.connection import Connect, NodeConnection, NodeConnectionError
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.runtime.completion import Completion
    from barnabas.broker.coordinators.share_state.coordinator import ShareCoordinator
    from barnabas.broker.coordinators.share_state.values import (
        SharePartitionKey,
        StateRead,
        StateSummary,
        StateWrite,
    )
    from barnabas.broker.metadata.metadata_cache import MetadataCache, MetadataSnapshot
    from barnabas.common.clock import Clock

log = logging.getLogger("barnabas.share-persister")

RETRY_MS: Final = 100
RETRY_MAX_MS: Final = 1000
GIVE_UP_MS: Final = 15_000

#: Errors that pass while coordinators move, and metadata arrives.
RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class _Attempts:
    """An operation on its way."""

    __slots__ = ("deadline_ms", "operation", "pause_ms")

    def __init__(self, operation: Operation, deadline_ms: int) -> None:
        self.operation = operation  # fixed
        self.deadline_ms = deadline_ms  # fixed
        self.pause_ms = RETRY_MS  # owner: the thread that has the operation


class SharePersister:
    """See the module; implements `Persister`."""

    def __init__(
        self,
        *,
        broker_id: int,
        clock: Clock,
        coordinator: ShareCoordinator,
        metadata_cache: MetadataCache,
        call_later: Callable[[int, Callable[[], None]], object],
        create_topic: Callable[[str], object],
        listener_name: str,
        request_timeout_ms: int,
        connect: Connect = NodeConnection,
    ) -> None:
        """`call_later` runs a job after so many ms, on any thread; `create_topic` requests an internal topic."""
        self._broker_id = broker_id  # fixed before start
        self._clock = clock  # fixed before start
        self._coordinator = coordinator  # fixed before start
        self._metadata_cache = metadata_cache  # fixed before start
        self._call_later = call_later  # fixed before start
        self._create_topic = create_topic  # fixed before start
        self._listener_name = listener_name  # fixed before start
        self._lock = threading.Lock()  # a leaf
        self._lanes = Lanes()  # guarded by: _lock
        self._on_the_way: set[_Attempts] = set()  # guarded by: _lock
        self._is_closed = False  # guarded by: _lock
        self.senders: BrokerSenders[_Attempts] = BrokerSenders(
            "share-persister", "share-state", broker_id, clock,
            node_of=lambda id_: metadata_cache.snapshot.node(id_, listener_name), carry=self._carry,
            request_timeout_ms=request_timeout_ms, connect=connect,
        )  # fmt: skip

    def shutdown(self) -> None:
        """End the threads; what is on its way or waits is refused."""
        self.senders.shutdown()
        with self._lock:
            self._is_closed = True
            left = [attempts.operation for attempts in self._on_the_way]
            left += self._lanes.take_all()
            self._on_the_way.clear()
        for operation in left:
            operation.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def on_the_way(self) -> int:
        """Return the number of share partitions with an operation on its way."""
        return len(self._on_the_way)

    def sent(self) -> frozenset[object]:
        """Return what is on its way, to be compared with a later call."""
        with self._lock:
            return frozenset(self._on_the_way)

    # Persister

    def initialize(
        self, key: SharePartitionKey, state_epoch: int, start_offset: int, reply: Completion[ErrorCode]
    ) -> None:
        """See Persister."""
        self._submit(Initialize(key, reply, state_epoch, start_offset))

    def write(self, key: SharePartitionKey, write: StateWrite, reply: Completion[ErrorCode]) -> None:
        """See Persister."""
        self._submit(Write(key, reply, write))

    def read(self, key: SharePartitionKey, leader_epoch: int, reply: Completion[StateRead]) -> None:
        """See Persister."""
        self._submit(Read(key, reply, leader_epoch))

    def read_summary(self, key: SharePartitionKey, leader_epoch: int, reply: Completion[StateSummary]) -> None:
        """See Persister."""
        self._submit(ReadSummary(key, reply, leader_epoch))

    def delete(self, key: SharePartitionKey, reply: Completion[ErrorCode], is_wanted: Callable[[], bool]) -> None:
        """See Persister."""
        self._submit(Delete(key, reply, is_wanted))

    def _submit(self, operation: Operation) -> None:
        with self._lock:
            if self._is_closed:
                # Why later: the caller may hold a lock that the answer wants.
                self._call_later(0, partial(operation.refuse, ErrorCode.COORDINATOR_NOT_AVAILABLE))
                return
            if not self._lanes.add(operation):
                return
            attempts = self._begin_locked(operation)
        self._send(attempts)

    def _begin_locked(self, operation: Operation) -> _Attempts:
        attempts = _Attempts(operation, self._clock.monotonic_ms() + GIVE_UP_MS)
        self._on_the_way.add(attempts)
        return attempts

    # On any thread, without locks

    def _send(self, attempts: _Attempts) -> None:
        """Queue an operation for its coordinator, or for a later attempt."""
        snapshot = self._metadata_cache.snapshot
        leader = self._leader(snapshot, attempts)
        if leader is None and snapshot.partition_count(SHARE_GROUP_STATE_TOPIC) is None:
            self._create_topic(SHARE_GROUP_STATE_TOPIC)
        if leader is None or snapshot.node(leader, self._listener_name) is None:
            self._call_later(0, partial(self._answered, attempts, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self.senders.send(leader, attempts)

    def _leader(self, snapshot: MetadataSnapshot, attempts: _Attempts) -> int | None:
        partition = self._coordinator.partition_for(attempts.operation.key.coordinator_key)
        info = snapshot.partition(TopicPartition(SHARE_GROUP_STATE_TOPIC, partition))
        return None if info is None else info.leader

    def _answered(self, attempts: _Attempts, answer: Any) -> None:
        """Retry, or pass an answer on and send what waited behind the operation."""
        error = answer if isinstance(answer, ErrorCode) else answer.error
        if (
            error in RETRIABLE
            and _is_wanted(attempts)
            and self._clock.monotonic_ms() + attempts.pause_ms < attempts.deadline_ms
        ):
            pause_ms, attempts.pause_ms = attempts.pause_ms, min(2 * attempts.pause_ms, RETRY_MAX_MS)
            self._call_later(pause_ms, partial(self._send_again, attempts))
            return
        operation = attempts.operation
        with self._lock:
            if attempts not in self._on_the_way:
                return  # refused by shutdown
            self._on_the_way.remove(attempts)
            following = self._lanes.done(operation.key)
            next_attempts = None if following is None else self._begin_locked(following)
        _deliver(operation, answer, error)
        if next_attempts is not None:
            self._send(next_attempts)

    def _send_again(self, attempts: _Attempts) -> None:
        with self._lock:
            is_wanted = attempts in self._on_the_way
        if is_wanted:
            self._send(attempts)

    # On a sender's thread

    def _carry(self, destination: int, connection: NodeConnection | None, items: list[_Attempts]) -> None:
        items = [attempts for attempts in items if self._is_due(attempts)]
        if destination == self._broker_id:
            self._hand_over(items)
            return
        snapshot = self._metadata_cache.snapshot
        by_operation: dict[Operation, _Attempts] = {}
        for attempts in items:
            if self._leader(snapshot, attempts) == destination:
                by_operation[attempts.operation] = attempts
            else:  # it moved while the last request waited for a broker that may be dead: do not wait for it again
                self._send(attempts)
        for operations in together(by_operation):
            self._exchange(connection, [by_operation[operation] for operation in operations])

    def _is_due(self, attempts: _Attempts) -> bool:
        """Return whether to send an operation now; refuse it if not (rule 3). The process may have been paused."""
        if self._clock.monotonic_ms() > attempts.deadline_ms:
            self._answered(attempts, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return False
        if not _is_wanted(attempts):
            self._answered(attempts, ErrorCode.NOT_COORDINATOR)
            return False
        return True

    def _hand_over(self, items: list[_Attempts]) -> None:
        """Have this broker's own coordinator carry operations out."""
        try:
            self._coordinator.handle(
                replace(attempts.operation, reply=partial(self._answered, attempts)) for attempts in items
            )
        except Exception:  # a bug: every operation still gets its answer, and those behind it their turn
            log.exception("share state was not handled")
            for attempts in items:
                self._answered(attempts, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _exchange(self, connection: NodeConnection | None, items: list[_Attempts]) -> None:
        """Send operations in one request, and take its response."""
        answers: dict[SharePartitionKey, Any] = {}
        if connection is not None:
            operations = [attempts.operation for attempts in items]
            try:
                request, version = request_of(operations)
                answers = answers_of(operations, connection.send(request, version))
            except NodeConnectionError as error:
                log.info("share state could not be sent to its coordinator: %s", error)
            except Exception:  # what cannot be encoded, or a bug: see `_hand_over`
                log.exception("share state could not be sent")
                answers = {operation.key: ErrorCode.UNKNOWN_SERVER_ERROR for operation in operations}
        for attempts in items:
            # Why the default: without an answer it may have been carried out or not, so it is repeated.
            self._answered(attempts, answers.get(attempts.operation.key, ErrorCode.COORDINATOR_NOT_AVAILABLE))


def _is_wanted(attempts: _Attempts) -> bool:
    operation = attempts.operation
    return not isinstance(operation, Delete) or operation.is_wanted()


def _deliver(operation: Operation, answer: Any, error: ErrorCode) -> None:
    if error:
        log.info("%s of %s failed: %s", type(operation).__name__, operation.key, error.name)
    try:
        if error:
            operation.refuse(error)
        else:
            operation.reply(answer)
    except Exception:  # a bug of the receiver: the operations behind this one still get their turn
        log.exception("an answer about share state could not be delivered")
