"""A shard: the share partitions whose state is in one partition of __share_group_state.

Rules
1. Everything is guarded by the shard's lock; the pure part decides (`state.py`).
2. Lock order: a shard's, then a partition's, then a log's. No operation is answered while the shard's lock is held.
3. An appended record is in effect at once for later operations, and is never taken back: as long as this broker leads,
   the log keeps it. An operation is answered once its own records, and all before them, are committed; so is a read. If
   that takes longer than `write_timeout_ms`, the error is COORDINATOR_NOT_AVAILABLE, and the records stay.
4. The operations of a call go into as few batches as `APPEND_BYTES_MAX` allows. If the log refuses a batch, none of its
   operations has happened.
5. A shard serves once everything that it loaded is committed, since rule 3 counts on it.

`runtime/shard_life.py` has the states of a shard.

Threads: any; loading on `share-state-manager-0`.
Source: Kafka's ShareCoordinatorShard, CoordinatorRuntime (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.coordinators.runtime.committed_writes import CommittedWrites, LogWriter
from barnabas.broker.coordinators.runtime.shard_life import ShardLife, ShardState
from barnabas.broker.coordinators.share_state import records
from barnabas.broker.coordinators.share_state.needed_offsets import NeededOffsets
from barnabas.broker.coordinators.share_state.operations import Operation, Remove, Snapshot
from barnabas.broker.coordinators.share_state.state import ShareState, Times, replayed
from barnabas.protocol.coordinator_records.share_state import ShareUpdateValue
from barnabas.protocol.errors import ApiError, EncodeError, ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch
from barnabas.protocol.records.compression import CompressionType

if TYPE_CHECKING:
    from barnabas.broker.coordinators.share_state.records import StateRecord
    from barnabas.broker.coordinators.share_state.values import SharePartitionKey
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.share-state")

APPEND_BYTES_MAX: Final = 512 * 1024  # of a batch with several records; far below any max.message.bytes
KEYS_AT_ONCE: Final = 200  # share partitions that are looked at while the lock is held


@dataclass(slots=True)
class ShareStateContext:
    """The parts that all shards of a broker share."""

    writer: LogWriter
    clock: Clock
    is_known: Callable[[SharePartitionKey], bool]  # whether the topic partition exists
    updates_per_snapshot: int = 500  # share.coordinator.snapshot.update.records.per.snapshot
    write_timeout_ms: int = 5000  # share.coordinator.write.timeout.ms
    compression: CompressionType = CompressionType.NONE  # share.coordinator.state.topic.compression.codec


@dataclass(slots=True)
class _Chunk:
    """Operations whose records go into one batch."""

    encoded: list[SimpleRecord] = field(default_factory=list)
    snapshots: list[tuple[int, SharePartitionKey, bool]] = field(default_factory=list)  # (index, key, is removal)
    states: dict[SharePartitionKey, ShareState | None] = field(default_factory=dict)  # once it is appended
    answers: list[tuple[Operation, Any]] = field(default_factory=list)
    size_bytes: int = 0


class ShareStateShard:
    """One partition's share partitions. Public methods take the lock; a `_locked` method needs it held."""

    def __init__(self, tp: TopicPartition, leader_epoch: int, context: ShareStateContext) -> None:
        self.tp = tp  # fixed before start
        self.leader_epoch = leader_epoch  # fixed before start
        self.states: dict[SharePartitionKey, ShareState] = {}  # guarded by: _lock; the loader's while loading
        self._context = context
        self._life = ShardLife(tp, "share states", log, self._release_locked)
        self._lock = self._life.lock
        self._writes = CommittedWrites(tp, context.writer, self._lock)  # guarded by: _lock
        self._needed = NeededOffsets()  # guarded by: _lock; the loader's while loading
        self._has_news = False  # guarded by: _lock; operations changed a state since the last cold snapshots
        self._pruned_offset = -1  # guarded by: _lock

    # Life

    @property
    def state(self) -> ShardState:
        """Whether the shard serves."""
        return self._life.state

    @property
    def writes(self) -> CommittedWrites:
        """The writes that wait for the high watermark."""
        return self._writes

    def replay(self, key: SharePartitionKey, record: StateRecord, offset: int) -> None:
        """Apply a record while loading. Only the loader calls."""
        self._apply(key, replayed(self.states.get(key), record))
        if not isinstance(record, ShareUpdateValue):
            self._note_snapshot(key, offset, record is None)
        self._has_news = True

    def activate(self) -> None:
        """Start to serve what was loaded."""
        with self._lock:
            self._life.activate_locked()

    def close(self) -> None:
        """Stop serving; waiting operations are refused with NOT_COORDINATOR."""
        self._life.close()

    def isolate_failures(self) -> AbstractContextManager[None]:
        """Take the shard offline if the block raises, until the next leader loads it; see `ShardLife`."""
        return self._life.isolate_failures()

    def _release_locked(self) -> None:
        self.states = {}
        self._needed = NeededOffsets()
        self._writes.abandon()

    # Operations

    def handle(self, operations: Iterable[Operation]) -> None:
        """Carry operations out in order; each is answered once, on any thread."""
        with self._lock:
            if error := self._life.gate_locked():
                for operation in operations:
                    self._refuse_locked(operation, error)
                return
            self._writes.catch_up()
            chunk = _Chunk()
            times = Times(self._context.clock.wall_ms(), self._context.updates_per_snapshot)
            for operation in operations:
                if not self._decide_locked(operation, chunk, times):
                    self._append_locked(chunk, times.now_ms)
                    chunk = _Chunk()
                    self._decide_locked(operation, chunk, times)  # again: the log may have refused the batch
            if chunk.answers:
                self._append_locked(chunk, times.now_ms)

    def _decide_locked(self, operation: Operation, chunk: _Chunk, times: Times) -> bool:
        """Add what an operation needs to the chunk, or refuse it; false if the chunk must be appended before."""
        key = operation.key
        state = chunk.states[key] if key in chunk.states else self.states.get(key)
        try:
            decided = operation.decide(state, self._context.is_known(key), times)
            encoded = [records.encode(key, record) for record in decided.records]
        except ApiError as error:
            self._refuse_locked(operation, error.code)
            return True
        except EncodeError as error:  # a record of somebody else's has brought a number to its limit
            log.error("%s of %s cannot be written: %s", type(operation).__name__, key, error)
            self._refuse_locked(operation, ErrorCode.UNKNOWN_SERVER_ERROR)
            return True
        size_bytes = sum(len(key_bytes) + len(value_bytes or b"") for key_bytes, value_bytes in encoded)
        # Why not after it: a large record would take small ones of other groups along, and the log would refuse all.
        if chunk.encoded and chunk.size_bytes + size_bytes > APPEND_BYTES_MAX:
            return False
        chunk.answers.append((operation, decided.answer))
        for record, (key_bytes, value_bytes) in zip(decided.records, encoded, strict=True):
            state = replayed(state, record)
            chunk.states[key] = state
            if not isinstance(record, ShareUpdateValue):
                chunk.snapshots.append((len(chunk.encoded), key, record is None))
            chunk.encoded.append(SimpleRecord(times.now_ms, key_bytes, value_bytes))
        chunk.size_bytes += size_bytes
        return True

    def _append_locked(self, chunk: _Chunk, now_ms: int) -> None:
        settled = partial(self._settle_locked, chunk)
        if not chunk.encoded:
            self._writes.after_all(settled)
            return
        batch = build_batch(chunk.encoded, compression=self._context.compression)

        def committed(first_offset: int) -> None:
            for index, key, is_removal in chunk.snapshots:
                self._note_snapshot(key, first_offset + index, is_removal)

        if self._writes.append(batch, len(chunk.encoded), self._context.write_timeout_ms, committed, settled):
            for key, state in chunk.states.items():
                self._apply(key, state)
            self._has_news |= not isinstance(chunk.answers[0][0], Snapshot)

    def _settle_locked(self, chunk: _Chunk, error: ErrorCode) -> None:
        for operation, answer in chunk.answers:
            if error:
                self._refuse_locked(operation, error)
            else:
                self._lock.after_release(partial(operation.reply, answer))

    def _refuse_locked(self, operation: Operation, error: ErrorCode) -> None:
        self._lock.after_release(partial(operation.refuse, error))

    def _apply(self, key: SharePartitionKey, state: ShareState | None) -> None:
        if state is None:
            self.states.pop(key, None)
        else:
            self.states[key] = state

    def _note_snapshot(self, key: SharePartitionKey, offset: int, is_removal: bool) -> None:
        if is_removal:
            self._needed.removed(key, offset)
        else:
            self._needed.snapshot(key, offset)

    # Periodic tasks

    def needed_offset(self) -> int | None:
        """Return the offset up to which the log can be pruned (exclusive); None if nothing is new."""
        with self._lock:
            if not self._life.is_active:
                return None
            self._writes.catch_up()
            offset = self._needed.start()
            return offset if offset > max(self._pruned_offset, 0) else None

    def pruned(self, offset: int) -> None:
        """Note that the log begins at this offset."""
        with self._lock:
            self._pruned_offset = max(self._pruned_offset, offset)

    @property
    def pruned_offset(self) -> int:
        """The offset of the last pruning, for metrics; -1 before the first."""
        return self._pruned_offset

    def snapshot_cold(self, interval_ms: int) -> None:
        """Write a snapshot of each share partition that has none of the last `interval_ms`.

        Why: an idle share partition would keep the log of all others from being pruned. Nothing is written while no
        share partition changes, since nothing could be pruned then.
        """
        with self._lock:
            if not self._life.is_active or not self._has_news:
                return
            self._has_news = False
        before_ms = self._context.clock.wall_ms() - interval_ms

        def is_due(state: ShareState) -> bool:
            return state.snapshot_ms <= before_ms

        self._each_key(lambda key: Snapshot(key, _ignored, is_due), lambda key: is_due(self.states[key]))

    def remove_topics(self, topic_ids: frozenset[bytes]) -> None:
        """Remove the state of topics that were deleted."""
        self._each_key(lambda key: Remove(key, _log_failure), lambda key: key.topic_id in topic_ids)

    def _each_key(
        self,
        operation: Callable[[SharePartitionKey], Operation],
        is_wanted: Callable[[SharePartitionKey], bool],
    ) -> None:
        """Carry an operation out on the wanted share partitions, some at a time."""
        with self._lock:
            wanted = [key for key in self.states if is_wanted(key)]
        for start in range(0, len(wanted), KEYS_AT_ONCE):
            self.handle([operation(key) for key in wanted[start : start + KEYS_AT_ONCE]])

    def look(self) -> Sequence[tuple[SharePartitionKey, ShareState]]:
        """Return the states, for the live page, without a lock; a loading shard has what it has read so far."""
        return list(self.states.items())


def _ignored(_error: ErrorCode) -> None:
    """Ignore that a snapshot was not written: the next round tries again."""


def _log_failure(error: ErrorCode) -> None:
    if error:
        log.warning("The share state of a deleted topic was not removed: %s", error.name)
