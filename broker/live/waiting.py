"""Who waits, for what: purgatories, and requests that are parked in none.

An operation of a purgatory tells itself what it waits for (`DelayedOperation.waits_for`). The others wait for their
owner's answer only; which one, `_ELSEWHERE` knows of each API.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from barnabas.common.live_shape import Listed, Purgatory, Reason, RequestShape, Waiting
from barnabas.common.topic_partition import TopicPartition
from broker.coordinators.waiting import join_reasons, sync_reasons
from broker.live.requests import subject, words_of
from broker.metadata_cache import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from broker import purgatory as rooms
    from broker.coordinators.group_coordinator import GroupCoordinator
    from broker.coordinators.transaction_coordinator import TransactionCoordinator
    from broker.live.look import Look
    from broker.live.requests import RequestViews
    from broker.request_channel import Request

KEYS_TOLD: Final = 10
REASONS_TOLD: Final = 10
REASONS_SPOKEN: Final = 3


# --- purgatories


def purgatories(all_: Iterable[rooms.Purgatory], views: RequestViews, look: Look) -> list[Purgatory]:
    """Every purgatory with the oldest of what waits in it."""
    return [
        {
            "name": purgatory.name,
            "watched": purgatory.watched(),
            "delayed": purgatory.delayed(),
            "items": [
                in_purgatory(operation, keys, views, look)
                for operation, keys in purgatory.waiting(look.limit, _about_topic(look.topic))
            ],
        }
        for purgatory in all_
    ]


def _about_topic(topic: str | None) -> Callable[[Hashable], bool]:
    if topic is None:
        return lambda _key: True
    return lambda key: key == topic or (isinstance(key, TopicPartition) and key.topic == topic)


def in_purgatory(
    operation: rooms.DelayedOperation, keys: Sequence[Hashable], views: RequestViews, look: Look
) -> Waiting:
    """One operation of a purgatory."""
    request = operation.request
    shape = None if request is None else views.on_its_way(request, look)
    reasons = operation.waits_for()
    age_ms = max(0, look.now_ms - operation.started_ms) if operation.started_ms >= 0 else 0
    names = [str(key) for key in keys if isinstance(key, (str, TopicPartition))]
    return {
        "operation": "append" if shape is None else words_of(shape["api"] or "request"),
        "keys": names[:KEYS_TOLD],
        "key_count": len(names),
        "request": shape,
        "client_id": None if shape is None else shape["client_id"],
        "age_ms": age_ms,
        "deadline_ms": None if operation.delay_ms < 0 else max(0, operation.delay_ms - age_ms),
        "reasons": reasons[:REASONS_TOLD],
        "sentence": sentence(shape, reasons, names),
    }


def sentence(request: RequestShape | None, reasons: Sequence[Reason], keys: Sequence[str] = ()) -> str:
    """Say who waits for what."""
    who = f"append of a coordinator to {', '.join(keys[:1])}" if request is None else subject(request)
    if not reasons:
        return f"{who} is about to be answered"
    spoken = [reason["text"] for reason in reasons[:REASONS_SPOKEN]]
    if len(reasons) > REASONS_SPOKEN:
        spoken.append(f"for {len(reasons) - REASONS_SPOKEN} more")
    return f"{who} waits {'; and '.join(spoken)}"


# --- elsewhere

Explain = Callable[["Elsewhere", Any], "list[Reason]"]


class Elsewhere:
    """Requests that wait for an answer of a coordinator, or of another broker."""

    def __init__(self, groups: GroupCoordinator, transactions: TransactionCoordinator, views: RequestViews) -> None:
        self._groups = groups  # fixed before start
        self._transactions = transactions  # fixed before start
        self._views = views  # fixed before start

    def told(self, requests: Iterable[Request], look: Look) -> Listed:
        """Those of these requests that are parked in no purgatory, oldest first."""
        parked = [(request, request.operation) for request in requests]
        waiting = [(request, operation) for request, operation in parked if operation and not operation.is_in_purgatory]
        waiting.sort(key=lambda item: item[0].received_ns)
        return look.some([self._one(*item, look) for item in waiting[: look.limit]], len(waiting))

    def _one(self, request: Request, operation: rooms.DelayedOperation, look: Look) -> Waiting:
        shape = self._views.on_its_way(request, look)
        reasons = operation.waits_for() or self._reasons(request, shape)
        return {
            "operation": words_of(shape["api"] or "request"),
            "keys": [],
            "key_count": 0,
            "request": shape,
            "client_id": shape["client_id"],
            "age_ms": shape["times_ms"].get("remote", 0.0),
            "deadline_ms": None,
            "reasons": reasons,
            "sentence": sentence(shape, reasons),
        }

    def _reasons(self, request: Request, shape: RequestShape) -> list[Reason]:
        message, explain = request.message, _ELSEWHERE.get(shape["api"] or "")
        if message is None or explain is None:  # answered just now; or nothing is known of it
            return []
        return explain(self, message)

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
        return [{"kind": "write", "text": f"for its records in {GROUP_METADATA_TOPIC} to be on all in-sync replicas"}]

    def _transaction_write(self, message: Any) -> list[Reason]:
        transactional_id = getattr(message, "transactional_id", None) or getattr(
            message, "v3_and_below_transactional_id", None
        )
        if not transactional_id:
            return [{"kind": "producer_id", "text": "for a producer id from the controller"}]
        tp = TopicPartition(TRANSACTION_STATE_TOPIC, self._transactions.partition_for(transactional_id))
        return [_written(tp)]

    def _markers(self, _message: Any) -> list[Reason]:
        return [{"kind": "write", "text": "for the markers of a transaction to be on all in-sync replicas"}]


def _written(tp: TopicPartition) -> Reason:
    text = f"for its records in {tp} to be on all in-sync replicas"
    return {"kind": "write", "text": text, "topic": tp.topic, "partition": tp.partition}


_ELSEWHERE: Final[Mapping[str, Explain]] = {
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
    "AddPartitionsToTxn": Elsewhere._transaction_write,
    "AddOffsetsToTxn": Elsewhere._transaction_write,
    "EndTxn": Elsewhere._transaction_write,
    "WriteTxnMarkers": Elsewhere._markers,
}
