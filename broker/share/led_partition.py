"""LedSharePartition: a share partition on its leader: its state machine, with a lock, a clock, and writes.

Rules
1. `_lock` guards the state machine. It is a leaf: while a thread holds it, it reads no file, writes nothing and wakes
   no waiter.
2. Updates are written in the order in which the state machine made them. They are queued under `_lock`; one thread at a
   time passes them to the persister, holding no lock.
3. One fetch at a time reads for it (the *fetch lock*): its records are acquired before the next fetch decides where to
   read. The fetch lock is held across the read, not across a wait.
4. One timer task at a time stands for all acquisition locks: it is due no later than the first of them runs out.

Threads: any.
Source: Kafka's SharePartition (4.3): its locks, timers and calls of the persister.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.broker.coordinators.share_state.values import NO_START_OFFSET, SharePartitionKey, StateRead
from barnabas.broker.share.partition.share_partition import SharePartition, Stage
from barnabas.broker.share.partition.values import Acknowledgement, Acquired, Fetcher, Holding, Refusal, Span, Update
from barnabas.broker.timing_wheel import CallbackTask
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from collections.abc import Hashable

    from barnabas.broker.coordinators.share_state.values import Persister
    from barnabas.broker.share.partition.values import Limits
    from barnabas.broker.share.sensors import PartitionSensors, ShareSensors
    from barnabas.broker.share.settings import ShareSettings
    from barnabas.broker.share.wakes import Wakes
    from barnabas.broker.timing_wheel import Timer
    from barnabas.common.pages.live_shape import Reason
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.share")

#: The outcome of an acknowledgement: NONE, or an error and its message.
Outcome: TypeAlias = Refusal
DONE: Final = Refusal(ErrorCode.NONE, "")

_Reply: TypeAlias = Callable[[Outcome], object]

#: The clients' errors for the persister's errors (SharePartition.fetchPersisterError of Kafka 4.3).
CLIENT_ERRORS: Final = {
    ErrorCode.NOT_COORDINATOR: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
#: A write gets this if the state does not exist: it was deleted.
NO_STATE: Final = ErrorCode.INVALID_REQUEST
#: After these, a share partition is of no use any more.
FENCING: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
)


def client_error(error: ErrorCode) -> ErrorCode:
    """Return what a client gets for an error of the persister."""
    return error if error == ErrorCode.NONE else CLIENT_ERRORS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that all share partitions of a broker share."""

    persister: Persister
    settings: ShareSettings
    timer: Timer
    wakes: Wakes
    sensors: ShareSensors


