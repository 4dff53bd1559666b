"""Partition: one replica of a partition on this broker, as leader or follower.

It ties three parts together under one lock: the `Role` (what the controller decided, `role.py`), the `Followers` (the
leader's view of the other replicas, `in_sync/followers.py`) and the `Log`.

Rules
1. `role` is an immutable value, replaced whole under `_lock`. A reader takes `partition.role` once. An append holds
   `_lock`, so the leader and its epoch cannot change under it.
2. Lock order: the partition's `_lock`, then the log's. Purgatories are woken holding neither: a method that moves a
   watermark returns that fact, and the caller wakes.
3. Epochs only go up: a change with an older partition epoch is ignored.
4. `isr.next_high_watermark` (pure) decides the high watermark. It is applied in one place and never goes back.
5. Reads hold no lock of the partition. Why: a read returns nothing above the high watermark that held when it began
   (for a follower: above the log end under the epoch that was checked). The log is consistent under its own lock.

Invariants (`invariants()` checks them)
1. The committed ISR is part of the maximal one, and that is part of the replicas; the leader is in its own ISR.
2. A leader has a log and knows every other replica as a follower; any other replica knows no followers.
3. The ISR and the maximal ISR differ only while a change of the ISR is in flight.

Threads: request handlers; replica fetchers (`append_as_follower`, `truncate_to`); the handler of the controller's push
(`make_leader`, `make_follower`); the ISR timer and the AlterPartition thread.

Source: Kafka's Partition (4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.replication.in_sync.followers import Followers
from barnabas.broker.replication.in_sync.isr import ReplicaState, effective_min_isr, is_expandable, next_high_watermark
from barnabas.broker.replication.role import (
    DeletedRecords,
    IsrOutcome,
    IsrProposal,
    LeadershipChange,
    Role,
    concluded,
    expanding,
    follower_role,
    leader_role,
    resigned,
    shrinking,
)
from barnabas.broker.storage.log.log_types import NO_EPOCH
from barnabas.common.ids import ZERO_UUID
from barnabas.common.locks.factory import new_rlock
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.storage.log.log import Log
    from barnabas.broker.storage.log.log_types import AppendOrigin, LogAppendInfo
    from barnabas.broker.storage.producers.verification import VerificationGuard
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition

_NONE: Final = ErrorCode.NONE  # Why: saves a lookup for every try of a request that waits
UP_TO_HIGH_WATERMARK: Final = -1  # DeleteRecords: every record that may be deleted


def _always_alive(_broker_id: int) -> bool:
    return True


def _always_eligible(_broker_id: int, _broker_epoch: int) -> bool:
    return True


class Partition:
    """One replica of a partition. See the module's rules for locks."""

    __slots__ = ("_followers", "_local_id", "_lock", "log", "role", "topic_id", "tp")

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        local_id: int,
        clock: Clock,
        *,
        replica_lag_time_max_ms: int = 30_000,
        is_alive: Callable[[int], bool] = _always_alive,
        is_eligible: Callable[[int, int], bool] = _always_eligible,
    ) -> None:
        self.tp = tp  # fixed before start
        self.topic_id = topic_id  # fixed before start: another id is another Partition
        self._local_id = local_id  # fixed before start
        self._lock = new_rlock("partition")  # before the log's lock
        self.role = Role()  # replaced whole under _lock
        self.log: Log | None = None  # under _lock: set by the first make_leader or make_follower, then by replace_log
        self._followers = Followers(clock, replica_lag_time_max_ms, is_alive, is_eligible)  # changed under _lock

    # Queries

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.role.is_leader

    @property
    def leader_id(self) -> int:
        """The leader's broker id; -1 if there is none."""
        return self.role.leader_id

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last change applied; -1 before the first."""
        return self.role.leader_epoch

    @property
    def partition_epoch(self) -> int:
        """The partition epoch of the last change applied; -1 before the first."""
        return self.role.partition_epoch

    @property
    def isr(self) -> frozenset[int]:
        """The committed ISR; empty on a follower."""
        return self.role.isr

    @property
    def replicas(self) -> tuple[int, ...]:
        """The broker ids of all replicas, the preferred leader first."""
        return self.role.replicas

    @property
    def followers(self) -> Collection[ReplicaState]:
        """The other replicas as this leader knows them; empty on a follower."""
        return self._followers.states.values()

    @property
    def high_watermark(self) -> int:
        """The first offset that may still be lost; 0 without a log."""
        return 0 if self.log is None else self.log.high_watermark

    @property
    def log_start_offset(self) -> int:
        """The first offset that is kept; 0 without a log."""
        return 0 if self.log is None else self.log.log_start_offset

    def effective_min_isr(self) -> int:
        """`min.insync.replicas` of the topic, at most the number of replicas."""
        log = self.log
        return 1 if log is None else effective_min_isr(_min_isr(log), len(self.role.replicas))

    def is_under_min_isr(self) -> bool:
        """Whether this leader refuses acks=all."""
        role = self.role
        return role.is_leader and len(role.isr) < self.effective_min_isr()

    def is_at_min_isr(self) -> bool:
        """Whether the loss of one more replica would make this leader refuse acks=all."""
        role = self.role
        return role.is_leader and len(role.isr) == self.effective_min_isr()

    def awaits(self, follower: ReplicaState) -> bool:
        """Whether this leader's high watermark waits for the follower."""
        log = self.log
        return log is not None and self._followers.hold_back(follower, self.role, log.log_end_offset)

    def ms_since_fetch(self, follower: ReplicaState) -> int:
        """How long ago the follower fetched."""
        return self._followers.ms_since_fetch(follower)

    def leader_log(self) -> Log:
        """The log, if this broker leads; else raises NOT_LEADER_OR_FOLLOWER."""
        log = self.log
        if log is None or not self.role.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def log_for(self, current_leader_epoch: int, *, leader_only: bool) -> Log:
        """The log, for a reader that believes in `current_leader_epoch` (-1: it names none).

        Raises FENCED_LEADER_EPOCH when the reader is behind this replica, UNKNOWN_LEADER_EPOCH when the replica is
        behind the reader, NOT_LEADER_OR_FOLLOWER when the reader needs a leader and this is none.
        """
        role = self.role
        if current_leader_epoch != NO_EPOCH and current_leader_epoch != role.leader_epoch:
            if current_leader_epoch < role.leader_epoch:
                raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        log = self.log
        if log is None or (leader_only and not role.is_leader):
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def require_topic_id(self, topic_id: bytes) -> None:
        """Raise INCONSISTENT_TOPIC_ID if a client means another topic of the same name."""
        if topic_id != self.topic_id and topic_id != ZERO_UUID and self.topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INCONSISTENT_TOPIC_ID)

    def invariants(self) -> None:
        """Check the invariants of the module's docstring; raises AssertionError."""
        with self._lock:
            role, followers = self.role, self._followers.states
            assert role.isr <= role.maximal_isr <= set(role.replicas), f"inv. 1: {role}"
            assert role.isr == role.maximal_isr or role.is_isr_change_in_flight, f"inv. 3: {role}"
            if not role.is_leader:
                assert not followers, f"inv. 2: {sorted(followers)}"
                return
            assert self.log is not None, f"inv. 2: {role}"
            assert followers.keys() == set(role.replicas) - {self._local_id}, f"inv. 2: {sorted(followers)}, {role}"
            assert self._local_id in role.isr, f"inv. 1: {role}"

    # Leader: records

    def append_as_leader(
        self,
        records: memoryview,
        *,
        required_acks: int,
        origin: AppendOrigin,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> tuple[LogAppendInfo, bool]:
        """Append whole batches; returns the log's append info and whether the high watermark moved.

        Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=all under min.insync.replicas) and the errors of
        `Log.append_as_leader`.
        """
        with self._lock:
            role = self.role
            log = self.log
            if log is None or not role.is_leader:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if required_acks == -1 and len(role.isr) < effective_min_isr(_min_isr(log), len(role.replicas)):
                raise ApiError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"The size of the current ISR {sorted(role.isr)} is insufficient to satisfy the min.isr "
                    f"requirement of {_min_isr(log)} for partition {self.tp}",
                )
            info = log.append_as_leader(
                records,
                leader_epoch=role.leader_epoch,
                origin=origin,
                transaction_version=transaction_version,
                guard=guard,
            )
            return info, self._maybe_increment_high_watermark_locked()

    def has_reached(self, required_offset: int) -> tuple[bool, ErrorCode]:
        """Whether every record below `required_offset` is on all in-sync replicas; an error ends the wait as well."""
        role = self.role
        log = self.log
        if log is None or not role.is_leader:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if log.high_watermark < required_offset:
            return False, _NONE
        # Why the lengths first: an ISR of all replicas, the usual one, cannot be too small.
        if len(role.maximal_isr) < len(role.replicas) and self.effective_min_isr() > len(role.maximal_isr):
            return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True, _NONE

    def delete_records_on_leader(self, offset: int) -> DeletedRecords:
        """Move the log's start to `offset` (UP_TO_HIGH_WATERMARK = as far as allowed).

        Raises POLICY_VIOLATION on a topic that is only compacted, OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER.
        """
        with self._lock:
            log = self.leader_log()
            if log.config.compact and not log.config.delete:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"Records of partition {self.tp} can not be deleted due to the configured policy",
                )
            requested = log.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
            if requested < 0 or requested > log.high_watermark:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
            log.maybe_increment_log_start_offset(requested, "client record deletion")
            return DeletedRecords(requested, self._followers.low_watermark(log.log_start_offset))

    def low_watermark(self) -> int:
        """The least log start offset of all live replicas; raises NOT_LEADER_OR_FOLLOWER."""
        return self._followers.low_watermark(self.leader_log().log_start_offset)

    # Leader: followers and the ISR

    def require_follower(self, broker_id: int, leader_epoch: int) -> None:
        """Raise UNKNOWN_LEADER_EPOCH unless `broker_id` is a follower of this leader.

        Why that code: the fetcher knows an assignment that has not reached this broker yet; it must retry. One that
        names no leader epoch may be behind as well, which NOT_LEADER_OR_FOLLOWER says.
        """
        if broker_id not in self._followers.states:
            is_behind = leader_epoch == NO_EPOCH
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER if is_behind else ErrorCode.UNKNOWN_LEADER_EPOCH)

    def update_follower(
        self, broker_id: int, *, fetch_offset: int, log_start_offset: int, now_ms: int, broker_epoch: int
    ) -> tuple[bool, IsrProposal | None]:
        """Note a follower's fetch at `now_ms` (monotonic): every record below `fetch_offset` is on its disk.

        Returns whether a watermark moved, and a change of the ISR to submit if the follower may join it now.
        """
        followers = self._followers
        held = self.log
        if (
            held is not None
            and broker_id in self.role.isr
            and followers.is_noted(
                broker_id,
                fetch_offset=fetch_offset,
                log_start_offset=log_start_offset,
                now_ms=now_ms,
                leader_log_end_offset=held.log_end_offset,
                broker_epoch=broker_epoch,
            )
        ):
            return False, None
        with self._lock:
            state = followers.states.get(broker_id)
            log = self.log
            if state is None or log is None or not self.role.is_leader:
                return False, None
            # Why first: it seldom starts elsewhere, and the low watermark looks at every replica.
            has_new_start = log_start_offset != state.log_start_offset
            old_low = followers.low_watermark(log.log_start_offset) if has_new_start else 0
            following = followers.note_fetch(
                state,
                fetch_offset=fetch_offset,
                log_start_offset=log_start_offset,
                now_ms=now_ms,
                leader_log_end_offset=log.log_end_offset,
                broker_epoch=broker_epoch,
            )
            proposal = self._maybe_expand_locked(following)
            moved = following.log_end_offset != state.log_end_offset and self._maybe_increment_high_watermark_locked()
            return moved or (has_new_start and followers.low_watermark(log.log_start_offset) > old_low), proposal

    def note_still_fetched(self, broker_id: int, fetched_ms: int, leader_epoch: int) -> None:
        """Note that a follower of this leader epoch (-1: it named none), which had every record, has fetched until then
        (`idle_partitions.py`, rule 4).
        """
        with self._lock:
            if leader_epoch in (NO_EPOCH, self.role.leader_epoch):
                self._followers.note_still_fetched(broker_id, fetched_ms)

    def lagging(self) -> frozenset[int]:
        """The followers that have lagged for too long, and may leave the ISR now."""
        with self._lock:
            return self._lagging_locked()

    def maybe_shrink_isr(self, suspects: frozenset[int]) -> IsrProposal | None:
        """Propose an ISR without the suspects that have lagged for too long, if there are any."""
        with self._lock:
            role = self.role
            lagging = self._lagging_locked() & suspects
            if not lagging:
                return None
            self.role = shrinking(role)
            return self._proposal(role.isr - lagging, is_expansion=False)

    def finish_isr_change(self, proposal: IsrProposal, outcome: IsrOutcome) -> tuple[bool, IsrProposal | None]:
        """Apply the controller's answer; returns whether the high watermark moved, and the proposal if it must be
        sent again.
        """
        with self._lock:
            old = self.role
            self.role, is_retried = concluded(old, proposal, outcome)
            is_accepted = outcome.error == ErrorCode.NONE and self.role is not old
            moved = is_accepted and self._maybe_increment_high_watermark_locked()
            return moved, proposal if is_retried else None

    # The controller's push

    def make_leader(self, change: LeadershipChange, get_log: Callable[[], Log]) -> bool:
        """Lead the partition from now on; returns whether the leader epoch is new. An older change is ignored."""
        with self._lock:
            old = self.role
            if change.partition_epoch < old.partition_epoch:
                return False
            if self.log is None:
                self.log = get_log()
            end = self.log.log_end_offset
            is_new_epoch = change.leader_epoch > old.leader_epoch
            if is_new_epoch:
                self.log.assign_epoch_start_offset(change.leader_epoch, end)
            self._followers.reset(
                change,
                local_id=self._local_id,
                leader_log_end_offset=end,
                is_new_leader=not old.is_leader,
                is_new_epoch=is_new_epoch,
            )
            role = leader_role(change, start=end if is_new_epoch else old.leader_epoch_start_offset)
            if old.is_isr_change_in_flight and change.partition_epoch == old.partition_epoch:
                # Why: a restarted controller repeats the state that this broker has. The proposal is still on its way.
                # Once it is accepted, no member of a larger ISR may find the high watermark above its own end.
                role = replace(role, maximal_isr=old.maximal_isr, is_isr_change_in_flight=True)
            self.role = role
            self._maybe_increment_high_watermark_locked()
            return is_new_epoch

    def make_follower(self, change: LeadershipChange, get_log: Callable[[], Log]) -> bool:
        """Follow from now on; returns whether the leader epoch is new, so that the fetcher must start over."""
        with self._lock:
            old = self.role
            if change.partition_epoch < old.partition_epoch:
                return False
            if self.log is None:
                self.log = get_log()
            self._followers.clear()
            self.role = follower_role(change)
            return change.leader_epoch > old.leader_epoch

    def resign(self) -> None:
        """Stop being leader or follower: the replica is leaving this broker. The log stays as it is."""
        with self._lock:
            self._followers.clear()
            self.role = resigned(self.role)

    def resign_before(self, leader_epoch: int, partition_epoch: int) -> None:
        """Stop being leader if a state with these epochs, which names another leader, is newer than the role."""
        with self._lock:
            role = self.role
            if role.is_leader and leader_epoch > role.leader_epoch and partition_epoch >= role.partition_epoch:
                self._followers.clear()
                self.role = resigned(role)

    def replace_log(self, make: Callable[[Log], Log | None]) -> bool:
        """Replace the log by one with the same records while nothing can be appended; returns whether it was replaced.

        `make(current log)` returns the new log, or None to keep the current one.
        """
        with self._lock:
            made = None if self.log is None else make(self.log)
            if made is None:
                return False
            self.log = made
            return True

    # Follower: records

    def append_as_follower(self, records: memoryview, *, leader_epoch: int) -> LogAppendInfo | None:
        """Append records from the leader of `leader_epoch`; None when that epoch is over."""
        with self._lock:
            if self.log is None or not self._follows_locked(leader_epoch):
                return None
            return self.log.append_as_follower(records, leader_epoch)

    def update_follower_watermarks(self, high_watermark: int, log_start_offset: int) -> bool:
        """Take over the leader's watermarks, as far as this log reaches; returns whether the high watermark moved."""
        held = self.log
        if held is not None and high_watermark <= held.high_watermark and log_start_offset <= held.log_start_offset:
            return False  # Why no lock: there is nothing to take over, whatever the role
        with self._lock:
            log = self.log
            if log is None or self.role.is_leader:
                return False
            target = min(high_watermark, log.log_end_offset)
            moved = target > log.high_watermark and log.update_high_watermark(target)
            if log_start_offset > log.log_start_offset:
                log.maybe_increment_log_start_offset(
                    min(log_start_offset, log.high_watermark), "leader offset incremented"
                )
            return moved

    def truncate_to(self, offset: int, *, leader_epoch: int) -> None:
        """Drop the records from `offset` on. The leader of this epoch lacks them: they were never committed."""
        with self._lock:
            if self.log is not None and self._follows_locked(leader_epoch):
                self.log.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, *, leader_epoch: int) -> None:
        """Drop all records and continue at `offset`: the leader of this epoch no longer has the next ones."""
        with self._lock:
            if self.log is not None and self._follows_locked(leader_epoch):
                self.log.truncate_fully_and_start_at(offset)

    # Under the lock

    def _lagging_locked(self) -> frozenset[int]:
        role = self.role
        if not role.is_leader or role.is_isr_change_in_flight or self.log is None:
            return frozenset()
        return self._followers.lagging(role.isr, self.log.log_end_offset)

    def _follows_locked(self, leader_epoch: int) -> bool:
        """Whether this replica still follows the leader of that epoch."""
        return not self.role.is_leader and self.role.leader_epoch == leader_epoch

    def _maybe_increment_high_watermark_locked(self) -> bool:
        """Apply the pure decision: the one place where a leader's high watermark moves."""
        log = self.log
        assert log is not None, "a leader has a log"
        role = self.role
        current = log.high_watermark
        log_end_offset = log.log_end_offset
        # Why the lengths first, here and below: an ISR of all replicas, the usual one, cannot be too small or grow.
        if current == log_end_offset or (
            len(role.isr) < len(role.replicas) and len(role.isr) < self.effective_min_isr()
        ):
            return False
        followers, maximal_isr = self._followers, role.maximal_isr
        target = log_end_offset
        if followers.states:
            target = next_high_watermark(
                current=current,
                leader_log_end_offset=log_end_offset,
                followers=followers.states.values(),
                maximal_isr=maximal_isr,
                joining=followers.joining(maximal_isr, log_end_offset) if len(maximal_isr) < len(role.replicas) else (),
            )
        assert target >= current, "the high watermark never goes back"
        return target > current and log.update_high_watermark(target)

    def _maybe_expand_locked(self, follower: ReplicaState) -> IsrProposal | None:
        role = self.role
        assert self.log is not None, "a leader has a log"
        if role.is_isr_change_in_flight or not is_expandable(
            follower,
            isr=role.isr,
            high_watermark=self.log.high_watermark,
            leader_epoch_start_offset=role.leader_epoch_start_offset,
        ):
            return None
        if not self._followers.is_eligible(follower):
            return None
        isr = role.isr | {follower.broker_id}
        self.role = expanding(role, isr)
        return self._proposal(isr, is_expansion=True)

    def _proposal(self, isr: frozenset[int], *, is_expansion: bool) -> IsrProposal:
        role = self.role
        members = self._followers.members(isr)
        return IsrProposal(role.leader_epoch, role.partition_epoch, members, role.leader_recovery_state, is_expansion)


def _min_isr(log: Log) -> int:
    config: Any = log.config  # a whole TopicConfig; storage declares only the settings that it reads itself
    return int(config.min_insync_replicas)
