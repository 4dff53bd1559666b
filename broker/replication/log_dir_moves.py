"""LogDirMoves: brings logs to other log directories of this broker (AlterReplicaLogDirs, KIP-113).

A move begins with an empty future log in the other directory. A thread copies to it what the current log has and
gets; where it has reached the end, the partition's lock keeps the end where it is while the future log takes over.

Rules
1. What moves is what has a future log (`log_manager.future_logs`): a move goes on after a restart, is ended by whoever
   drops the future log, and needs no list of its own.
2. The copy is flushed before it takes over: what was safe on the old disk is safe on the new one.
3. All threads together copy at most `COPY_RATE`.
4. The controller is told where every log lies (`DirAssignments`): when it was opened; and of a move, before its last
   step, which waits until the controller has accepted it. So at no time does a log lie, and lead, where the controller
   does not know: were it told afterwards, the failure of the new directory in between would be that of a directory
   without this replica, and nobody would replace it. A move that is given up after that is taken back.

| a copy that has caught up | its promotion | then |
|---|---|---|
| for the first time | none | the controller is told: *queued* |
| waits for the answer | queued | accepted: *accepted*; refused: none, and told again with the next turn |
| may take over | accepted | takes over with the partition's lock held, as soon as it has all records |
| is dropped (another move, the disk, the topic) | queued, accepted | the controller is told where the log lies |

Threads: `ReplicaAlterLogDirsThread-<n>` copies; any thread begins, ends and wakes.
Source: Kafka's ReplicaManager.alterReplicaLogDirs, ReplicaAlterLogDirsThread (its PromotionState; 4.3).
"""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.storage.log_copying import catch_up
from barnabas.broker.storage.names import NAME_LENGTH_MAX, future_dir_name
from barnabas.broker.storage.throttler import Throttler
from barnabas.common.threads import ServiceThread
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log import Log
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition

log = logging.getLogger("barnabas.replication")

COPY_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
READ_BYTES = 1024 * 1024
IDLE_MS = 200


class Assignments(Protocol):
    """Who tells the controller of directories; see `broker/dir_assignments.py`."""

    def assign(
        self, topic_id: bytes, partition: int, directory_id: bytes, on_done: Callable[[bool], object] | None = None
    ) -> None: ...
    def forget(self, topic_id: bytes, partition: int) -> None: ...
    def tell_again(self) -> None: ...


class _Promotion:
    """A copy of which the controller was told, before it takes over."""

    __slots__ = ("future", "is_accepted", "source_id", "topic_id")

    def __init__(self, topic_id: bytes, future: Log, source_id: bytes) -> None:
        self.topic_id = topic_id  # fixed before start
        self.future = future  # fixed before start
        self.source_id = source_id  # fixed before start; the directory in which the log lies
        self.is_accepted = False  # set once


