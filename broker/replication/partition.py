"""Partition: one replica of a partition on this broker, as leader or follower.

Rules
1. What the controller decided (leader, epochs, ISR, replicas) is a `Role`, an immutable value replaced whole under
   `_lock`. A reader takes `partition.role` once; an append holds `_lock`, so that leader and epoch cannot change
   under it.
2. Lock order: the partition's `_lock`, then the log's. Purgatories are woken holding neither: methods that move a
   watermark say so in what they return, and the caller wakes.
3. Epochs only go up: a change with an older partition epoch is ignored.
4. The high watermark is decided by `isr.next_high_watermark` (pure), applied in one place, and never goes back.
5. Reads hold no lock of the partition. Why: a read never returns more than the high watermark allowed when it began
   (a follower's: than the log's end under the epoch that was checked), and the log itself is consistent under its lock.

Threads: request handlers; replica fetchers (`append_as_follower`, `truncate_to`); the handler of the controller's push
(`make_leader`, `make_follower`); the ISR timer and the AlterPartition thread.

Source: Kafka's Partition (4.3).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.replication.isr import (
    ReplicaState,
    effective_min_isr,
    is_expandable,
    joining_replicas,
    next_high_watermark,
    next_replica_state,
    out_of_sync_replicas,
    reset_replica_state,
)
from barnabas.broker.replication.role import DeletedRecords, EpochEnd, IsrOutcome, IsrProposal, LeadershipChange, Role
from barnabas.broker.storage.log_types import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    NO_TIMESTAMP,
    TimestampOffset,
)
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.storage.log import Log
    from barnabas.broker.storage.log_types import AppendOrigin, FetchData, FetchIsolation, LogAppendInfo
    from barnabas.broker.storage.verification import VerificationGuard
    from barnabas.common.clock import Clock
    from barnabas.common.topic_partition import TopicPartition

RECOVERED: Final = 0  # the leader recovery state of KIP-704
UP_TO_HIGH_WATERMARK: Final = -1  # DeleteRecords: "everything there is"


ISR_ROLLED_BACK: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
ISR_GIVEN_UP: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def _always_alive(_broker_id: int) -> bool:
    return True


def _always_eligible(_broker_id: int, _broker_epoch: int) -> bool:
    return True


class Partition:
    """One replica of a partition. See the module's rules for locks."""

    __slots__ = (
        "_clock",
        "_followers",
        "_is_alive",
        "_is_eligible",
        "_lag_max_ms",
        "_local_id",
        "_lock",
        "log",
        "role",
        "topic_id",
        "tp",
    )

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
        self._clock = clock  # fixed before start
        self._lag_max_ms = replica_lag_time_max_ms  # fixed before start
        self._is_alive = is_alive  # is this broker unfenced?
        self._is_eligible = is_eligible  # may this broker, in this epoch of it, be in an ISR?
        self._lock = threading.RLock()  # before the log's lock
        self.role = Role()  # replaced whole under _lock
        self.log: Log | None = None  # under _lock: set by the first make_leader or make_follower, then by replace_log
        self._followers: dict[int, ReplicaState] = {}  # replaced whole under _lock; the leader's view of the others

    # Looking

    @property
    def is_leader(self) -> bool:
        """Whether this broker leads the partition."""
        return self.role.is_leader

    @property
    def leader_id(self) -> int:
        return self.role.leader_id

    @property
    def leader_epoch(self) -> int:
        return self.role.leader_epoch

    @property
    def partition_epoch(self) -> int:
        return self.role.partition_epoch

    @property
    def isr(self) -> frozenset[int]:
        return self.role.isr

    @property
    def replicas(self) -> tuple[int, ...]:
        return self.role.replicas

    @property
    def followers(self) -> Collection[ReplicaState]:
        """What the leader knows of the other replicas."""
        return self._followers.values()

    @property
    def high_watermark(self) -> int:
        """The next offset that may yet be lost; 0 without a log."""
        return 0 if self.log is None else self.log.high_watermark

    def effective_min_isr(self) -> int:
        """`min.insync.replicas` of the topic, at most the number of replicas."""
        log = self.log
        return 1 if log is None else effective_min_isr(_min_isr(log), len(self.role.replicas))

    def is_under_replicated(self) -> bool:
        """Whether this leader lacks an in-sync replica."""
        role = self.role
        return role.is_leader and len(role.isr) < len(role.replicas)

    def is_under_min_isr(self) -> bool:
        """Whether this leader refuses acks=all."""
        role = self.role
        return role.is_leader and len(role.isr) < self.effective_min_isr()

    def is_at_min_isr(self) -> bool:
        """Whether the loss of one more replica would make this leader refuse acks=all."""
        role = self.role
        return role.is_leader and len(role.isr) == self.effective_min_isr()

    def is_reassigning(self) -> bool:
        """Whether replicas are being added or removed."""
        role = self.role
        return bool(role.adding_replicas or role.removing_replicas)

    def leader_log(self) -> Log:
        """The log, if this broker leads; else raises NOT_LEADER_OR_FOLLOWER."""
        log = self.log
        if log is None or not self.role.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return log

    def log_for(self, current_leader_epoch: int, *, leader_only: bool) -> Log:
        """The log for a client that knows `current_leader_epoch` (-1 = does not say).

        Raises FENCED_LEADER_EPOCH when the client is behind us, UNKNOWN_LEADER_EPOCH when we are behind it,
        NOT_LEADER_OR_FOLLOWER when only a leader will do and we are none.
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

    # Writing as leader

    def append_as_leader(
        self,
        records: memoryview,
        *,
        required_acks: int,
        origin: AppendOrigin,
        transaction_version: int = 0,
        guard: VerificationGuard | None = None,
    ) -> tuple[LogAppendInfo, bool]:
        """Append whole batches; returns what was appended and whether the high watermark moved.

        Raises NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks=all under min.insync.replicas) and whatever the log
        finds wrong with the records.
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
        """Whether everything below `required_offset` is on all in-sync replicas; with an error the wait is over too."""
        role = self.role
        log = self.log
        if log is None or not role.is_leader:
            return False, ErrorCode.NOT_LEADER_OR_FOLLOWER
        if log.high_watermark < required_offset:
            return False, ErrorCode.NONE
        if self.effective_min_isr() > len(role.maximal_isr):
            return True, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return True, ErrorCode.NONE

    def delete_records_on_leader(self, offset: int) -> DeletedRecords:
        """Move the log's start to `offset` (UP_TO_HIGH_WATERMARK = as far as allowed).

        Raises POLICY_VIOLATION on a topic that is only compacted, OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER.
        """
        with self._lock:
            log = self.leader_log()
            if "delete" not in _config(log).cleanup_policy:
                raise ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"Records of partition {self.tp} can not be deleted due to the configured policy",
                )
            requested = log.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
            if requested < 0 or requested > log.high_watermark:
                raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
            log.maybe_increment_log_start_offset(requested, "client record deletion")
            return DeletedRecords(requested, self.low_watermark())

    def low_watermark(self) -> int:
        """The least log start offset of all live replicas."""
        log = self.leader_log()
        starts = [f.log_start_offset for f in self._followers.values() if self._is_alive(f.broker_id)]
        return min([log.log_start_offset, *starts])

    # Reading

    def read(
        self,
        fetch_offset: int,
        max_bytes: int,
        isolation: FetchIsolation,
        *,
        min_one_message: bool,
        current_leader_epoch: int = NO_EPOCH,
        leader_only: bool = True,
    ) -> FetchData:
        """Read from `fetch_offset` up to what `isolation` allows; at most `max_bytes`, or one batch if asked for."""
        log = self.log_for(current_leader_epoch, leader_only=leader_only)
        return log.read(fetch_offset, max_bytes, isolation=isolation, min_one_message=min_one_message)

    def diverging_epoch(
        self, fetch_offset: int, last_fetched_epoch: int, current_leader_epoch: int, *, leader_only: bool
    ) -> EpochEnd | None:
        """Where the fetcher's log and ours part, or None if ours continues it (KIP-595, KIP-320).

        Raises OFFSET_OUT_OF_RANGE when we know nothing of the epoch or the offset is below the log's start.
        """
        log = self.log_for(current_leader_epoch, leader_only=leader_only)
        epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
        if epoch == NO_EPOCH or end_offset == NO_EPOCH or fetch_offset < log.log_start_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return EpochEnd(epoch, end_offset)
        return None

    def last_offset_for_leader_epoch(
        self, leader_epoch: int, current_leader_epoch: int, *, leader_only: bool
    ) -> EpochEnd:
        """The end of the greatest epoch not above `leader_epoch` (OffsetForLeaderEpoch)."""
        log = self.log_for(current_leader_epoch, leader_only=leader_only)
        return EpochEnd(*log.end_offset_for_epoch(leader_epoch))

    def offset_for_timestamp(
        self, timestamp: int, limit: Callable[[Log], int], *,
        current_leader_epoch: int, leader_only: bool, is_client: bool,
    ) -> TimestampOffset | None:  # fmt: skip
        """Answer one ListOffsets item; None when there is nothing to tell.

        `limit` gives the offset (exclusive) up to which the asker may see. A client of a new leader whose high
        watermark has not yet reached its epoch's start gets OFFSET_NOT_AVAILABLE rather than an offset that goes back.
        """
        log = self.log_for(current_leader_epoch, leader_only=leader_only)
        role = self.role
        start = role.leader_epoch_start_offset
        is_lagging = is_client and start is not None and start > log.high_watermark
        if timestamp == LATEST_TIMESTAMP:
            if is_lagging:
                raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
            return TimestampOffset(NO_TIMESTAMP, limit(log), role.leader_epoch)
        if timestamp in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
            return TimestampOffset(NO_TIMESTAMP, -1, NO_EPOCH)
        found = log.fetch_offset_by_timestamp(timestamp)
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return found
        if found is not None and found.offset < limit(log):
            return found
        if is_lagging:
            raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return None

    # Followers, as the leader sees them

    def require_follower(self, broker_id: int) -> None:
        """Raise UNKNOWN_LEADER_EPOCH unless `broker_id` is a follower of ours.

        Why that code: the fetcher knows of an assignment that has not reached us yet; it shall retry.
        """
        if broker_id not in self._followers:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def update_follower(
        self, broker_id: int, *, fetch_offset: int, log_start_offset: int, leader_log_end_offset: int, broker_epoch: int
    ) -> tuple[bool, IsrProposal | None]:
        """Take note of a follower's fetch: everything below `fetch_offset` is on its disk.

        Returns whether a watermark moved, and a change of the ISR to submit, if the follower may join it now.
        """
        with self._lock:
            state = self._followers.get(broker_id)
            if state is None or not self.role.is_leader:
                return False, None
            # Why asked first: it seldom starts elsewhere, and the low watermark is not had for nothing.
            has_new_start = log_start_offset != state.log_start_offset
            old_low = self.low_watermark() if has_new_start else 0
            following = next_replica_state(
                state,
                fetch_offset=fetch_offset,
                log_start_offset=log_start_offset,
                now_ms=self._clock.monotonic_ms(),
                leader_log_end_offset=leader_log_end_offset,
                broker_epoch=broker_epoch,
            )
            self._followers = {**self._followers, broker_id: following}
            proposal = self._maybe_expand_locked(following)
            moved = following.log_end_offset != state.log_end_offset and self._maybe_increment_high_watermark_locked()
            return moved or (has_new_start and self.low_watermark() > old_low), proposal

    def maybe_shrink_isr(self) -> IsrProposal | None:
        """Propose an ISR without the followers that have lagged for too long, if there are any."""
        with self._lock:
            role = self.role
            if not role.is_leader or role.is_isr_change_in_flight or self.log is None:
                return None
            lagging = out_of_sync_replicas(
                self._followers.values(),
                isr=role.isr,
                leader_log_end_offset=self.log.log_end_offset,
                now_ms=self._clock.monotonic_ms(),
                lag_max_ms=self._lag_max_ms,
            )
            if not lagging:
                return None
            self.role = replace(role, is_isr_change_in_flight=True)
            return self._proposal(role.isr - lagging, is_expansion=False)

    def finish_isr_change(self, proposal: IsrProposal, outcome: IsrOutcome) -> tuple[bool, IsrProposal | None]:
        """Apply the controller's answer; returns whether the high watermark moved, and the proposal if it has to be
        tried again.
        """
        with self._lock:
            role = self.role
            if not role.is_isr_change_in_flight or role.partition_epoch != proposal.partition_epoch:
                return False, None  # a newer push has overtaken the answer
            if outcome.error in ISR_GIVEN_UP:
                return False, None  # the next push will say what holds; until then nothing more is proposed
            if outcome.error in ISR_ROLLED_BACK:
                self.role = replace(role, maximal_isr=role.isr, is_isr_change_in_flight=False)
                return False, None
            if outcome.error != ErrorCode.NONE:
                return False, proposal
            if outcome.leader_epoch != role.leader_epoch or outcome.partition_epoch < role.partition_epoch:
                return False, None
            isr = frozenset(outcome.isr)
            self.role = replace(
                role,
                isr=isr,
                maximal_isr=isr,
                partition_epoch=outcome.partition_epoch,
                leader_recovery_state=outcome.leader_recovery_state,
                is_isr_change_in_flight=False,
            )
            return self._maybe_increment_high_watermark_locked(), None

    # The controller's push

    def make_leader(self, change: LeadershipChange, get_log: Callable[[], Log]) -> bool:
        """Lead the partition from now on; returns whether the leader epoch is new. An older change is ignored."""
        with self._lock:
            old = self.role
            if change.partition_epoch < old.partition_epoch:
                return False
            if self.log is None:
                self.log = get_log()
            is_new_epoch = change.leader_epoch > old.leader_epoch
            start = self.log.log_end_offset if is_new_epoch else old.leader_epoch_start_offset
            if is_new_epoch:
                self.log.assign_epoch_start_offset(change.leader_epoch, self.log.log_end_offset)
            isr = frozenset(change.isr)
            self._reset_followers_locked(change, is_new_leader=not old.is_leader, is_new_epoch=is_new_epoch)
            self.role = _role_of(change, is_leader=True, isr=isr, start=start)
            if old.is_isr_change_in_flight and change.partition_epoch == old.partition_epoch:
                # Why: a restarted controller repeats the state that we have. Our proposal is still on its way to it,
                # and once accepted there, a larger ISR must not find the high watermark beyond a member's end.
                self.role = replace(self.role, maximal_isr=old.maximal_isr, is_isr_change_in_flight=True)
            self._maybe_increment_high_watermark_locked()
            return is_new_epoch

    def make_follower(self, change: LeadershipChange, get_log: Callable[[], Log]) -> bool:
        """Follow from now on; returns whether the leader epoch is new (so that the fetcher must start over)."""
        with self._lock:
            old = self.role
            if change.partition_epoch < old.partition_epoch:
                return False
            if self.log is None:
                self.log = get_log()
            self._followers = {}
            self.role = _role_of(change, is_leader=False, isr=frozenset(), start=None)
            return change.leader_epoch > old.leader_epoch

    def resign(self) -> None:
        """Stop being leader or follower: the replica is leaving this broker. The log stays as it is."""
        with self._lock:
            self._followers = {}
            self.role = replace(
                self.role, is_leader=False, isr=frozenset(), maximal_isr=frozenset(),
                leader_epoch_start_offset=None, is_isr_change_in_flight=False,
            )  # fmt: skip

    def replace_log(self, make: Callable[[Log], Log | None]) -> bool:
        """Put another log, with the same records, into the place of ours while nobody appends; tells whether.

        `make(current log)` gives it, or None to leave things as they are.
        """
        with self._lock:
            made = None if self.log is None else make(self.log)
            if made is None:
                return False
            self.log = made
            return True

    # Writing as follower

    def append_as_follower(self, records: memoryview, *, leader_epoch: int) -> LogAppendInfo | None:
        """Append what the leader of `leader_epoch` sent; None when that epoch is over."""
        with self._lock:
            if self.log is None or not self._follows_locked(leader_epoch):
                return None
            return self.log.append_as_follower(records, leader_epoch)

    def update_follower_watermarks(self, high_watermark: int, log_start_offset: int) -> bool:
        """Take over the leader's watermarks, as far as our log reaches; returns whether the high watermark moved."""
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
        """Drop everything from `offset` on, as the leader of this epoch says: it was never committed."""
        with self._lock:
            if self.log is not None and self._follows_locked(leader_epoch):
                self.log.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int, *, leader_epoch: int) -> None:
        """Drop everything and go on at `offset`: the leader of this epoch no longer has what would come next."""
        with self._lock:
            if self.log is not None and self._follows_locked(leader_epoch):
                self.log.truncate_fully_and_start_at(offset)

    # Under the lock

    def _follows_locked(self, leader_epoch: int) -> bool:
        """Whether the leader of this epoch still is the one to obey: a leader itself, or a new epoch, does not."""
        return not self.role.is_leader and self.role.leader_epoch == leader_epoch

    def _maybe_increment_high_watermark_locked(self) -> bool:
        """Apply the pure decision: the one place where a leader's high watermark moves."""
        log = self.log
        assert log is not None, "a leader has a log"
        role = self.role
        current = log.high_watermark
        log_end_offset = log.log_end_offset
        # Why the lengths first: an ISR of all replicas, the usual one, cannot be too small.
        if current == log_end_offset or (
            len(role.isr) < len(role.replicas) and len(role.isr) < self.effective_min_isr()
        ):
            return False
        followers = self._followers.values()
        target = log_end_offset
        if followers:
            target = next_high_watermark(
                current=current,
                leader_log_end_offset=log_end_offset,
                followers=followers,
                maximal_isr=role.maximal_isr,
                joining=self._joining_locked(role, log_end_offset),
            )
        assert target >= current, "the high watermark never goes back"
        return target > current and log.update_high_watermark(target)

    def _joining_locked(self, role: Role, log_end_offset: int) -> list[int]:
        """Followers outside the maximal ISR that are about to join it."""
        if self._followers.keys() <= role.maximal_isr:  # Why asked: nearly always, and a clock is not had for nothing
            return []
        joining = joining_replicas(
            self._followers.values(),
            isr=role.maximal_isr,
            leader_log_end_offset=log_end_offset,
            now_ms=self._clock.monotonic_ms(),
            lag_max_ms=self._lag_max_ms,
        )
        return [id_ for id_ in joining if self._is_eligible(id_, self._followers[id_].broker_epoch)]

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
        if not self._is_eligible(follower.broker_id, follower.broker_epoch):
            return None
        isr = role.isr | {follower.broker_id}
        self.role = replace(role, maximal_isr=isr, is_isr_change_in_flight=True)
        return self._proposal(isr, is_expansion=True)

    def _proposal(self, isr: frozenset[int], *, is_expansion: bool) -> IsrProposal:
        role = self.role
        members = tuple((b, self._followers[b].broker_epoch if b in self._followers else -1) for b in sorted(isr))
        return IsrProposal(role.leader_epoch, role.partition_epoch, members, role.leader_recovery_state, is_expansion)

    def _reset_followers_locked(self, change: LeadershipChange, *, is_new_leader: bool, is_new_epoch: bool) -> None:
        """Keep the state of replicas that stay; one that is new, or any of them in a new epoch, starts over."""
        assert self.log is not None, "a leader has a log"
        known = self._followers
        followers: dict[int, ReplicaState] = {}
        for broker_id in change.replicas:
            if broker_id == self._local_id:
                continue
            state = known.get(broker_id)
            if state is None or is_new_epoch:
                state = reset_replica_state(
                    state or ReplicaState(broker_id),
                    now_ms=self._clock.monotonic_ms(),
                    leader_log_end_offset=self.log.log_end_offset,
                    is_new_leader=is_new_leader or state is None,
                    is_in_sync=broker_id in change.isr,
                )
            followers[broker_id] = state
        self._followers = followers


def _config(log: Log) -> Any:
    """The log's config, which is a whole TopicConfig: storage names only what it reads itself."""
    return log.config


def _min_isr(log: Log) -> int:
    return int(_config(log).min_insync_replicas)


def _role_of(change: LeadershipChange, *, is_leader: bool, isr: frozenset[int], start: int | None) -> Role:
    return Role(
        is_leader=is_leader,
        leader_id=change.leader_id,
        leader_epoch=change.leader_epoch,
        partition_epoch=change.partition_epoch,
        isr=isr,
        maximal_isr=isr,
        replicas=change.replicas,
        adding_replicas=change.adding_replicas,
        removing_replicas=change.removing_replicas,
        # Why: a leader that was elected uncleanly has nothing to recover, and says so with its next proposal.
        leader_recovery_state=RECOVERED if is_leader else change.leader_recovery_state,
        leader_epoch_start_offset=start,
    )
