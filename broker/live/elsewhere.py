"""The reasons why requests wait for a coordinator, by their API and message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.coordinators.groups.waiting import join_reasons, sync_reasons
from barnabas.broker.metadata.metadata_cache import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from barnabas.common.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.coordinator import GroupCoordinator
    from barnabas.broker.coordinators.transactions.coordinator import TransactionCoordinator
    from barnabas.common.pages.live_shape import Reason


class Elsewhere:
    """Explains the waits for the coordinators of a broker."""

    def __init__(self, groups: GroupCoordinator, transactions: TransactionCoordinator) -> None:
        self._groups = groups  # fixed before start
        self._transactions = transactions  # fixed before start

    def explain(self, api: str, message: Any) -> list[Reason]:
        """Return the reasons why a request of this API waits; none for an API that never waits for a coordinator."""
        explain = _BY_API.get(api)
        return [] if explain is None else explain(self, message)

    def _join(self, message: Any) -> list[Reason]:
        group, now_ms, delay_ms = self._groups.look_at(message.group_id)
        return self._group_write(message) if group is None else join_reasons(group, now_ms, delay_ms)

    def _sync(self, message: Any) -> list[Reason]:
        group, _, _ = self._groups.look_at(message.group_id)
        return self._group_write(message) if group is None else sync_reasons(group)

    def _group_write(self, message: Any) -> list[Reason]:
        tp = TopicPartition(GROUP_METADATA_TOPIC, self._groups.partition_for(message.group_id))
        return [{**_written(tp), "group": message.group_id}]

    def _groups_write(self, _message: Any) -> list[Reason]:
        return [{"kind": "write", "text": f"for pending records of {GROUP_METADATA_TOPIC} to be committed"}]

    def _transaction_write(self, message: Any) -> list[Reason]:
        if not message.transactional_id:
            return [{"kind": "producer_id", "text": "for a block of producer ids from the controller"}]
        return [self._of_transaction(message.transactional_id)]

    def _added(self, message: Any) -> list[Reason]:
        old = message.v3_and_below_transactional_id
        ids = [old] if old else [transaction.transactional_id for transaction in message.transactions]
        return [self._of_transaction(each) for each in ids]

    def _of_transaction(self, transactional_id: str) -> Reason:
        return _written(TopicPartition(TRANSACTION_STATE_TOPIC, self._transactions.partition_for(transactional_id)))

    def _markers(self, _message: Any) -> list[Reason]:
        return [{"kind": "write", "text": "for the markers of a transaction to be on all in-sync replicas"}]


def _written(tp: TopicPartition) -> Reason:
    text = f"for its records in {tp} to be on all in-sync replicas"
    return {"kind": "write", "text": text, "topic": tp.topic, "partition": tp.partition}


_BY_API: Final[Mapping[str, Callable[[Elsewhere, Any], list[Reason]]]] = {
    "JoinGroup": Elsewhere._join,
    "SyncGroup": Elsewhere._sync,
    "LeaveGroup": Elsewhere._group_write,
    "OffsetCommit": Elsewhere._group_write,
    "OffsetFetch": Elsewhere._groups_write,
    "OffsetDelete": Elsewhere._group_write,
    "DeleteGroups": Elsewhere._groups_write,
    "ConsumerGroupHeartbeat": Elsewhere._group_write,
    "TxnOffsetCommit": Elsewhere._group_write,
    "InitProducerId": Elsewhere._transaction_write,
    "AddPartitionsToTxn": Elsewhere._added,
    "AddOffsetsToTxn": Elsewhere._transaction_write,
    "EndTxn": Elsewhere._transaction_write,
    "WriteTxnMarkers": Elsewhere._markers,
}
