"""Loads a partition of __share_group_state into its shard when this broker becomes its leader.

Rules
1. The log is read up to its end, in order.
2. Records of an unknown type, and records without a key, are skipped with a warning, as in Kafka. A record of share
   state that cannot be read fails the load: a shard that is offline is better than one that forgets acknowledgements.

Threads: `share-state-manager-0`, the only thread that touches a loading shard.
Source: Kafka's CoordinatorLoaderImpl (4.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.coordinators.runtime import log_replay
from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.broker.coordinators.share_state import records

if TYPE_CHECKING:
    from barnabas.broker.coordinators.share_state.shard import ShareStateShard
    from barnabas.broker.storage.log.log import Log
    from barnabas.protocol.records.batch import BatchHeader, Record

log = logging.getLogger("barnabas.share-state")


def load(shard: ShareStateShard, partition_log: Log, buffer_bytes: int) -> int:
    """Replay the log into the shard, `buffer_bytes` at a time; returns the offset up to which it was read (exclusive).

    Stops early, without an error, when the shard is closed meanwhile. Raises ReplayError, ApiError, OSError.
    """
    has_skipped = False

    def take(header: BatchHeader, record: Record) -> None:
        nonlocal has_skipped
        if header.is_control:
            return
        parsed = None if record.key is None else records.read(record.key, record.value)
        if parsed is not None:
            shard.replay(*parsed, record.offset)
        elif not has_skipped:
            has_skipped = True
            log.warning(
                "%s: the record at offset %d is of an unknown type: it is skipped, as are others like it",
                shard.tp, record.offset,
            )  # fmt: skip

    def goes_on() -> bool:
        return shard.state is ShardState.LOADING

    return log_replay.replay(shard.tp, partition_log, buffer_bytes, take, goes_on).end_offset
