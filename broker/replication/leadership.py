"""Applying the controller's push: which partitions this broker leads, follows, or no longer holds.

Rules
1. Pushes are applied one at a time, in the order of their connection, under `_lock` (before any partition's lock).
2. Whether a push is obeyed at all is decided before (`push_gate.py`); a partition state with an older leader epoch is
   refused alone.
3. A FULL LeaderAndIsr is the whole truth of what this broker holds. A log that it does not name, or names under another
   topic id, is set aside (storage/strays.py), not deleted: its topic may have been deleted while this broker was away,
   or the controller may have lost what it knew. A log is deleted only by a StopReplica that names its topic id.
4. Coordinators and waiters are told afterwards, holding no lock of a partition.
5. A broker that is about to leave copies nothing more of partitions whose ISR it has left: those who took over have
   better things to do at that moment.

Threads: the handlers that run LeaderAndIsr and StopReplica.
Source: Kafka 3.9's ReplicaManager.becomeLeaderOrFollower and stopReplicas; 4.3's LogManager for stray logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.role import LeadershipChange
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.high_watermarks import HighWatermarks
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log import Log

log = logging.getLogger("barnabas.state-change")

ANOTHERS_NAME = "its name is another topic's now"

TopicState = tuple[str, bytes, Sequence[Any]]  # name, id, LeaderAndIsrPartitionStates
PartitionErrors = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class Deletions:
    """What a push names as deleted: topics by id, and replicas of this broker by topic id and partition."""

    topics: frozenset[bytes] = frozenset()
    replicas: frozenset[tuple[bytes, int]] = frozenset()

    def names(self, topic_id: bytes, partition: int) -> bool:
        """Whether the log of this topic's partition is to be deleted."""
        return topic_id in self.topics or (topic_id, partition) in self.replicas


class Fetchers(Protocol):
    """The threads that fetch from leaders."""

    def follow(self, partitions: Iterable[Partition], leaders: Mapping[int, tuple[str, int]]) -> None:
        """Start fetching these from the leaders in their roles; `leaders` tells where these are."""

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Stop fetching these; nothing of them is appended once this has returned."""


class LogDirWatcher(Protocol):
    """Who must know where the logs of our partitions lie (`log_dir_moves.py`)."""

    def on_log(self, partition: Partition, opened: Log) -> None:
        """The partition's log was found or made."""

    def on_gone(self, partition: Partition) -> None:
        """This broker holds the partition no more."""

    def wake(self) -> None:
        """Partitions came."""


