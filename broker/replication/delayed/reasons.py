"""Why a delayed operation waits, as fields and as text, for the live page.

Nothing stops for the page: a partition may move on between two numbers of one sentence. Each text continues a sentence
after "waits". An offset that is waited for is exclusive, as watermarks are: every record below it.

Threads: the page's; takes no lock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from barnabas.broker.metadata.metadata_cache import INTERNAL_TOPICS
from barnabas.broker.replication.in_sync.isr import UNKNOWN_OFFSET, ReplicaState
from barnabas.broker.replication.reading import FetchItem, FetchParams, FetchReader, visible_end
from barnabas.broker.storage.log.log_types import FetchIsolation
from barnabas.common.pages.phrases import count, duration, listed
from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.replication.hosted_partitions import HostedPartitions
    from barnabas.broker.replication.partition import Partition
    from barnabas.common.pages.live_shape import Position, Reason
    from barnabas.common.topic_partition import TopicPartition

PARTITIONS_MAX: Final = 20  # the page explains no more partitions of one operation
_END_NAMES: Final = {
    FetchIsolation.LOG_END: "log end",
    FetchIsolation.HIGH_WATERMARK: "high watermark",
    FetchIsolation.TXN_COMMITTED: "high watermark",  # equal to the last stable offset unless a transaction is open
}


# --- acks=all


def produce_reasons(hosted: HostedPartitions, pending: Sequence[tuple[TopicPartition, int]]) -> list[Reason]:
    """Why the high watermarks of these partitions are below these offsets."""
    return [reason for tp, offset in pending[:PARTITIONS_MAX] for reason in _watermark_reasons(hosted, tp, offset)]


def _watermark_reasons(hosted: HostedPartitions, tp: TopicPartition, offset: int) -> list[Reason]:
    partition = hosted.find(tp)
    log = None if partition is None else partition.log
    if partition is None or log is None:
        return [_about(tp, "leader", f"to be answered: {tp} is offline here, or was deleted")]
    if not partition.is_leader:
        return [_about(tp, "leader", f"to be answered: {tp} is led by another broker")]
    high_watermark = log.high_watermark
    if high_watermark >= offset:
        return []
    reasons = [
        _behind(hosted, partition, follower, offset)
        for follower in partition.followers
        if follower.log_end_offset < offset and partition.awaits(follower)
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


def _behind(hosted: HostedPartitions, partition: Partition, follower: ReplicaState, offset: int) -> Reason:
    replica, reached = follower.broker_id, follower.log_end_offset
    text = f"for offset {offset} of {partition.tp} on replica {replica}"
    last_fetch_ms = -1
    if reached == UNKNOWN_OFFSET:
        text += ", which has not fetched since this broker became leader"
    else:
        last_fetch_ms = partition.ms_since_fetch(follower)
        text += f", whose fetcher is at {reached} and last fetched {duration(last_fetch_ms)} ago"
    if not hosted.metadata_cache.snapshot.is_alive(replica):
        text += f" (broker {replica} is not alive)"
    return {
        **_about(partition.tp, "replica", text),
        "offset": offset,
        "replica": replica,
        "replica_offset": reached,
        "last_fetch_ms": last_fetch_ms,
    }


# --- DeleteRecords


def delete_records_reasons(hosted: HostedPartitions, pending: Sequence[tuple[TopicPartition, int]]) -> list[Reason]:
    """Which live replicas have not deleted the records below these offsets."""
    reasons: list[Reason] = []
    snapshot = hosted.metadata_cache.snapshot
    for tp, offset in pending[:PARTITIONS_MAX]:
        partition = hosted.find(tp)
        for follower in () if partition is None else partition.followers:
            start = follower.log_start_offset
            if snapshot.is_alive(follower.broker_id) and start < offset:
                text = f"for replica {follower.broker_id} to delete {tp} up to offset {offset}: " + (
                    "it has not fetched since this broker became leader"
                    if start == UNKNOWN_OFFSET
                    else f"its log starts at {start}"
                )
                reason = _about(tp, "log_start", text)
                reasons.append({**reason, "offset": offset, "replica": follower.broker_id, "replica_offset": start})
    return reasons


# --- fetches


def _available_words(available: int) -> str:
    if not available:
        return ""
    return f", of which {available:,} {'is' if available == 1 else 'are'} available,"


def fetch_reasons(
    reader: FetchReader,
    params: FetchParams,
    items: Sequence[FetchItem],
    available_bytes: Callable[[FetchItem], int],
) -> list[Reason]:
    """How many of the wanted bytes are available, and the fetch's position in each partition."""
    explained = sorted(items, key=lambda item: item.tp.topic in INTERNAL_TOPICS)[:PARTITIONS_MAX]
    positions: list[Position] = []
    words: list[str] = []
    available = 0
    for item in explained:
        try:
            end = _end_of(reader, params, item)
            available += available_bytes(item)
        except (ApiError, OSError):
            continue  # the next try completes the fetch with this error
        positions.append(
            {"topic": item.tp.topic, "partition": item.tp.partition, "offset": item.fetch_offset, "end": end}
        )
        words.append(f"{item.tp} from offset {item.fetch_offset} ({_end_words(reader, params, item, end)})")
    words += [""] * (len(items) - len(explained))  # these are only counted
    wanted = count(params.min_bytes, "byte")
    if available >= params.min_bytes:  # they have just come; the appender has not woken the fetch yet
        text = f"to be answered: {wanted} {'is' if params.min_bytes == 1 else 'are'} available of {listed(words)}"
    else:
        text = f"for {wanted}{_available_words(available)} of {listed(words)}"
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


def _end_of(reader: FetchReader, params: FetchParams, item: FetchItem) -> int:
    log = reader.hosted.get(item.tp).log_for(item.current_leader_epoch, leader_only=params.leader_only)
    return visible_end(log, params.isolation)


def _end_words(reader: FetchReader, params: FetchParams, item: FetchItem, end: int) -> str:
    """The end that the reader sees, and why it is not the log end."""
    partition = reader.hosted.get(item.tp)
    log = partition.log
    assert log is not None, "its end was just read"
    words = f"{_END_NAMES[params.isolation]} {end}"
    if params.is_from_follower and reader.holds_back(partition, params.replica_id):
        return f"{words}, held back by a throttle"
    if params.isolation == FetchIsolation.TXN_COMMITTED and end < log.high_watermark:
        return f"last stable offset {end}: a transaction is open"
    if end < log.log_end_offset:
        return f"{words}, log end {log.log_end_offset}"
    return words


def _about(tp: TopicPartition, kind: str, text: str) -> Reason:
    return {"kind": kind, "text": text, "topic": tp.topic, "partition": tp.partition}
