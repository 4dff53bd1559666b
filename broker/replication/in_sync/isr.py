"""The arithmetic of replication: which replicas are in sync, and which records are safe. Pure: no lock, clock or log.

Terms: LEO (log end offset) is the next offset that a replica will write. HW (high watermark) is the first offset that
may still be lost; every record below it is safe. Both are exclusive. The *maximal* ISR is the committed one plus the
replicas of an expansion in flight. The controller may or may not have accepted that change, so the high watermark
counts on the larger set.

Source: Kafka's Partition.maybeIncrementLeaderHW, Replica.updateFetchStateOrThrow, PartitionState (4.3); KIP-497.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

UNKNOWN_OFFSET: Final = -1


class ReplicaState:
    """A follower as its leader knows it from its fetches. Times are monotonic milliseconds. A value: never changed."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "last_caught_up_ms",
        "last_fetch_leader_log_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(
        self,
        broker_id: int,
        log_end_offset: int = UNKNOWN_OFFSET,
        log_start_offset: int = UNKNOWN_OFFSET,
        last_caught_up_ms: int = 0,
        last_fetch_ms: int = 0,
        last_fetch_leader_log_end_offset: int = 0,
        broker_epoch: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.log_end_offset = log_end_offset
        self.log_start_offset = log_start_offset
        self.last_caught_up_ms = last_caught_up_ms
        self.last_fetch_ms = last_fetch_ms
        self.last_fetch_leader_log_end_offset = last_fetch_leader_log_end_offset  # the LEO at the last fetch
        self.broker_epoch = broker_epoch  # from its fetches (KIP-903)

    def caught_up_at(self, last_caught_up_ms: int, last_fetch_ms: int) -> ReplicaState:
        """The same follower with other times."""
        return ReplicaState(
            self.broker_id,
            self.log_end_offset,
            self.log_start_offset,
            last_caught_up_ms,
            last_fetch_ms,
            self.last_fetch_leader_log_end_offset,
            self.broker_epoch,
        )

    def is_caught_up(self, leader_log_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        """Whether it has every record, or had every record at a moment within the allowed lag."""
        return self.log_end_offset == leader_log_end_offset or now_ms - self.last_caught_up_ms <= lag_max_ms

    def is_repeated_by(
        self, fetch_offset: int, log_start_offset: int, leader_log_end_offset: int, broker_epoch: int, since_ms: int
    ) -> bool:
        """Whether a fetch says only what one at `since_ms` or later has said, so that the times alone would change."""
        return (
            self.log_end_offset == fetch_offset
            and self.last_fetch_leader_log_end_offset == leader_log_end_offset
            and self.log_start_offset == log_start_offset
            and self.broker_epoch == broker_epoch
            and self.last_fetch_ms >= since_ms
        )


def next_replica_state(
    state: ReplicaState,
    *,
    fetch_offset: int,
    log_start_offset: int,
    now_ms: int,
    leader_log_end_offset: int,
    broker_epoch: int,
) -> ReplicaState:
    """The follower's state after a fetch from `fetch_offset`.

    A follower that fetches from the leader's end has caught up now. One that fetches from the end as it was at the
    previous fetch had caught up then: a busy leader always moves on in between.
    """
    if fetch_offset >= leader_log_end_offset:
        caught_up_ms = max(state.last_caught_up_ms, now_ms)
    elif fetch_offset >= state.last_fetch_leader_log_end_offset:
        caught_up_ms = max(state.last_caught_up_ms, state.last_fetch_ms)
    else:
        caught_up_ms = state.last_caught_up_ms
    return ReplicaState(
        state.broker_id,
        fetch_offset,
        log_start_offset,
        caught_up_ms,
        max(state.last_fetch_ms, now_ms),
        max(leader_log_end_offset, state.last_fetch_leader_log_end_offset),
        max(broker_epoch, state.broker_epoch),
    )


def reset_replica_state(
    state: ReplicaState, *, now_ms: int, leader_log_end_offset: int, is_new_leader: bool, is_in_sync: bool
) -> ReplicaState:
    """The follower's state at the start of a leader epoch: a member of the ISR gets the full lag time to fetch."""
    caught_up_ms = now_ms if is_in_sync else 0
    if is_new_leader:
        return ReplicaState(
            state.broker_id,
            last_caught_up_ms=caught_up_ms,
            last_fetch_ms=caught_up_ms,
            last_fetch_leader_log_end_offset=leader_log_end_offset if is_in_sync else 0,
        )
    return state.caught_up_at(caught_up_ms, state.last_fetch_ms)


def next_high_watermark(
    *,
    current: int,
    leader_log_end_offset: int,
    followers: Iterable[ReplicaState],
    maximal_isr: Collection[int],
    joining: Collection[int] = (),
) -> int:
    """The high watermark that these log ends allow: the least LEO of leader and maximal ISR, never below `current`.

    `joining` are followers outside the ISR that are caught up and eligible. The watermark waits for them too, so that
    it does not run ahead of a replica that is about to join.
    """
    lowest = leader_log_end_offset
    for follower in followers:
        if follower.log_end_offset < lowest and (follower.broker_id in maximal_isr or follower.broker_id in joining):
            lowest = follower.log_end_offset
    return max(current, lowest)


def joining_replicas(
    followers: Iterable[ReplicaState],
    *,
    isr: Collection[int],
    leader_log_end_offset: int,
    now_ms: int,
    lag_max_ms: int,
) -> frozenset[int]:
    """The followers outside the ISR that are caught up."""
    return frozenset(
        f.broker_id
        for f in followers
        if f.broker_id not in isr and f.is_caught_up(leader_log_end_offset, now_ms, lag_max_ms)
    )


def is_expandable(
    follower: ReplicaState, *, isr: Collection[int], high_watermark: int, leader_epoch_start_offset: int | None
) -> bool:
    """Whether the follower may be proposed for the ISR: it has all safe records and has reached the leader's epoch."""
    return (
        follower.broker_id not in isr
        and follower.log_end_offset >= high_watermark
        and leader_epoch_start_offset is not None
        and follower.log_end_offset >= leader_epoch_start_offset
    )


def out_of_sync_replicas(
    followers: Iterable[ReplicaState],
    *,
    isr: Collection[int],
    leader_log_end_offset: int,
    now_ms: int,
    lag_max_ms: int,
) -> frozenset[int]:
    """The members of the ISR that have not been caught up for longer than the allowed lag."""
    return frozenset(
        f.broker_id
        for f in followers
        if f.broker_id in isr and not f.is_caught_up(leader_log_end_offset, now_ms, lag_max_ms)
    )


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """`min.insync.replicas`, but never more than there are replicas (KIP-966)."""
    return min(min_insync_replicas, replica_count)
