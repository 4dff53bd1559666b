"""LogDirMoves: moves logs between the log directories of this broker (AlterReplicaLogDirs, KIP-113).

A move starts with an empty *future log* in the target directory. A thread copies the current log's records to it, new
ones included. Once the copy has caught up, it replaces the current log; the partition's lock stops appends meanwhile.

Rules
1. A partition moves while it has a future log (`log_manager.future_logs`); there is no other list of moves. A move
   therefore continues after a restart, and ends when the future log is dropped.
2. The copy is flushed before it replaces the current log: records that were safe on the old disk are safe on the new
   one.
3. All threads together copy at most `COPY_RATE`.
4. The controller knows the directory of every log (`DirAssignments`). It is reported when a log is opened, and before
   the last step of a move, which waits until the controller has accepted it. Why before: if the new directory failed
   between the last step and a later report, the controller would not know that this replica was in it, and would not
   replace it. When a reported move is cancelled, the old directory is reported again.
5. A log that cannot be copied does not end the broker, nor the other moves. If the disk failed, its directory goes
   offline; after any other error the log stays where it is until it is moved again or the broker restarts.

| event | promotion before | promotion after |
|---|---|---|
| the copy catches up for the first time | none | *queued*: the new directory is reported |
| the controller accepts | queued | *accepted* |
| the controller refuses | queued | none; the next turn reports again |
| the copy has all records | accepted | none: it replaces the current log under the partition's lock |
| the copy is dropped (another move, the disk, the topic) | queued, accepted | none: the old directory is reported |

Threads: `ReplicaAlterLogDirsThread-<n>` copies; any thread starts, cancels and wakes.
Source: Kafka's ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsThread (its PromotionState; 4.3).
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.storage.cleaner.throttler import Throttler
from barnabas.broker.storage.directories.log_copying import catch_up
from barnabas.broker.storage.directories.names import NAME_LENGTH_MAX, future_dir_name
from barnabas.broker.storage.log.log_types import UnexpectedAppendOffsetError
from barnabas.common.threads import ServiceThread
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log.log import Log
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.replication")

COPY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
READ_BYTES = 1024 * 1024
IDLE_MS = 200


class Assignments(Protocol):
    """Reports the directories of replicas to the controller; see `broker/channels/dir_assignments.py`."""

    def assign(
        self, topic_id: bytes, partition: int, directory_id: bytes, on_done: Callable[[bool], object] | None = None
    ) -> None:
        """Report a replica's directory; `on_done(is_accepted)` is called with the controller's answer."""

    def forget(self, topic_id: bytes, partition: int) -> None:
        """Report nothing more about a replica."""

    def report_again(self) -> None:
        """Report everything again, to a controller that this broker has just registered with."""


class _Promotion:
    """A copy that was reported to the controller and has not replaced the current log yet."""

    __slots__ = ("future", "is_accepted", "source_id", "topic_id")

    def __init__(self, topic_id: bytes, future: Log, source_id: bytes) -> None:
        self.topic_id = topic_id  # fixed before start
        self.future = future  # fixed before start
        self.source_id = source_id  # fixed before start; the directory of the current log
        self.is_accepted = False  # set once


class LogDirMoves:
    """Copies and replaces logs; see the module."""

    def __init__(
        self,
        manager: ReplicaManager,
        assignments: Assignments,
        clock: Clock,
        *,
        thread_count: int,
        bytes_per_second: Callable[[], float],
    ) -> None:
        self._hosted = manager.hosted  # fixed before start
        self._log_manager = manager.log_manager  # fixed before start
        self._complete_delayed = manager.complete_delayed  # fixed before start
        self._assignments = assignments  # fixed before start
        self._rate = bytes_per_second  # fixed before start
        self._throttler = Throttler(max(1, bytes_per_second()), clock)
        self._changes = threading.Lock()  # one move starts at a time; before the locks of partitions
        self._failed: dict[TopicPartition, Log] = {}  # the copies that are skipped (rule 5); single accesses, no lock
        self._condition = threading.Condition()  # guards the three below
        self._promotions: dict[TopicPartition, _Promotion] = {}  # single look-ups without it
        self._wakes = 0
        self._is_stopping = False
        self._threads = [
            ServiceThread(f"ReplicaAlterLogDirsThread-{n}", f"alter-log-dir-{n}", lambda n=n: self._run(n))  # type: ignore[misc]
            for n in range(thread_count)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def shutdown(self) -> None:
        """Stop the threads; the moves continue at the next start."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def wake(self) -> None:
        """Make the threads look for records to copy."""
        with self._condition:
            self._wakes += 1
            self._condition.notify_all()

    # What other components call

    def move(self, tp: TopicPartition, path: str) -> None:
        """Start to move a partition's log to the log directory `path`, or cancel a move if the log is there already.

        A partition that this broker does not hold will be created there when it is assigned. Raises ApiError:
        LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR, INVALID_REPLICA_ASSIGNMENT (the directory is cordoned),
        NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION.
        """
        if len(future_dir_name(tp)) > NAME_LENGTH_MAX:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        directory = self._log_manager.directory_at(path)
        if directory is None:
            raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log directory {path} is not found in the config.")
        if directory.is_offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")
        if self._log_manager.is_cordoned(directory):
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"Log directory {path} is cordoned")
        with self._changes:
            future = self._log_manager.future_log(tp)
            if future is not None and self._log_manager.directory_of(future) is not directory:
                self._log_manager.drop_future_log(tp)
            self._log_manager.prefer_directory(tp, directory)
            current = self._hosted.get(tp).log
            if current is not None and self._log_manager.directory_of(current) is not directory:
                self._log_manager.create_future_log(tp, directory)
            self._failed.pop(tp, None)
        self.wake()

    def on_log(self, partition: Partition, opened: Log) -> None:
        """A partition's log was found, created or moved: report its directory, unless a promotion has done so."""
        if len(self._log_manager.directories) > 1 and partition.tp not in self._promotions:
            directory = self._log_manager.directory_of(opened)
            self._assignments.assign(partition.topic_id, partition.tp.partition, directory.directory_id)

    def on_gone(self, partition: Partition) -> None:
        """This broker holds the partition no more."""
        with self._condition:
            self._promotions.pop(partition.tp, None)
        self._failed.pop(partition.tp, None)
        self._assignments.forget(partition.topic_id, partition.tp.partition)

    def on_registered(self) -> None:
        """The broker has registered: report all directories again."""
        self._assignments.report_again()

    # The threads

    def _run(self, index: int) -> None:
        while not self._is_stopping:
            wakes = self._wakes
            pause_ms = self.turn(index)
            with self._condition:
                self._condition.wait_for(
                    lambda seen=wakes: self._is_stopping or self._wakes != seen,  # type: ignore[misc]
                    None if pause_ms is None else pause_ms / 1000,
                )

    def turn(self, index: int = 0) -> int | None:
        """Copy a piece of each log of this thread; returns the pause until the next turn in ms, or None."""
        self._throttler.bytes_per_second = max(1, self._rate())
        self._cancel_dropped(index)
        moving = self._log_manager.future_logs()
        pause_ms: int | None = None
        for future in moving:
            tp = future.topic_partition
            if self._is_of(tp, index) and self._failed.get(tp) is not future:
                copied = self._copy_some(tp, future)
                pause_ms = min(IDLE_MS if pause_ms is None else pause_ms, 0 if copied else IDLE_MS)
                held_ms = self._throttler.wait_ms(copied)
                if held_ms:
                    return held_ms
        return pause_ms

    def _copy_some(self, tp: TopicPartition, future: Log) -> int:
        partition = self._hosted.find(tp)
        current = None if partition is None else partition.log
        if partition is None or current is None:
            return 0  # the controller has not pushed the partition yet
        try:
            copied = catch_up(current, future, READ_BYTES)
            if copied < READ_BYTES:
                future.flush()
                self._promote(partition, current, future)
        except (ApiError, UnexpectedAppendOffsetError) as error:
            log.warning("copying %s to another directory: %s", tp, error)
            return 0
        except Exception:  # Why: a bug met by one log must not end the broker
            log.exception("%s cannot be copied to another directory, and stays where it is", tp)
            self._failed[tp] = future
            return 0
        return copied

    def _promote(self, partition: Partition, current: Log, future: Log) -> None:
        """Let a copy that has caught up replace the current log, once the controller has accepted its directory."""
        tp = partition.tp
        promotion = self._promotions.get(tp) or self._announce(partition, current, future)
        if promotion.is_accepted and partition.replace_log(lambda held: self._take_over(held, future)):
            log.info("%s has moved to %s", tp, future.directory)
            with self._condition:
                self._promotions.pop(tp, None)
            self.on_log(partition, future)
            self._complete_delayed(tp)

    def _announce(self, partition: Partition, current: Log, future: Log) -> _Promotion:
        """Report the copy's directory to the controller."""
        directory_of, tp = self._log_manager.directory_of, partition.tp
        promotion = _Promotion(partition.topic_id, future, directory_of(current).directory_id)
        with self._condition:
            self._promotions[tp] = promotion
        self._assignments.assign(
            promotion.topic_id,
            tp.partition,
            directory_of(future).directory_id,
            lambda is_accepted: self._on_answer(tp, promotion, is_accepted),
        )
        return promotion

    def _on_answer(self, tp: TopicPartition, promotion: _Promotion, is_accepted: bool) -> None:
        """The controller has accepted or refused the copy's directory."""
        with self._condition:
            promotion.is_accepted = is_accepted
            if not is_accepted and self._promotions.get(tp) is promotion:
                del self._promotions[tp]
            self._wakes += 1
            self._condition.notify_all()

    def _cancel_dropped(self, index: int) -> None:
        """Report the old directory again for logs whose reported copies were dropped."""
        for tp, promotion in list(self._promotions.items()):
            if self._is_of(tp, index) and self._log_manager.future_log(tp) is not promotion.future:
                with self._condition:
                    self._promotions.pop(tp, None)
                log.info("%s stays where it is: its move was cancelled", tp)
                self._assignments.assign(promotion.topic_id, tp.partition, promotion.source_id)

    def _is_of(self, tp: TopicPartition, index: int) -> bool:
        """Whether this thread moves the partition."""
        return zlib.crc32(str(tp).encode()) % len(self._threads) == index

    def _take_over(self, current: Log, future: Log) -> Log | None:
        """The last step, under the partition's lock; None if too much is left to copy, or the move is over."""
        tp = current.topic_partition
        if self._log_manager.get_log(tp) is not current or self._log_manager.future_log(tp) is not future:
            return None
        catch_up(current, future, READ_BYTES)
        if future.log_end_offset != current.log_end_offset:
            return None
        future.flush()
        return self._log_manager.swap_in_future(tp)
