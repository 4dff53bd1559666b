"""Followers: a leader's view of the other replicas, and which of them count, may join or lag.

The decisions are the pure functions of `isr.py`; this class adds the clock, the allowed lag and the metadata that they
need. `Partition` owns one, changes it under its own lock, and clears it when it stops leading.

Threads: changed by the holder of the partition's lock; `states` may be read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from barnabas.broker.replication.in_sync.isr import (
    ReplicaState,
    joining_replicas,
    next_replica_state,
    out_of_sync_replicas,
    reset_replica_state,
)

if TYPE_CHECKING:
    from barnabas.broker.replication.role import LeadershipChange, Role
    from barnabas.common.clock import Clock


MOMENTS: Final = 300  # in the allowed lag
MOMENT_MAX_MS: Final = 100  # what one is by default
_NOBODY: Final[dict[int, ReplicaState]] = {}  # never changed


class Followers:
    """The followers of one partition by broker id; empty unless this broker leads."""

    __slots__ = ("_clock", "_is_alive", "_is_eligible", "_lag_max_ms", "_moment_ms", "states")

    def __init__(
        self,
        clock: Clock,
        lag_max_ms: int,
        is_alive: Callable[[int], bool],
        is_eligible: Callable[[int, int], bool],
    ) -> None:
        self._clock = clock  # fixed before start
        self._lag_max_ms = lag_max_ms  # fixed before start (replica.lag.time.max.ms)
        # Fixed before start; within it a fetch may repeat another, unnoted.
        self._moment_ms = min(MOMENT_MAX_MS, lag_max_ms // MOMENTS)
        self._is_alive = is_alive  # fixed before start; (broker id) -> is it unfenced?
        self._is_eligible = is_eligible  # fixed before start; (broker id, broker epoch) -> may it be in an ISR?
        self.states: dict[int, ReplicaState] = _NOBODY  # replaced whole under the partition's lock

    def clear(self) -> None:
        """Forget every follower: this broker does not lead any more."""
        self.states = _NOBODY

    def reset(
        self,
        change: LeadershipChange,
        *,
        local_id: int,
        leader_log_end_offset: int,
        is_new_leader: bool,
        is_new_epoch: bool,
    ) -> None:
        """Take over the replicas of a push: new ones, and all of them in a new epoch, start with a fresh state."""
        states: dict[int, ReplicaState] = {}
        for broker_id in change.replicas:
            if broker_id == local_id:
                continue
            state = self.states.get(broker_id)
            if state is None or is_new_epoch:
                state = reset_replica_state(
                    state or ReplicaState(broker_id),
                    now_ms=self._clock.monotonic_ms(),
                    leader_log_end_offset=leader_log_end_offset,
                    is_new_leader=is_new_leader or state is None,
                    is_in_sync=broker_id in change.isr,
                )
            states[broker_id] = state
        self.states = states or _NOBODY

    def note_fetch(
        self,
        state: ReplicaState,
        *,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        leader_log_end_offset: int,
        broker_epoch: int,
    ) -> ReplicaState:
        """Record that the follower of `state` fetched from `fetch_offset` at `now_ms`; returns its new state."""
        following = next_replica_state(
            state,
            fetch_offset=fetch_offset,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
            leader_log_end_offset=leader_log_end_offset,
            broker_epoch=broker_epoch,
        )
        self.states = {**self.states, state.broker_id: following}
        return following

    def is_noted(
        self,
        broker_id: int,
        *,
        fetch_offset: int,
        log_start_offset: int,
        now_ms: int,
        leader_log_end_offset: int,
        broker_epoch: int,
    ) -> bool:
        """Whether a fetch of a member of the ISR repeats one that was noted a moment ago. Needs no lock.

        A session asks for all its partitions when one of them has records. So most fetches of the others come at once
        after the last, and change nothing but the times, which are compared with the allowed lag.
        """
        state = self.states.get(broker_id)
        return state is not None and state.is_repeated_by(
            fetch_offset, log_start_offset, leader_log_end_offset, broker_epoch, now_ms - self._moment_ms
        )

    def note_still_fetched(self, broker_id: int, fetched_ms: int) -> None:
        """Record that a follower, if there still is one of this id, had caught up at `fetched_ms` (monotonic)."""
        state = self.states.get(broker_id)
        if state is not None and fetched_ms > state.last_fetch_ms:
            following = state.caught_up_at(max(state.last_caught_up_ms, fetched_ms), fetched_ms)
            self.states = {**self.states, broker_id: following}

    def low_watermark(self, log_start_offset: int) -> int:
        """The least log start offset of the leader, which is given, and its live followers."""
        starts = [state.log_start_offset for state in self.states.values() if self._is_alive(state.broker_id)]
        return min([log_start_offset, *starts])

    def is_eligible(self, state: ReplicaState) -> bool:
        """Whether the controller would accept the follower, in the epoch that it fetches with, into an ISR."""
        return self._is_eligible(state.broker_id, state.broker_epoch)

    def joining(self, maximal_isr: frozenset[int], leader_log_end_offset: int) -> Collection[int]:
        """The followers outside the maximal ISR that are about to join it."""
        if self.states.keys() <= maximal_isr:  # Why first: usually true; saves a clock read
            return ()
        caught_up = joining_replicas(
            self.states.values(),
            isr=maximal_isr,
            leader_log_end_offset=leader_log_end_offset,
            now_ms=self._clock.monotonic_ms(),
            lag_max_ms=self._lag_max_ms,
        )
        return [id_ for id_ in caught_up if self.is_eligible(self.states[id_])]

    def lagging(self, isr: frozenset[int], leader_log_end_offset: int) -> frozenset[int]:
        """The members of the ISR that have lagged for longer than allowed."""
        return out_of_sync_replicas(
            self.states.values(),
            isr=isr,
            leader_log_end_offset=leader_log_end_offset,
            now_ms=self._clock.monotonic_ms(),
            lag_max_ms=self._lag_max_ms,
        )

    def members(self, isr: frozenset[int]) -> tuple[tuple[int, int], ...]:
        """(broker id, broker epoch) of each member of an ISR, by id; the epoch is -1 for the leader itself."""
        return tuple((b, self.states[b].broker_epoch if b in self.states else -1) for b in sorted(isr))

    def hold_back(self, state: ReplicaState, role: Role, leader_log_end_offset: int) -> bool:
        """Whether the high watermark waits for this follower: a member of the maximal ISR, or one about to join."""
        if state.broker_id in role.maximal_isr:
            return True
        return state.is_caught_up(leader_log_end_offset, self._clock.monotonic_ms(), self._lag_max_ms)

    def ms_since_fetch(self, state: ReplicaState) -> int:
        """How long ago the follower fetched."""
        return max(0, self._clock.monotonic_ms() - state.last_fetch_ms)