class LedSharePartition:
    """See the module. `find_start()` says where to begin without a start offset; it raises ApiError.

    `on_useless(self)` is called once, when the partition is of no use any more.
    """

    def __init__(
        self,
        key: SharePartitionKey,
        tp: TopicPartition,
        leader_epoch: int,
        parts: Parts,
        sensors: PartitionSensors,
        find_start: Callable[[], int],
        on_useless: Callable[[LedSharePartition], object],
    ) -> None:
        self.key: Final = key
        self.tp: Final = tp
        self.leader_epoch: Final = leader_epoch
        self._parts: Final = parts
        self._find_start: Final = find_start
        self._on_useless: Final = on_useless
        self._lock = threading.Lock()  # a leaf
        self._machine = SharePartition(key, leader_epoch)  # guarded by: _lock
        self._error = ErrorCode.NONE  # guarded by: _lock; why it failed or was fenced
        self._updates: deque[tuple[Update, _Reply | None]] = deque()  # guarded by: _lock; to be written
        self._is_sending = False  # guarded by: _lock; a thread passes updates on
        self._unwritten = 0  # guarded by: _lock; updates whose end is not known
        self._fetching: object | None = None  # guarded by: _lock; the fetch that reads for it
        self._is_wanted = False  # guarded by: _lock; another fetch can use it once the fetch lock is released
        self._task: CallbackTask | None = None  # guarded by: _lock; of the acquisition locks
        self._due_ms = 0  # guarded by: _lock; when the task runs
        self._began_ms = 0  # set once: when the load began
        self.sensors: Final = sensors

    # Loading

    def load(self) -> None:
        """Begin to read its state, unless that has begun before."""
        with self._lock:
            if not self._machine.begin():
                return
            self._began_ms = self._parts.timer.now_ms()
        self._parts.persister.read(self.key, self.leader_epoch, self._loaded)

    def _loaded(self, read: StateRead) -> None:
        error = client_error(read.error)
        if error == ErrorCode.NONE:
            error = self._take(read)
        if error == ErrorCode.NONE:
            self._parts.sensors.loaded(self._parts.timer.now_ms() - self._began_ms)
        else:
            log.info("share partition %s could not be loaded: %s", self, error.name)
            self.fence(error)
            self._on_useless(self)
        self.wake()

    def _take(self, read: StateRead) -> ErrorCode:
        """Take over the state that was kept."""
        has_start = read.start_offset != NO_START_OFFSET
        try:
            start = read.start_offset if has_start else self._find_start()
            with self._lock:
                self._machine.loaded(read.state_epoch, start, read.batches)
                # Why at once: the next leader would choose again, and skip what came meanwhile.
                update = None if has_start else self._machine.start_update()
                if update is not None:
                    self._queue_locked(update, None)
        except ApiError as error:
            return error.code
        except Exception:  # Why: what was kept, or a setting, may be anything, and this is the persister's thread.
            log.exception("the state of share partition %s cannot be used", self)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        self._send()
        return ErrorCode.NONE

    # Looking

    @property
    def error(self) -> ErrorCode:
        """Why a fetch cannot use it; NONE while it may be used, also before it is loaded."""
        return self._error

    @property
    def is_loading(self) -> bool:
        """Whether its state is not known yet."""
        return self._machine.stage in (Stage.EMPTY, Stage.LOADING)

    def holdings(self) -> list[Holding]:
        """Return who holds which records."""
        with self._lock:
            return self._machine.holdings()

    @property
    def in_flight_count(self) -> int:
        """How many records are in flight."""
        return self._machine.state.in_flight_count if self._machine.is_active else 0

    @property
    def batch_count(self) -> int:
        """How many batches are in flight."""
        return len(self._machine.state.cache.batches)

    @property
    def offsets(self) -> tuple[int, int]:
        """Start and end offset."""
        state = self._machine.state
        return state.start_offset, state.end_offset

    def waits_for(self, isolation_end: int) -> Reason | None:
        """Return why a fetch cannot acquire now; `isolation_end` is where the records end that it may see."""
        limits = self._limits
        with self._lock:
            if self.is_loading:
                text = f"for the state of {self} to be read"
            elif not self._machine.is_active:
                text = f"to be answered: {self} is not delivered here any more"
            elif not self._machine.can_acquire(limits):
                count = self._machine.state.in_flight_count
                text = f"for members to acknowledge: {count} records of {self} are in flight"
            elif (offset := self._machine.next_fetch_offset()) >= isolation_end:
                text = f"for records of {self} from offset {offset} on"
            else:
                return None
        about: Reason = {"kind": "share", "text": text, "topic": self.tp.topic, "partition": self.tp.partition}
        return {**about, "group": self.key.group_id}

    def __str__(self) -> str:
        """Name group, topic and partition."""
        return f"{self.tp} for share group {self.key.group_id!r}"

    # Fetching (rule 3)

    def begin_fetch(self, fetch: object) -> int | None:
        """Take the fetch lock, and return the offset to read from; None if another fetch has it, or it is of no use."""
        limits = self._limits
        with self._lock:
            if self._fetching is not None:
                self._is_wanted = True
                return None
            if not self._machine.can_acquire(limits):
                return None
            self._fetching = fetch
            self.sensors.fetch_lock_taken(self._parts.timer.now_ms())
            return self._machine.next_fetch_offset()

    def next_fetch_offset(self) -> int:
        """Return the offset to read from, for the fetch that has the fetch lock."""
        with self._lock:
            return self._machine.next_fetch_offset()

    def wanted_end(self, fetch_offset: int, max_records: int) -> int:
        """Return an offset up to which the fetch has to know the record batches."""
        limits = self._limits
        with self._lock:
            return self._machine.wanted_end(fetch_offset, max_records, limits)

    def acquire(
        self, fetcher: Fetcher, fetch_offset: int, fetched: Sequence[Span], aborted: Sequence[Span]
    ) -> list[Acquired]:
        """Acquire what the fetch has read; it holds the fetch lock."""
        limits, now_ms = self._limits, self._parts.timer.now_ms()
        with self._lock:
            acquired = self._machine.acquire(fetcher, fetch_offset, fetched, aborted, limits, now_ms)
            task = self._arm_locked(now_ms + limits.lock_duration_ms) if acquired else None
        self._start(task)
        for records in acquired:
            if records.delivery_count == 1:
                self.sensors.group.batch_messages.update(records.last - records.first + 1)
        return acquired

    def note_more(self) -> None:
        """Note that there is more to acquire, for the fetch that has the fetch lock."""
        with self._lock:
            self._is_wanted = True

    def end_fetch(self, fetch: object) -> bool:
        """Release the fetch lock; true if the caller has to wake those who wait for it."""
        with self._lock:
            if self._fetching is not fetch:
                return False
            self._fetching = None
            self.sensors.fetch_lock_released(self._parts.timer.now_ms())
            is_wanted, self._is_wanted = self._is_wanted, False
            return is_wanted

    def move_log_start(self, offset: int) -> None:
        """Note that the log begins later now."""
        with self._lock:
            self._machine.move_log_start(offset)

    # Acknowledging (rule 2)

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], reply: _Reply) -> None:
        """Apply a member's acknowledgements; `reply` is called once, when they are written or refused."""
        limits, now_ms = self._limits, self._parts.timer.now_ms()
        task = None
        with self._lock:
            result = self._machine.acknowledge(member_id, acknowledgements, limits, now_ms)
            if isinstance(result, Update):
                self._queue_locked(result, reply)
            elif result is None:  # perhaps a lock was renewed for a shorter time
                task = self._arm_locked(now_ms + limits.lock_duration_ms)
        self._start(task)
        if isinstance(result, Update):
            self._send()
        else:
            reply(DONE if result is None else result)

    def release(self, member_id: str, reply: _Reply) -> None:
        """Release what a member holds; `reply` is called once, when that is written."""
        limits = self._limits
        with self._lock:
            update = self._machine.release(member_id, limits)
            if update is not None:
                self._queue_locked(update, reply)
        if update is None:
            reply(DONE)
        else:
            self._send()

    def _queue_locked(self, update: Update, reply: _Reply | None) -> None:
        self._updates.append((update, reply))
        self._unwritten += 1

    def _send(self) -> None:
        """Pass the queued updates to the persister, unless another thread is at it."""
        while True:
            with self._lock:
                if self._is_sending or not self._updates:
                    return
                self._is_sending = True
                update, reply = self._updates.popleft()
                write = update.as_write(self._machine.state_epoch, self.leader_epoch)
            try:
                self._parts.persister.write(self.key, write, self._ending(update, reply))
            except Exception:  # Why: the request that waits for it must be answered, and later updates be sent.
                log.exception("writing the state of share partition %s failed", self)
                self._written(update, reply, ErrorCode.UNKNOWN_SERVER_ERROR)
            with self._lock:
                self._is_sending = False

    def _ending(self, update: Update, reply: _Reply | None) -> Callable[[ErrorCode], None]:
        return lambda error: self._written(update, reply, error)

    def _written(self, update: Update, reply: _Reply | None, error: ErrorCode) -> None:
        limits, now_ms = self._limits, self._parts.timer.now_ms()
        given = client_error(error)
        is_useless = given in FENCING or error == NO_STATE
        with self._lock:
            is_freed = self._machine.written(update, limits, now_ms, is_written=given == ErrorCode.NONE)
            self._unwritten -= 1
            deadline = self._machine.next_deadline_ms() if given != ErrorCode.NONE else None
            task = None if deadline is None else self._arm_locked(deadline)
        self._start(task)
        if is_useless:
            self.fence(given)
            self._on_useless(self)
        if reply is not None:
            reply(DONE if given == ErrorCode.NONE else Refusal(given, f"the state was not written: {error.name}"))
        if is_freed or is_useless:
            self.wake()

    # Acquisition locks (rule 4)

    def _arm_locked(self, deadline_ms: int) -> CallbackTask | None:
        """Return a task for the timer, if none is due as early; it is started without the lock."""
        if self._task is not None and self._due_ms <= deadline_ms:
            return None
        former, self._due_ms = self._task, deadline_ms
        delay_ms = max(1, deadline_ms - self._parts.timer.now_ms())
        self._task = CallbackTask(delay_ms, self._expire)
        if former is not None:
            self._parts.timer.cancel(former)
        return self._task

    def _start(self, task: CallbackTask | None) -> None:
        if task is not None:
            self._parts.timer.add(task)

    def _expire(self) -> None:
        """Release the records whose locks have run out, and wait for the next ones; on the reaper's thread."""
        limits, now_ms = self._limits, self._parts.timer.now_ms()
        with self._lock:
            self._task = None
            update = self._machine.expire(limits, now_ms)
            if update is not None:
                self._queue_locked(update, None)
            deadline = self._machine.next_deadline_ms()
            task = None if deadline is None else self._arm_locked(deadline)
        self._start(task)
        if update is not None:
            count = sum(batch.last_offset - batch.first_offset + 1 for batch in update.batches)
            self.sensors.lock_timeouts.mark(count)
            self._send()
            self.wake()

    # Ending

    def fence(self, error: ErrorCode) -> None:
        """End it: it delivers and acknowledges nothing any more."""
        with self._lock:
            task = self._fence_locked(error)
        if task is not None:
            self._parts.timer.cancel(task)

    def fence_if_idle(self, error: ErrorCode) -> bool:
        """End it if nothing is being written, read or loaded; whether it has ended.

        Why in one step: else a write could begin meanwhile, which the next reader of the state would miss.
        """
        with self._lock:
            if self._unwritten or self._fetching is not None or self.is_loading:
                return False
            task = self._fence_locked(error)
        if task is not None:
            self._parts.timer.cancel(task)
        return True

    def _fence_locked(self, error: ErrorCode) -> CallbackTask | None:
        """End it; return the timer task to cancel."""
        if self._error == ErrorCode.NONE:
            self._error = error
        self._machine.fence()
        task, self._task = self._task, None
        return task

    def wake(self) -> None:
        """Wake the fetches that wait for it."""
        key: Hashable = self.key
        self._parts.wakes.wake([key])

    @property
    def _limits(self) -> Limits:
        return self._parts.settings.of(self.key.group_id).limits