class Leadership:
    """Applies pushes to the partitions of `manager`."""

    def __init__(
        self,
        manager: ReplicaManager,
        high_watermarks: HighWatermarks,
        topic_config: Callable[[str], Any],
        fetchers: Fetchers,
    ) -> None:
        self._manager = manager  # fixed before start
        self._high_watermarks = high_watermarks  # fixed before start
        self._topic_config = topic_config  # fixed before start
        self._fetchers = fetchers  # fixed before start
        self.log_dirs: LogDirWatcher | None = None  # fixed before start
        self._lock = threading.Lock()  # one push at a time
        self.is_leaving = False  # set once, when a controlled shutdown begins

    def apply(
        self, topics: Sequence[TopicState], *, is_full: bool, leaders: Mapping[int, tuple[str, int]] | None = None
    ) -> PartitionErrors:
        """Become leader and follower as the topics' states say; returns an error (or NONE) for each partition."""
        errors: PartitionErrors = {}
        led: list[tuple[TopicPartition, int]] = []
        followed: list[Partition] = []
        with self._lock:
            if is_full:
                self._set_strays_aside(topics)
            for name, topic_id, states in topics:
                for state in states:
                    tp = TopicPartition(name, state.partition_index)
                    try:
                        self._apply_one(tp, topic_id, state, led, followed)
                        errors[tp] = ErrorCode.NONE
                    except ApiError as error:
                        log.warning("push for %s refused: %s", tp, error.code.name)
                        errors[tp] = error.code
            left = self._left_isrs(topics) if self.is_leaving else frozenset()
            self._fetchers.forget([*(tp for tp, _ in led), *left])
            self._fetchers.follow([partition for partition in followed if partition.tp not in left], leaders or {})
        self._tell(led, followed)
        if self.log_dirs is not None:
            self.log_dirs.wake()
        for tp in errors:  # Why all: an ISR that the controller shrank moves the high watermark within an epoch too
            self._manager.complete_delayed(tp)
        return errors

    def _left_isrs(self, topics: Sequence[TopicState]) -> frozenset[TopicPartition]:
        """The partitions in whose ISR this broker is not (any more), by what a push says (rule 5)."""
        return frozenset(
            TopicPartition(name, state.partition_index)
            for name, _, states in topics
            for state in states
            if self._manager.broker_id not in state.isr
        )

    def stop(self, stops: Iterable[tuple[TopicPartition, int, bool]], deletions: Deletions) -> PartitionErrors:
        """Hold these partitions no more, given as (partition, leader epoch or -2 for deletion, delete its log?).

        Of those to be deleted only what `deletions` names is; a partition of another topic id stays as it is.
        """
        errors: PartitionErrors = {}
        stopped: list[TopicPartition] = []
        doomed: dict[TopicPartition, bytes] = {}
        with self._lock:
            for tp, leader_epoch, delete in stops:
                partition = self._manager.find(tp)
                topic_id = self._topic_id(tp, partition)
                if partition is not None and 0 <= leader_epoch < partition.leader_epoch:
                    errors[tp] = ErrorCode.FENCED_LEADER_EPOCH
                elif not delete:
                    stopped.append(tp)
                elif topic_id is not None and deletions.names(topic_id, tp.partition):
                    stopped.append(tp)
                    doomed[tp] = topic_id
                else:
                    if topic_id is not None:
                        log.warning("%s is of another topic id than the push names as deleted: it is kept", tp)
                    errors[tp] = ErrorCode.NONE
            self._give_up(stopped)
            errors |= dict.fromkeys(stopped, ErrorCode.NONE)
            for tp, error in self._manager.log_manager.delete_logs(doomed).items():
                log.error("cannot delete the log of %s: %s", tp, error)
                errors[tp] = ErrorCode.KAFKA_STORAGE_ERROR
        self._tell_stopped(stopped)
        return errors

    def _topic_id(self, tp: TopicPartition, partition: Partition | None) -> bytes | None:
        """The topic id of what this broker holds of a partition; None if it holds nothing, or does not know."""
        logs = self._manager.log_manager
        ids = [held.topic_id for held in (partition, logs.get_log(tp), logs.future_log(tp)) if held is not None]
        return next((topic_id for topic_id in ids if topic_id not in (None, ZERO_UUID)), None)

    def take_offline(self, tps: Iterable[TopicPartition]) -> None:
        """The log directory of these partitions failed: whoever asks for them hears KAFKA_STORAGE_ERROR."""
        held = []
        with self._lock:
            for tp in tps:
                partition = self._manager.find(tp)
                if partition is not None:
                    held.append(tp)
                    self._manager.mark_offline(tp)
                    partition.resign()
            self._fetchers.forget(held)
        for tp in held:
            for listener in self._manager.listeners:
                listener.on_resignation(tp, None)
            self._manager.complete_delayed(tp)

    def resign_all(self) -> None:
        """Stop serving every partition: the broker is shutting down."""
        with self._lock:
            partitions = self._manager.partitions()
            self._fetchers.forget([p.tp for p in partitions])
            for partition in partitions:
                partition.resign()

    # Under the lock

    def _apply_one(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        state: Any,
        led: list[tuple[TopicPartition, int]],
        followed: list[Partition],
    ) -> None:
        manager = self._manager
        partition = manager.find(tp)
        if partition is not None and topic_id not in (ZERO_UUID, partition.topic_id):
            self._set_aside([tp], ANOTHERS_NAME)
            partition = None
        if manager.broker_id not in state.replicas:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition is not None and state.leader_epoch < partition.leader_epoch:
            raise ApiError(ErrorCode.STALE_CONTROLLER_EPOCH)
        is_added = partition is None
        if partition is None:
            partition = Partition(
                tp, topic_id, manager.broker_id, manager.clock,
                replica_lag_time_max_ms=manager.config.replica_lag_time_max_ms,
                is_alive=lambda id_: manager.metadata_cache.snapshot.is_alive(id_),
                is_eligible=lambda id_, epoch: manager.metadata_cache.snapshot.is_isr_eligible(id_, epoch),
            )  # fmt: skip
        change = _change_of(state)
        try:
            self._become(partition, change, led, followed)
        except (ApiError, OSError) as error:
            log.error("%s is offline: %s", tp, error)
            manager.mark_offline(tp)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if is_added:
            manager.add(partition)

    def _become(
        self,
        partition: Partition,
        change: LeadershipChange,
        led: list[tuple[TopicPartition, int]],
        followed: list[Partition],
    ) -> None:
        def get_log() -> Log:
            return self._open_log(partition, is_new=change.is_new)

        if change.leader_id == self._manager.broker_id:
            if partition.make_leader(change, get_log):
                led.append((partition.tp, change.leader_epoch))
        else:
            was_leader = partition.is_leader
            if partition.make_follower(change, get_log) or was_leader:
                followed.append(partition)

    def _open_log(self, partition: Partition, *, is_new: bool) -> Log:
        """The partition's log, found or made, its high watermark as the checkpoint remembers it."""
        log_manager = self._manager.log_manager
        opened = log_manager.get_or_create_log(
            partition.tp, partition.topic_id, self._topic_config(partition.tp.topic), is_new
        )
        remembered = self._high_watermarks.restored(opened, partition.tp)
        if remembered > opened.high_watermark:
            opened.update_high_watermark(min(remembered, opened.log_end_offset))
        if self.log_dirs is not None:
            self.log_dirs.on_log(partition, opened)
        return opened

    def _give_up(self, tps: Sequence[TopicPartition]) -> None:
        """Hold these partitions no more; their logs stay where they are."""
        self._fetchers.forget(list(tps))
        for tp in tps:
            partition = self._manager.remove(tp)
            if partition is not None:
                partition.resign()
                if self.log_dirs is not None:
                    self.log_dirs.on_gone(partition)

    def _set_aside(self, tps: Sequence[TopicPartition], reason: str) -> None:
        """Give partitions up, and keep their logs where a person finds them."""
        self._give_up(tps)
        for tp, error in self._manager.log_manager.set_aside(dict.fromkeys(tps), reason).items():
            log.error("cannot set the log of %s aside: %s", tp, error)

    def _set_strays_aside(self, topics: Sequence[TopicState]) -> None:
        """Rule 3."""
        ids = {
            TopicPartition(name, state.partition_index): topic_id
            for name, topic_id, states in topics
            for state in states
        }
        log_manager = self._manager.log_manager
        held = {stray.topic_partition: stray.topic_id for stray in log_manager.all_logs()}
        held.update((partition.tp, partition.topic_id) for partition in self._manager.partitions())
        copied = {copy.topic_partition for copy in log_manager.future_logs()}
        unnamed = (held.keys() | copied) - ids.keys()
        others = [tp for tp, id_ in held.items() if tp in ids and id_ not in (None, ZERO_UUID, ids[tp])]
        self._set_aside(sorted(unnamed), "the controller knows no such partition of this broker")
        self._set_aside(sorted(others), ANOTHERS_NAME)
        log_manager.set_aside({tp: ids[tp] for tp in copied if tp in ids}, ANOTHERS_NAME)

    # After it

    def _tell(self, led: list[tuple[TopicPartition, int]], followed: list[Partition]) -> None:
        for listener in self._manager.listeners:
            for tp, leader_epoch in led:
                listener.on_leadership(tp, leader_epoch)
            for partition in followed:
                listener.on_resignation(partition.tp, partition.leader_epoch)

    def _tell_stopped(self, stopped: list[TopicPartition]) -> None:
        for tp in stopped:
            for listener in self._manager.listeners:
                listener.on_resignation(tp, None)
            self._manager.complete_delayed(tp)
        held = {p.tp.topic for p in self._manager.partitions()}
        for topic in {tp.topic for tp in stopped} - held:
            self._manager.stats.remove(topic)


def _change_of(state: Any) -> LeadershipChange:
    return LeadershipChange(
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=tuple(state.isr),
        replicas=tuple(state.replicas),
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        leader_recovery_state=state.leader_recovery_state,
        is_new=state.is_new,
    )
