"""What the delayed operations of replication wait for, in fields and in words, for the live page.

Nothing is stopped for the look: a partition may have moved on between two numbers of a sentence. A text goes on after
"waits"; an offset that is waited for is exclusive, as watermarks are: everything below it.

Threads: the page's; takes no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.replication.isr import UNKNOWN_OFFSET, ReplicaState
from barnabas.broker.replication.reading import FetchItem, FetchParams, visible_end
from barnabas.broker.storage.log_types import FetchIsolation
from barnabas.common.live_shape import Position, Reason
from barnabas.common.phrases import count, duration, listed
from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.replica_manager import ReplicaManager
    from barnabas.broker.storage.log import Log
    from barnabas.common.topic_partition import TopicPartition

PARTITIONS_LOOKED_AT: Final = 20
_END_NAMES: Final = {
    FetchIsolation.LOG_END: "log end",
    FetchIsolation.HIGH_WATERMARK: "high watermark",
    FetchIsolation.TXN_COMMITTED: "high watermark",  # a last stable offset before it is named
}


# --- acks=all


def produce_reasons(manager: ReplicaManager, pending: Sequence[tuple[TopicPartition, int]]) -> list[Reason]:
    """What keeps the high watermarks of these partitions below these offsets."""
    return [
        reason for tp, offset in pending[:PARTITIONS_LOOKED_AT] for reason in _watermark_reasons(manager, tp, offset)
    ]


def _watermark_reasons(manager: ReplicaManager, tp: TopicPartition, offset: int) -> list[Reason]:
    partition = manager.find(tp)
    log = None if partition is None else partition.log
    if partition is None or log is None:
        return [_about(tp, "leader", f"to be told that {tp} is offline here, or gone")]
    if not partition.is_leader:
        return [_about(tp, "leader", f"to be told that {tp} is led by another broker")]
    high_watermark = log.high_watermark
    if high_watermark >= offset:
        return []
    reasons = [
        _behind(manager, partition, follower, offset)
        for follower in partition.followers
        if follower.log_end_offset < offset and _holds_watermark(manager, partition, follower, log)
    ]
    role, least = partition.role, partition.effective_min_isr()
    if len(role.isr) < least:  # KIP-966: then the watermark does not move
        text = f"for the ISR of {tp} to have {least} members (min.insync.replicas): it has {len(role.isr)}"
        reasons.append({**_about(tp, "min_isr", text), "isr": sorted(role.isr), "min_isr": least})
    if role.is_isr_change_in_flight and role.maximal_isr == role.isr:
        text = f"for the controller to accept a smaller ISR of {tp}"
        reasons.append({**_about(tp, "isr_change", text), "isr": sorted(role.isr)})
    if not reasons:
        text = f"for the high watermark of {tp}, which is {high_watermark}, to reach {offset}"
        reasons.append({**_about(tp, "high_watermark", text), "offset": offset, "high_watermark": high_watermark})
    return reasons


def _holds_watermark(manager: ReplicaManager, partition: Partition, follower: ReplicaState, log: Log) -> bool:
    """Whether the watermark waits for this follower: one of the maximal ISR, or one that is about to join."""
    if follower.broker_id in partition.role.maximal_isr:
        return True
    lag_max_ms = manager.config.replica_lag_time_max_ms
    return follower.is_caught_up(log.log_end_offset, manager.clock.monotonic_ms(), lag_max_ms)


def _behind(manager: ReplicaManager, partition: Partition, follower: ReplicaState, offset: int) -> Reason:
    replica, reached = follower.broker_id, follower.log_end_offset
    text = f"for offset {offset} of {partition.tp} on replica {replica}"
    last_fetch_ms = -1
    if reached == UNKNOWN_OFFSET:
        text += ", which has not fetched since this broker leads"
    else:
        last_fetch_ms = max(0, manager.clock.monotonic_ms() - follower.last_fetch_ms)
        text += f", whose fetcher is at {reached} and last fetched {duration(last_fetch_ms)} ago"
    if replica not in manager.metadata_cache.snapshot.brokers:
        text += f" (broker {replica} is not alive)"
    return {
        **_about(partition.tp, "replica", text),
        "offset": offset,
        "replica": replica,
        "replica_offset": reached,
        "last_fetch_ms": last_fetch_ms,
    }


# --- DeleteRecords


def delete_records_reasons(manager: ReplicaManager, pending: Sequence[tuple[TopicPartition, int]]) -> list[Reason]:
    """Which live replicas have not deleted below these offsets."""
    reasons: list[Reason] = []
    for tp, offset in pending[:PARTITIONS_LOOKED_AT]:
        partition = manager.find(tp)
        alive = manager.metadata_cache.snapshot.brokers
        for follower in () if partition is None else partition.followers:
            start = follower.log_start_offset
            if follower.broker_id in alive and start < offset:
                text = f"for replica {follower.broker_id} to delete {tp} up to offset {offset}: " + (
                    "it has not fetched since this broker leads"
                    if start == UNKNOWN_OFFSET
                    else f"there it begins at {start}"
                )
                reason = _about(tp, "log_start", text)
                reasons.append({**reason, "offset": offset, "replica": follower.broker_id, "replica_offset": start})
    return reasons


# --- fetches


def _there(available: int) -> str:
    if not available:
        return ""
    return f", of which {available:,} {'is' if available == 1 else 'are'} there,"


def fetch_reasons(
    manager: ReplicaManager,
    params: FetchParams,
    items: Sequence[FetchItem],
    available_bytes: Callable[[FetchItem], int],
) -> list[Reason]:
    """How much is there of what the fetch wants, and where it reads."""
    looked_at = sorted(items, key=lambda item: item.tp.topic in INTERNAL_TOPICS)[:PARTITIONS_LOOKED_AT]
    positions: list[Position] = []
    words: list[str] = []
    available = 0
    for item in looked_at:
        try:
            end = _end_of(manager, params, item)
            available += available_bytes(item)
        except (ApiError, OSError):
            continue  # it is answered at its next try
        positions.append(
            {"topic": item.tp.topic, "partition": item.tp.partition, "offset": item.fetch_offset, "end": end}
        )
        words.append(f"{item.tp} from offset {item.fetch_offset} ({_end_words(manager, params, item, end)})")
    words += [""] * (len(items) - len(looked_at))  # only counted
    wanted = count(params.min_bytes, "byte")
    if available >= params.min_bytes:  # they have just come; whoever brought them has not woken it yet
        text = f"to be answered, now that {wanted} {'is' if params.min_bytes == 1 else 'are'} there, of {listed(words)}"
    else:
        text = f"for {wanted}{_there(available)} of {listed(words)}"
    return [
        {
            "kind": "bytes",
            "text": text,
            "min_bytes": params.min_bytes,
            "available_bytes": available,
            "partition_count": len(items),
            "positions": positions,
        }
    ]


def _end_of(manager: ReplicaManager, params: FetchParams, item: FetchItem) -> int:
    log = manager.partition(item.tp).log_for(item.current_leader_epoch, leader_only=params.leader_only)
    return visible_end(log, params.isolation)


def _end_words(manager: ReplicaManager, params: FetchParams, item: FetchItem, end: int) -> str:
    """Up to where it may read, and what keeps it from reading on."""
    partition = manager.partition(item.tp)
    log = partition.log
    assert log is not None, "its end was just read"
    words = f"{_END_NAMES[params.isolation]} {end}"
    if params.is_from_follower and manager.holds_back(partition, params.replica_id):
        return f"{words}, held back by a throttle"
    if params.isolation == FetchIsolation.TXN_COMMITTED and end < log.high_watermark:
        return f"last stable offset {end}: a transaction is open"
    if end < log.log_end_offset:
        return f"{words}, log end {log.log_end_offset}"
    return words


def _about(tp: TopicPartition, kind: str, text: str) -> Reason:
    return {"kind": kind, "text": text, "topic": tp.topic, "partition": tp.partition}
