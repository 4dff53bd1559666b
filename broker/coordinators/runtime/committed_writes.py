"""The writes of a shard: each takes effect once the high watermark has passed it, in log order.

Rules
1. A write that the log refuses has not happened.
2. A write that was appended and then timed out may still be committed. Its request is answered with the error at once,
   and the write takes effect when the high watermark passes it.
3. Records that were loaded from above the high watermark are writes too; no request waits for them.
4. Everything happens under the shard's lock. The log reports through `ShardLock.post`.

Threads: owner is the shard, under its lock.
Source: Kafka's CoordinatorRuntime (4.3) with its deferred events.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.broker.coordinators.runtime.completion import Completion
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.runtime.shard_lock import ShardLock
    from barnabas.broker.storage.producers.verification import VerificationGuard
    from barnabas.common.topic_partition import TopicPartition

#: The errors of an append, as a coordinator reports them to its clients.
APPEND_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


#: The owner of a loaded record that may belong to any: a marker, which ends a transaction of some groups.
ANY_OWNER: Final = ""


class HostedPartition(Protocol):
    """The part of a partition that a shard uses."""

    @property
    def high_watermark(self) -> int:
        """The offset up to which records are committed (exclusive)."""


class LogWriter(Protocol):
    """The part of the replica manager that a shard uses."""

    def append_internal(
        self, tp: TopicPartition, batch: bytes, timeout_ms: int, on_done: Callable[[ErrorCode, int], None], *,
        moved: set[TopicPartition] | None = None, transaction_version: int = 0, guard: VerificationGuard | None = None,
    ) -> int:  # fmt: skip
        """Append with acks=all; see ReplicaManager."""

    def complete_delayed(self, tp: TopicPartition) -> None:
        """Wake the requests that wait for the partition; the caller holds no lock."""

    def partition(self, tp: TopicPartition) -> HostedPartition:
        """Return the partition. Raises ApiError."""


class _Write:
    """Appended or loaded records that are not known to be committed."""

    __slots__ = ("end_offset", "first_offset", "on_commit", "on_settled")

    def __init__(
        self, on_commit: Callable[[int], object], on_settled: Completion[ErrorCode] | None, offset: int = -1
    ) -> None:
        self.on_commit = on_commit  # called with the offset of the first record; changes state
        #: Each is called once, when committed or failed; None once called. Why a list and no chain of closures:
        #: thousands of heartbeats can wait for one write, and each would be another nested call.
        self.on_settled = None if on_settled is None else [on_settled]
        self.first_offset = offset  # -1 until appended
        self.end_offset = offset + 1 if offset >= 0 else -1  # exclusive; -1 until appended


class CommittedWrites:
    """The writes of one shard that wait for the high watermark. The caller holds the shard's lock."""

    __slots__ = ("_loaded", "_loaded_end_offset", "_lock", "_tp", "_waiting", "_writer")

    def __init__(self, tp: TopicPartition, writer: LogWriter, lock: ShardLock) -> None:
        self._tp = tp  # fixed before start
        self._writer = writer  # fixed before start
        self._lock = lock  # fixed before start
        self._waiting: deque[_Write] = deque()  # in log order
        self._loaded_end_offset = 0  # what was loaded below it may not be committed yet
        self._loaded: Counter[str] = Counter()  # loaded records that wait, by owner

    @property
    def is_empty(self) -> bool:
        """Whether everything appended is committed; needs no lock."""
        return not self._waiting

    def end_offset(self) -> int:
        """Return the offset after the last write that is not committed; -1 without one. Needs no lock."""
        try:
            return self._waiting[-1].end_offset
        except IndexError:
            return -1

    def is_written_to(self, end_offset: int) -> bool:
        """Return whether every write below this offset is committed. Needs no lock."""
        try:
            return self._waiting[0].end_offset > end_offset
        except IndexError:
            return True

    @property
    def has_loaded(self) -> bool:
        """Whether loaded records still wait for the high watermark."""
        return bool(self._waiting) and self._waiting[0].end_offset <= self._loaded_end_offset

    def has_loaded_of(self, owner: str) -> bool:
        """Return whether loaded records that may change what is known of the owner still wait."""
        return owner in self._loaded or ANY_OWNER in self._loaded

    def add_loaded(self, offset: int, on_commit: Callable[[], object], owner: str = ANY_OWNER) -> None:
        """Add a record that was loaded from above the high watermark. Only the loader calls."""
        self._loaded[owner] += 1

        def committed(_first_offset: int) -> None:
            self._loaded[owner] -= 1
            if not self._loaded[owner]:
                del self._loaded[owner]
            on_commit()

        self._waiting.append(_Write(committed, None, offset))
        self._loaded_end_offset = offset + 1

    def append(
        self,
        batch: bytes,
        count: int,
        timeout_ms: int,
        on_commit: Callable[[int], object],
        on_settled: Completion[ErrorCode],
        *,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> bool:
        """Append a batch of `count` records; False, with `on_settled` posted, when the log refuses it."""
        write = _Write(on_commit, on_settled)
        moved: set[TopicPartition] = set()
        self._waiting.append(write)
        try:
            first_offset = self._writer.append_internal(
                self._tp, batch, timeout_ms, partial(self._post_done, write), moved=moved,
                transaction_version=transaction_version, guard=guard,
            )  # fmt: skip
        except ApiError as error:
            self._waiting.remove(write)
            self._lock.post(partial(self._settle, write, error.code))
            return False
        write.first_offset = first_offset
        write.end_offset = first_offset + count
        if moved:
            self._lock.after_release(partial(self._writer.complete_delayed, self._tp))
        return True

    def catch_up(self) -> None:
        """Apply writes that were committed after their requests had timed out."""
        if not self._waiting:
            return
        try:
            high_watermark = self._writer.partition(self._tp).high_watermark
        except ApiError:
            return
        self._commit_up_to(high_watermark)

    def after_all(self, then: Completion[ErrorCode]) -> None:
        """Call `then` when every write so far is committed, or with the error of the last one.

        A last write that has timed out may be committed at any time or never: `then` gets that error at once.
        """
        self.catch_up()
        if not self._waiting:
            then(ErrorCode.NONE)
            return
        last = self._waiting[-1]
        if last.on_settled is None:
            then(_for_clients(ErrorCode.REQUEST_TIMED_OUT))
        else:
            last.on_settled.append(then)

    def abandon(self) -> None:
        """End with the shard: the next leader decides whether the remaining writes count."""
        waiting, self._waiting = self._waiting, deque()
        for write in waiting:
            self._settle(write, ErrorCode.NOT_COORDINATOR)

    def _post_done(self, write: _Write, error: ErrorCode, _first_offset: int) -> None:
        self._lock.post(partial(self._done, write, error))

    def _done(self, write: _Write, error: ErrorCode) -> None:
        if error:
            self._settle(write, error)
        else:
            self._commit_up_to(write.end_offset)

    def _commit_up_to(self, high_watermark: int) -> None:
        while self._waiting and self._waiting[0].end_offset <= high_watermark:
            write = self._waiting.popleft()
            write.on_commit(write.first_offset)
            self._settle(write, ErrorCode.NONE)

    def _settle(self, write: _Write, error: ErrorCode) -> None:
        on_settled, write.on_settled = write.on_settled, None
        for settled in on_settled or ():
            settled(_for_clients(error))


def _for_clients(error: ErrorCode) -> ErrorCode:
    return APPEND_ERRORS.get(error, error)
