"""Reads a partition of __consumer_offsets into its shard when this broker becomes its leader.

Rules
1. Everything up to the log end is read, in order: a later record of a key replaces an earlier one. What an offset
   record or a marker says counts once the high watermark has passed it, and no offset is told before.
2. Records of kinds of groups that are not built (of share groups and streams groups) are passed over; they stay in
   the log.
3. Offsets of transactions count once their marker is read.

Threads: `group-metadata-manager-0`, the only one that touches a loading shard.
Source: Kafka's CoordinatorLoaderImpl (4.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators import offset_records as records
from barnabas.broker.coordinators.shard_core import ShardCore, ShardState
from barnabas.broker.storage.log_types import FetchIsolation
from barnabas.protocol.records.batch import ControlType, iter_headers, iter_records, parse_control_type

if TYPE_CHECKING:
    from barnabas.protocol.records.batch import BatchHeader

log = logging.getLogger("barnabas.group")

NO_PRODUCER_ID = -1


def load(shard: ShardCore, partition_log: Any, buffer_bytes: int) -> int:
    """Replay the log into the shard, `buffer_bytes` at a time; returns how many records were read.

    Gives up, silently, when the shard is closed meanwhile. Raises what reading and decoding raise.
    """
    offset = partition_log.log_start_offset
    high_watermark = partition_log.high_watermark
    count = 0
    while offset < partition_log.log_end_offset and shard.state is ShardState.LOADING:
        data = partition_log.read(offset, buffer_bytes, isolation=FetchIsolation.LOG_END, min_one_message=True)
        if data.slice is None:
            break
        buffer = memoryview(data.slice.read())
        next_offset = offset
        for position, header in iter_headers(buffer):
            batch = buffer[position : position + header.size_in_bytes]
            count += _replay_batch(shard, batch, header, offset, high_watermark)
            next_offset = max(next_offset, header.next_offset)
        if next_offset == offset:
            break
        offset = next_offset
    return count


def _replay_batch(
    shard: ShardCore, batch: memoryview, header: BatchHeader, from_offset: int, high_watermark: int
) -> int:
    count = 0
    for record in iter_records(batch):
        if record.offset < from_offset:
            continue
        count += 1
        is_committed = record.offset < high_watermark
        if header.is_control:
            kind = parse_control_type(record.key)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                shard.replay_marker(header.producer_id, kind is ControlType.COMMIT, record.offset, is_committed)
            continue
        if record.key is None:
            continue
        what = records.read(bytes(record.key), record.value, record.offset)
        if what is not None:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            shard.replay(what, producer_id, record.offset, is_committed)
        else:
            log.debug("%s: record at %d is of a kind of group that is not built", shard.tp, record.offset)
    return count
