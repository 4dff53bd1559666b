"""Leadership: applies the controller's pushes, which decide the partitions that this broker leads, follows or drops.

Rules
1. Pushes are applied one at a time, in the order of their connection, under `_lock` (before any partition's lock).
2. `push_gate.py` decides first whether a push is obeyed at all. Here a partition state with an older leader epoch is
   refused alone.
3. A FULL LeaderAndIsr names everything that this broker holds. A log that it does not name, or names under another
   topic id, is set aside (`storage/directories/strays.py`), not deleted. Its topic may have been deleted while this
   broker was away, or the controller may have lost its metadata. A log is deleted only by a StopReplica that names its
   topic id.
4. Coordinators and waiting requests are notified afterwards, holding no lock of a partition.
5. A broker that is shutting down stops fetching partitions whose ISR it has left. Why: the brokers that took over are
   busy at that moment.

Threads: the handlers that run LeaderAndIsr and StopReplica.
Source: Kafka 3.9's ReplicaManager.becomeLeaderOrFollower and stopReplicas; 4.3's LogManager for stray logs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.role import LeadershipChange
from barnabas.common.ids import ZERO_UUID
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.replication.high_watermarks import HighWatermarks
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log.log import Log
    from barnabas.config import TopicConfig
    from barnabas.protocol.messages.k04_leader_and_isr import LeaderAndIsrPartitionState

log = logging.getLogger("barnabas.state-change")

NAME_REUSED = "another topic has its name now"

TopicState = tuple[str, bytes, "Sequence[LeaderAndIsrPartitionState]"]  # name, id, states
PartitionErrors = dict[TopicPartition, ErrorCode]
SharedReplicas = dict[tuple[int, ...], tuple[int, ...]]
"""Equal tuples as one object, which most partitions of a push have in common."""


@dataclass(frozen=True, slots=True)
class Deletions:
    """The logs that a push names as deleted: topics by id, and replicas of this broker by topic id and partition."""

    topics: frozenset[bytes] = frozenset()
    replicas: frozenset[tuple[bytes, int]] = frozenset()

    def names(self, topic_id: bytes, partition: int) -> bool:
        """Whether the log of this topic's partition is to be deleted."""
        return topic_id in self.topics or (topic_id, partition) in self.replicas


class Fetchers(Protocol):
    """The threads that fetch from leaders."""

    def follow(self, partitions: Iterable[Partition], leaders: Mapping[int, tuple[str, int]]) -> None:
        """Fetch these from the leaders in their roles; `leaders` maps a leader's id to its host and port."""

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Stop fetching these; once this has returned, nothing more is appended to them."""


class LogDirWatcher(Protocol):
    """Tracks the directories of this broker's logs (`log_dir_moves.py`)."""

    def on_log(self, partition: Partition, opened: Log) -> None:
        """The partition's log was found or created."""

    def on_gone(self, partition: Partition) -> None:
        """This broker holds the partition no more."""

    def wake(self) -> None:
        """Partitions were added."""


class LeadershipListener(Protocol):
    """Follows which partitions this broker leads (the coordinators do); called holding no lock."""

    def on_leadership(self, tp: TopicPartition, leader_epoch: int) -> None:
        """This broker leads `tp` from `leader_epoch` on."""

    def on_resignation(self, tp: TopicPartition, leader_epoch: int | None) -> None:
        """This broker no longer leads `tp`; None: it no longer holds it at all."""


