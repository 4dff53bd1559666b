"""Reads a partition of __transaction_state into its shard when this broker becomes its leader.

Everything up to the log end is read, in order: a later record of an id replaces an earlier one.

Threads: `transaction-log-manager-0`, the only one that touches a loading shard.
Source: Kafka's TransactionStateManager.loadTransactionMetadata (4.3).
"""

from __future__ import annotations

import logging
from typing import Any

from barnabas.broker.coordinators import transaction_records as records
from barnabas.broker.coordinators.shard_core import ShardState
from barnabas.broker.coordinators.transaction_shard import TransactionShard
from barnabas.broker.storage.log_types import FetchIsolation
from barnabas.protocol.records.batch import iter_headers, iter_records

log = logging.getLogger("barnabas.transaction")


def load(shard: TransactionShard, partition_log: Any, buffer_bytes: int) -> int:
    """Replay the log into the shard, `buffer_bytes` at a time; returns the offset up to which it was read (exclusive).

    Gives up, silently, when the shard is closed meanwhile. Raises what reading and decoding raise.
    """
    offset: int = partition_log.log_start_offset
    while offset < partition_log.log_end_offset and shard.state is ShardState.LOADING:
        data = partition_log.read(offset, buffer_bytes, isolation=FetchIsolation.LOG_END, min_one_message=True)
        if data.slice is None:
            break
        buffer = memoryview(data.slice.read())
        next_offset = offset
        for position, header in iter_headers(buffer):
            if not header.is_control:
                _replay_batch(shard, buffer[position : position + header.size_in_bytes], offset)
            next_offset = max(next_offset, header.next_offset)
        if next_offset == offset:
            break
        offset = next_offset
    return offset


def _replay_batch(shard: TransactionShard, batch: memoryview, from_offset: int) -> None:
    for record in iter_records(batch):
        if record.offset < from_offset or record.key is None:
            continue
        what = records.read(bytes(record.key), record.value)
        if what is None:
            log.warning("%s: the record at %d is of an unknown kind", shard.tp, record.offset)
        else:
            shard.replay(*what)
