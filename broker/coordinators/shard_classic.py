"""Requests of the classic protocol about consumer groups, during a migration.

Threads: any.
Source: Kafka's GroupMetadataManager.classicGroup* (4.3), KIP-848 (migration).
"""

from __future__ import annotations

from barnabas.broker.coordinators import group_events as ev
from barnabas.broker.coordinators.consumer_group_classic import ClassicTurn
from barnabas.broker.coordinators.shard_consumer import ConsumerShard
from barnabas.protocol.errors import ApiError, ErrorCode


class ClassicInConsumerShard(ConsumerShard):
    """See the module."""

    def _classic_turn_locked(self, group_id: str) -> ClassicTurn:
        return ClassicTurn(self.consumer_groups[group_id], self._situation_locked(group_id))

    def _join_consumer_group_locked(self, group_id: str, event: ev.Join) -> None:
        turn = self._classic_turn_locked(group_id)
        try:
            result = turn.join(event)
        except ApiError as error:
            self._say(event.reply, ev.JoinResult(error.code, ev.UNKNOWN_MEMBER_ID))
            return

        def settled(error: ErrorCode) -> None:
            self._say(event.reply, ev.JoinResult(error, ev.UNKNOWN_MEMBER_ID) if error else result)

        self._write_turn_locked(turn, settled)

    def _sync_consumer_group_locked(self, group_id: str, event: ev.Sync) -> None:
        turn = self._classic_turn_locked(group_id)
        try:
            result = turn.sync(event)
        except ApiError as error:
            self._say(event.reply, ev.SyncResult(error.code))
            return
        self._write_turn_locked(turn, lambda error: self._say(event.reply, ev.SyncResult(error) if error else result))

    def _heartbeat_consumer_group_locked(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        turn = self._classic_turn_locked(group_id)
        try:
            result = turn.classic_heartbeat(member_id, instance_id, generation_id)
        except ApiError as error:
            return error.code
        self._carry_out_turn_locked(turn)
        return result

    def _leave_consumer_group_locked(self, group_id: str, event: ev.Leave) -> None:
        turn = self._classic_turn_locked(group_id)
        try:
            result = turn.classic_leave(event)
        except ApiError as error:
            self._say(event.reply, ev.LeaveResult(error.code))
            return
        self._write_turn_locked(turn, lambda error: self._say(event.reply, ev.LeaveResult(error) if error else result))