class Leadership:
    """Applies pushes to the partitions of `manager`."""

    def __init__(
        self,
        manager: ReplicaManager,
        high_watermarks: HighWatermarks,
        topic_config: Callable[[str], TopicConfig],
        fetchers: Fetchers,
    ) -> None:
        self._manager = manager  # fixed before start
        self._hosted = manager.hosted  # fixed before start
        self._high_watermarks = high_watermarks  # fixed before start
        self._topic_config = topic_config  # fixed before start
        self._fetchers = fetchers  # fixed before start
        self.log_dirs: LogDirWatcher | None = None  # fixed before start
        self.listeners: list[LeadershipListener] = []  # fixed before start
        # Why here: one of each for all partitions.
        self._is_alive: Callable[[int], bool] = lambda id_: manager.metadata_cache.snapshot.is_alive(id_)
        self._is_eligible: Callable[[int, int], bool] = lambda id_, epoch: (
            manager.metadata_cache.snapshot.is_isr_eligible(id_, epoch)
        )
        self._lock = threading.Lock()  # one push at a time
        self.is_leaving = False  # set once, when a controlled shutdown begins

    def apply(
        self, topics: Sequence[TopicState], *, is_full: bool, leaders: Mapping[int, tuple[str, int]] | None = None
    ) -> PartitionErrors:
        """Lead and follow partitions by their pushed states; returns an error (or NONE) for each partition."""
        errors: PartitionErrors = {}
        led: list[tuple[TopicPartition, int]] = []
        followed: list[Partition] = []
        shared: SharedReplicas = {}
        with self._lock:
            dropped = self._set_strays_aside(topics) if is_full else ()
            for name, topic_id, states in topics:
                for state in states:
                    tp = TopicPartition(name, state.partition_index)
                    found = self._manager.log_manager.get_log(tp)
                    if found is not None:
                        tp = found.topic_partition  # one object for both
                    try:
                        self._apply_one(tp, topic_id, state, shared, led, followed)
                        errors[tp] = ErrorCode.NONE
                    except ApiError as error:
                        log.warning("push for %s refused: %s", tp, error.code.name)
                        errors[tp] = error.code
            left = self._left_isrs(topics) if self.is_leaving else frozenset()
            self._fetchers.forget([*(tp for tp, _ in led), *left])
            self._fetchers.follow([partition for partition in followed if partition.tp not in left], leaders or {})
        self._notify(led, followed)
        if self.log_dirs is not None:
            self.log_dirs.wake()
        # Why all: an ISR that the controller shrank moves the high watermark within an epoch too.
        self._manager.complete_all_delayed([*errors, *dropped])
        return errors

    def end_leaderships(self, topics: Sequence[TopicState]) -> None:
        """Stop leading the partitions that these states give to other leaders; `apply` does the rest with them."""
        with self._lock:
            for name, topic_id, states in topics:
                for state in states:
                    if state.leader != self._manager.broker_id:
                        partition = self._hosted.find(TopicPartition(name, state.partition_index))
                        if partition is not None and topic_id in (ZERO_UUID, partition.topic_id):
                            partition.resign_before(state.leader_epoch, state.partition_epoch)

    def _left_isrs(self, topics: Sequence[TopicState]) -> frozenset[TopicPartition]:
        """The pushed partitions whose ISR does not contain this broker (rule 5)."""
        return frozenset(
            TopicPartition(name, state.partition_index)
            for name, _, states in topics
            for state in states
            if self._manager.broker_id not in state.isr
        )

    def stop(self, stops: Iterable[tuple[TopicPartition, int, bool]], deletions: Deletions) -> PartitionErrors:
        """Hold these partitions no more; each is (partition, leader epoch or -2 for deletion, delete its log?).

        A log is deleted only if `deletions` names it; a partition of another topic id stays as it is. Returns an error
        (or NONE) for each partition.
        """
        errors: PartitionErrors = {}
        stopped: list[TopicPartition] = []
        doomed: dict[TopicPartition, bytes] = {}
        with self._lock:
            for tp, leader_epoch, delete in stops:
                partition = self._hosted.find(tp)
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
                        log.warning("%s is kept: the push names another topic id as deleted", tp)
                    errors[tp] = ErrorCode.NONE
            self._drop(stopped)
            errors |= dict.fromkeys(stopped, ErrorCode.NONE)
            for tp, error in self._manager.log_manager.delete_logs(doomed).items():
                log.error("cannot delete the log of %s: %s", tp, error)
                errors[tp] = ErrorCode.KAFKA_STORAGE_ERROR
        self._notify_stopped(stopped)
        return errors

    def _topic_id(self, tp: TopicPartition, partition: Partition | None) -> bytes | None:
        """The topic id under which this broker holds the partition; None if it does not hold it, or has no id."""
        logs = self._manager.log_manager
        ids = [held.topic_id for held in (partition, logs.get_log(tp), logs.future_log(tp)) if held is not None]
        return next((topic_id for topic_id in ids if topic_id not in (None, ZERO_UUID)), None)

    def take_offline(self, tps: Iterable[TopicPartition]) -> None:
        """The log directory of these partitions failed: requests for them get KAFKA_STORAGE_ERROR from now on."""
        held = []
        with self._lock:
            for tp in tps:
                partition = self._hosted.find(tp)
                if partition is not None:
                    held.append(tp)
                    self._hosted.mark_offline(tp)
                    partition.resign()
            self._fetchers.forget(held)
        for tp in held:
            for listener in self.listeners:
                listener.on_resignation(tp, None)
        self._manager.complete_all_delayed(held)

    # Under the lock

    def _apply_one(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        state: LeaderAndIsrPartitionState,
        shared: SharedReplicas,
        led: list[tuple[TopicPartition, int]],
        followed: list[Partition],
    ) -> None:
        manager = self._manager
        partition = self._hosted.find(tp)
        if partition is not None and topic_id not in (ZERO_UUID, partition.topic_id):
            self._set_aside([tp], NAME_REUSED)
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
                is_alive=self._is_alive,
                is_eligible=self._is_eligible,
            )  # fmt: skip
        change = _change_of(state, shared)
        try:
            self._become(partition, change, led, followed)
        except (ApiError, OSError) as error:
            log.error("%s is offline: %s", tp, error)
            self._hosted.mark_offline(tp)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        if is_added:
            self._hosted.add(partition)

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
        """The partition's log, found or created, with the checkpointed high watermark."""
        log_manager = self._manager.log_manager
        opened = log_manager.get_or_create_log(
            partition.tp, partition.topic_id, self._topic_config(partition.tp.topic), is_new
        )
        restored = self._high_watermarks.restored(opened, partition.tp)
        if restored > opened.high_watermark:
            opened.update_high_watermark(min(restored, opened.log_end_offset))
        if self.log_dirs is not None:
            self.log_dirs.on_log(partition, opened)
        return opened

    def _drop(self, tps: Sequence[TopicPartition]) -> None:
        """Hold these partitions no more; their logs stay where they are."""
        self._fetchers.forget(list(tps))
        for tp in tps:
            partition = self._hosted.remove(tp)
            if partition is not None:
                partition.resign()
                if self.log_dirs is not None:
                    self.log_dirs.on_gone(partition)

    def _set_aside(self, tps: Sequence[TopicPartition], reason: str) -> None:
        """Hold these partitions no more, and keep their logs as strays, which a person can list and restore."""
        self._drop(tps)
        for tp, error in self._manager.log_manager.set_aside(dict.fromkeys(tps), reason).items():
            log.error("cannot set the log of %s aside: %s", tp, error)

    def _set_strays_aside(self, topics: Sequence[TopicState]) -> Sequence[TopicPartition]:
        """Set aside the logs that a FULL push does not name, or names under another topic id (rule 3); returns them."""
        ids = {
            TopicPartition(name, state.partition_index): topic_id
            for name, topic_id, states in topics
            for state in states
        }
        log_manager = self._manager.log_manager
        held = {stray.topic_partition: stray.topic_id for stray in log_manager.all_logs()}
        held.update((partition.tp, partition.topic_id) for partition in self._hosted.online())
        copied = {copy.topic_partition for copy in log_manager.future_logs()}
        unnamed = (held.keys() | copied) - ids.keys()
        others = [tp for tp, id_ in held.items() if tp in ids and id_ not in (None, ZERO_UUID, ids[tp])]
        self._set_aside(sorted(unnamed), "the controller knows no such partition of this broker")
        self._set_aside(sorted(others), NAME_REUSED)
        log_manager.set_aside({tp: ids[tp] for tp in copied if tp in ids}, NAME_REUSED)
        return sorted(unnamed.union(others))

    # After the lock

    def _notify(self, led: list[tuple[TopicPartition, int]], followed: list[Partition]) -> None:
        for listener in self.listeners:
            for tp, leader_epoch in led:
                listener.on_leadership(tp, leader_epoch)
            for partition in followed:
                listener.on_resignation(partition.tp, partition.leader_epoch)

    def _notify_stopped(self, stopped: list[TopicPartition]) -> None:
        for tp in stopped:
            for listener in self.listeners:
                listener.on_resignation(tp, None)
        self._manager.complete_all_delayed(stopped)
        held = {p.tp.topic for p in self._hosted.online()}
        for topic in {tp.topic for tp in stopped} - held:
            self._manager.stats.remove(topic)


def _change_of(state: LeaderAndIsrPartitionState, shared: SharedReplicas) -> LeadershipChange:
    replicas = tuple(state.replicas)
    return LeadershipChange(
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        isr=tuple(state.isr),
        replicas=shared.setdefault(replicas, replicas),
        adding_replicas=tuple(state.adding_replicas),
        removing_replicas=tuple(state.removing_replicas),
        leader_recovery_state=state.leader_recovery_state,
        is_new=state.is_new,
    )