class LogDirMoves:
    """See the module."""

    def __init__(
        self,
        manager: ReplicaManager,
        assignments: Assignments,
        clock: Clock,
        *,
        thread_count: int,
        bytes_per_second: Callable[[], float],
    ) -> None:
        self._manager = manager  # fixed before start
        self._log_manager = manager.log_manager  # fixed before start
        self._assignments = assignments  # fixed before start
        self._rate = bytes_per_second  # fixed before start
        self._throttler = Throttler(max(1, bytes_per_second()), clock)
        self._changes = threading.Lock()  # one beginning of a move at a time; before the locks of partitions
        self._condition = threading.Condition()  # guards the three below
        self._promotions: dict[TopicPartition, _Promotion] = {}  # single look-ups without it
        self._wakes = 0
        self._is_stopping = False
        self._threads = [
            ServiceThread(f"ReplicaAlterLogDirsThread-{n}", f"alter-log-dir-{n}", lambda n=n: self._run(n))  # type: ignore[misc]
            for n in range(thread_count)
        ]

    def start(self) -> None:
        """Start to copy."""
        for thread in self._threads:
            thread.start()

    def shutdown(self) -> None:
        """Stop; the moves go on at the next start."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def wake(self) -> None:
        """There may be something to copy."""
        with self._condition:
            self._wakes += 1
            self._condition.notify_all()

    # What others ask

    def move(self, tp: TopicPartition, path: str) -> None:
        """Begin to bring a partition's log to the log directory `path`, or give a move up if it lies there already.

        A partition that this broker does not hold will be made there when it comes. Raises ApiError:
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
            current = self._manager.partition(tp).log
            if current is not None and self._log_manager.directory_of(current) is not directory:
                self._log_manager.create_future_log(tp, directory)
        self.wake()

    def on_log(self, partition: Partition, opened: Log) -> None:
        """A partition's log was found, made or moved: the controller shall know where it lies, or soon will."""
        if len(self._log_manager.directories) > 1 and partition.tp not in self._promotions:
            directory = self._log_manager.directory_of(opened)
            self._assignments.assign(partition.topic_id, partition.tp.partition, directory.directory_id)

    def on_gone(self, partition: Partition) -> None:
        """This broker holds the partition no more."""
        with self._condition:
            self._promotions.pop(partition.tp, None)
        self._assignments.forget(partition.topic_id, partition.tp.partition)

    def on_registered(self) -> None:
        """The broker has registered: whatever the controller knew of its directories, it is told again."""
        self._assignments.tell_again()

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
        """Copy a piece of each log of this thread; returns after how many ms to go on, None if nothing moves."""
        self._throttler.bytes_per_second = max(1, self._rate())
        self._take_back(index)
        moving = self._log_manager.future_logs()
        pause_ms: int | None = None
        for future in moving:
            tp = future.topic_partition
            if self._is_of(tp, index):
                copied = self._copy_some(tp, future)
                pause_ms = min(IDLE_MS if pause_ms is None else pause_ms, 0 if copied else IDLE_MS)
                held_ms = self._throttler.wait_ms(copied)
                if held_ms:
                    return held_ms
        return pause_ms

    def _copy_some(self, tp: TopicPartition, future: Log) -> int:
        partition = self._manager.find(tp)
        current = None if partition is None else partition.log
        if partition is None or current is None:
            return 0  # not pushed to us yet
        try:
            copied = catch_up(current, future, READ_BYTES)
            if copied < READ_BYTES:
                future.flush()
                self._promote(partition, current, future)
        except ApiError as error:
            log.warning("copying %s to another directory: %s", tp, error)
            return 0
        return copied

    def _promote(self, partition: Partition, current: Log, future: Log) -> None:
        """Have a copy that has caught up take over, once the controller has accepted where it lies."""
        tp = partition.tp
        promotion = self._promotions.get(tp) or self._announce(partition, current, future)
        if promotion.is_accepted and partition.replace_log(lambda held: self._take_over(held, future)):
            log.info("%s has moved to %s", tp, future.directory)
            with self._condition:
                self._promotions.pop(tp, None)
            self.on_log(partition, future)
            self._manager.complete_delayed(tp)

    def _announce(self, partition: Partition, current: Log, future: Log) -> _Promotion:
        """Tell the controller where the copy lies."""
        directory_of, tp = self._log_manager.directory_of, partition.tp
        promotion = _Promotion(partition.topic_id, future, directory_of(current).directory_id)
        with self._condition:
            self._promotions[tp] = promotion
        self._assignments.assign(
            promotion.topic_id,
            tp.partition,
            directory_of(future).directory_id,
            lambda is_accepted: self._on_told(tp, promotion, is_accepted),
        )
        return promotion

    def _on_told(self, tp: TopicPartition, promotion: _Promotion, is_accepted: bool) -> None:
        """The controller knows where the copy lies, or does not want to."""
        with self._condition:
            promotion.is_accepted = is_accepted
            if not is_accepted and self._promotions.get(tp) is promotion:
                del self._promotions[tp]
            self._wakes += 1
            self._condition.notify_all()

    def _take_back(self, index: int) -> None:
        """Tell the controller where the logs lie whose copies were given up when it had been told of them."""
        for tp, promotion in list(self._promotions.items()):
            if self._is_of(tp, index) and self._log_manager.future_log(tp) is not promotion.future:
                with self._condition:
                    self._promotions.pop(tp, None)
                log.info("%s stays where it is: its move was given up", tp)
                self._assignments.assign(promotion.topic_id, tp.partition, promotion.source_id)

    def _is_of(self, tp: TopicPartition, index: int) -> bool:
        """Whether a partition is moved by this thread."""
        return zlib.crc32(str(tp).encode()) % len(self._threads) == index

    def _take_over(self, current: Log, future: Log) -> Log | None:
        """The last step, with the partition's lock held; None if there is too much left, or the move is over."""
        tp = current.topic_partition
        if self._log_manager.get_log(tp) is not current or self._log_manager.future_log(tp) is not future:
            return None
        catch_up(current, future, READ_BYTES)
        if future.log_end_offset != current.log_end_offset:
            return None
        future.flush()
        return self._log_manager.swap_in_future(tp)
