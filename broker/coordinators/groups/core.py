"""What the parts of one group shard share: its lock and life, its writes, its timers.

Rules
1. Everything is guarded by the shard's lock. The pure parts decide (`classic/steps.py`, `consumer/turn.py`,
   `share_groups/turn.py`, `offsets/store.py`).
2. Lock order: a shard's, then a partition's, then a log's. No answer is delivered and no request is woken while the
   shard's lock is held.
3. Records are appended in the order of decisions. A group's state changes at once, as in Kafka; an offset is stored
   when its record is committed. Requests are answered when their records are committed.
4. A write that timed out stays in the list of writes: it is in the log, so it takes effect when the high watermark
   passes it.

Threads: any.
Source: Kafka's CoordinatorRuntime, GroupCoordinatorShard (4.3).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.broker.coordinators.classic.events import TimerKey
from barnabas.broker.coordinators.groups.timers import ShardTimers, TimerEntry
from barnabas.broker.coordinators.runtime.committed_writes import CommittedWrites
from barnabas.broker.coordinators.runtime.completion import Completion
from barnabas.broker.coordinators.runtime.shard_life import ShardLife
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.batch import SimpleRecord, build_batch

if TYPE_CHECKING:
    from barnabas.broker.coordinators.consumer.values import Timeout
    from barnabas.broker.coordinators.groups.context import ShardContext
    from barnabas.broker.coordinators.offsets.records import KeyValue
    from barnabas.broker.storage.producers.verification import VerificationGuard
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.group")

T = TypeVar("T")


class ShardCore:
    """See the module. The caller holds the lock for every method whose name ends in `_locked`."""

    __slots__ = ("context", "life", "lock", "timers", "tp", "writes")

    def __init__(
        self,
        tp: TopicPartition,
        context: ShardContext,
        release_locked: Callable[[], None],
        on_timer_locked: Callable[[TimerEntry], None],
    ) -> None:
        self.tp = tp  # fixed before start
        self.context = context  # fixed before start
        self.life = ShardLife(tp, "groups", log, release_locked)
        lock = self.lock = self.life.lock
        self.writes = CommittedWrites(tp, context.writer, lock)  # guarded by: lock
        self.timers = ShardTimers(
            context.timer, context.clock, lambda entry: lock.post(partial(on_timer_locked, entry))
        )  # guarded by: lock

    def now_ms(self) -> int:
        """Return the wall time."""
        return self.context.clock.wall_ms()

    def answer_locked(self, completion: Completion[T], result: T) -> None:
        """Have a request answered once the lock is released."""
        self.lock.after_release(partial(completion, result))

    def committed_gate_locked(self, group_id: str | None = None) -> ErrorCode:
        """Return the gate for requests that read offsets or consumer groups: is what was loaded committed, too?

        With a group, only its own records count. Others may wait for long: until enough replicas are in sync.

        What was loaded from above the high watermark could be rolled back by the next failover, so it must not be
        read yet. What it replaced must not be read either: the former coordinator may have served the newer value.
        Different from Apache Kafka, which serves the older value for that moment.
        """
        error = self.life.gate_locked()
        if not error:
            self.writes.catch_up()
            if self.writes.has_loaded and (group_id is None or self.writes.has_loaded_of(group_id)):
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return error

    def keep_members_locked(self, group_id: str, timeouts: Iterable[Timeout]) -> None:
        """Keep the members whose turn the log refused: their heartbeats have come all the same.

        Their sessions start again, and who has revoked in time is no longer waited for.
        """
        for timeout in timeouts:
            key = TimerKey(timeout.kind, timeout.member_id)
            if timeout.kind == "session" and timeout.delay_ms is not None:
                self.timers.renew(group_id, key, timeout.delay_ms)
            elif timeout.kind == "rebalance" and timeout.delay_ms is None:
                self.timers.stop(group_id, key)

    def append_locked(
        self, key_values: Sequence[KeyValue], on_commit: Callable[[int], object], on_settled: Completion[ErrorCode]
    ) -> bool:
        """Append records as one batch; False, with `on_settled` posted, when the log refuses them.

        `on_commit(offset of the first record)` changes state once they are committed; `on_settled` comes after it.
        """
        return self.append_batch_locked(self.batch(key_values), len(key_values), on_commit, on_settled)

    def append_batch_locked(
        self,
        batch: bytes,
        count: int,
        on_commit: Callable[[int], object],
        on_settled: Completion[ErrorCode],
        *,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> bool:
        """Append a batch of `count` records; see `append_locked`."""
        return self.writes.append(
            batch, count, self.context.commit_timeout_ms, on_commit, on_settled,
            transaction_version=transaction_version, guard=guard,
        )  # fmt: skip

    def batch(self, key_values: Sequence[KeyValue], **producer: Any) -> bytes:
        """Build a batch; `producer` are the producer's fields of a transactional one."""
        now_ms = self.now_ms()
        simple = [SimpleRecord(now_ms, key, value) for key, value in key_values]
        return build_batch(simple, compression=self.context.compression, **producer)


def unchanged(_first_offset: int) -> None:
    """Do nothing: the `on_commit` of records whose state was changed when they were appended."""


def log_failure(error: ErrorCode) -> None:
    """Log an error: the `on_settled` of records that no request waits for."""
    if error:
        log.warning("Failed to write tombstones: %s", error.name)
