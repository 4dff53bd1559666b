"""Reads a partition of __transaction_state into its shard when this broker becomes its leader.

Rules
1. Everything up to the log end is read, in order: a later record of an id replaces an earlier one.
2. Records of a type that nobody knows, and records without key, are skipped with a warning, as Kafka does. A record of
   an id that cannot be read fails the load: the shard is offline rather than wrong about a transaction. (Apache Kafka
   serves what it had read until then.)

Threads: `transaction-log-manager-0`, the only one that touches a loading shard.
Source: Kafka's TransactionStateManager.loadTransactionMetadata (4.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from barnabas.broker.coordinators import log_replay
from barnabas.broker.coordinators import transaction_records as records
from barnabas.broker.coordinators.shard_core import ShardState
from barnabas.broker.coordinators.transaction_shard import TransactionShard

if TYPE_CHECKING:
    from barnabas.protocol.records.batch import BatchHeader, Record

log = logging.getLogger("barnabas.transaction")


def load(shard: TransactionShard, partition_log: Any, buffer_bytes: int) -> int:
    """Replay the log into the shard, `buffer_bytes` at a time; returns the offset up to which it was read (exclusive).

    Gives up, silently, when the shard is closed meanwhile. Raises ReplayError, ApiError, OSError.
    """

    def take(header: BatchHeader, record: Record) -> None:
        if header.is_control:
            return
        what = None if record.key is None else records.read(record.key, record.value)
        if what is None:
            log.warning("%s: the record at offset %d is of an unknown type: it is skipped", shard.tp, record.offset)
        else:
            shard.replay(*what)

    goes_on = lambda: shard.state is ShardState.LOADING  # noqa: E731
    return log_replay.replay(shard.tp, partition_log, buffer_bytes, take, goes_on).end_offset
