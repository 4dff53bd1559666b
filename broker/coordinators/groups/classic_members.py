"""Requests of the classic protocol about consumer groups, during an online migration.

Threads: owner is the shard, under its lock; every method wants it held.
Source: Kafka's GroupMetadataManager.classicGroup* (4.3), KIP-848 (migration).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.coordinators.classic import events as ev
from barnabas.broker.coordinators.consumer import classic_requests
from barnabas.broker.coordinators.consumer.turn import Turn
from barnabas.protocol.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.consumer_groups import ConsumerGroups
    from barnabas.broker.coordinators.groups.core import ShardCore


class ClassicMembers:
    """The members of consumer groups that speak the classic protocol."""

    __slots__ = ("_consumers", "_core")

    def __init__(self, core: ShardCore, consumers: ConsumerGroups) -> None:
        self._core = core  # fixed before start
        self._consumers = consumers  # fixed before start

    def join(self, group_id: str, event: ev.Join) -> None:
        """Handle a JoinGroup."""
        core, turn = self._core, self._turn(group_id)
        try:
            result = classic_requests.join(turn, event)
        except ApiError as refusal:
            core.answer_locked(event.reply, ev.JoinResult(refusal.code, ev.UNKNOWN_MEMBER_ID))
            return

        def settled(error: ErrorCode) -> None:
            core.answer_locked(event.reply, ev.JoinResult(error, ev.UNKNOWN_MEMBER_ID) if error else result)

        self._consumers.write_turn(turn, settled)

    def sync(self, group_id: str, event: ev.Sync) -> None:
        """Handle a SyncGroup."""
        core, turn = self._core, self._turn(group_id)
        try:
            result = classic_requests.sync(turn, event)
        except ApiError as refusal:
            core.answer_locked(event.reply, ev.SyncResult(refusal.code))
            return
        self._consumers.write_turn(
            turn, lambda error: core.answer_locked(event.reply, ev.SyncResult(error) if error else result)
        )

    def heartbeat(self, group_id: str, event: ev.Heartbeat) -> ErrorCode:
        """Handle a Heartbeat."""
        turn = self._turn(group_id)
        try:
            result = classic_requests.heartbeat(turn, event.member_id, event.instance_id, event.generation_id)
        except ApiError as refusal:
            return refusal.code
        self._consumers.carry_out(turn)
        return result

    def leave(self, group_id: str, event: ev.Leave) -> None:
        """Handle a LeaveGroup."""
        core, turn = self._core, self._turn(group_id)
        try:
            result = classic_requests.leave(turn, event)
        except ApiError as refusal:
            core.answer_locked(event.reply, ev.LeaveResult(refusal.code))
            return
        self._consumers.write_turn(
            turn, lambda error: core.answer_locked(event.reply, ev.LeaveResult(error) if error else result)
        )

    def _turn(self, group_id: str) -> Turn:
        return Turn(self._consumers.groups[group_id], self._consumers.environment(group_id))
