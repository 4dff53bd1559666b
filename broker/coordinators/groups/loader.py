"""Loads a partition of __consumer_offsets into its shard when this broker becomes its leader.

Rules
1. The log is read up to its end, in order: a later record of a key replaces an earlier one. An offset record or a
   marker takes effect when the high watermark has passed it, and no offset of its group is served before.
2. Skipped, as in Kafka: records of types that are unknown, since they may be left over from a newer version, or
   obsolete. They stay in the log. A record without a key has no meaning and is skipped too. The first record of each
   unknown type, and the first without a key, are logged.
3. A record of a known type that cannot be read fails the load. Skipping it would serve an older offset, or an older
   group, than the acknowledged one.
4. Offsets of transactions take effect once their marker is read.

Threads: `group-metadata-manager-0`, the only thread that touches a loading shard.
Source: Kafka's CoordinatorLoaderImpl (4.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from barnabas.broker.coordinators.offsets import records
from barnabas.broker.coordinators.runtime import log_replay
from barnabas.broker.coordinators.runtime.shard_life import ShardState
from barnabas.protocol.records.batch import NO_PRODUCER_ID, ControlType, parse_control_type

if TYPE_CHECKING:
    from barnabas.broker.coordinators.groups.shard import Shard
    from barnabas.broker.storage.log.log import Log
    from barnabas.protocol.records.batch import BatchHeader, Record

log = logging.getLogger("barnabas.group")

NO_KEY: Final = "no key"


def load(shard: Shard, partition_log: Log, buffer_bytes: int) -> int:
    """Replay the log into the shard, `buffer_bytes` at a time; returns the number of records read.

    Stops early, without an error, when the shard is closed meanwhile. Raises ReplayError, ApiError, OSError.
    """
    take = _RecordReader(shard, partition_log.high_watermark)

    def goes_on() -> bool:
        return shard.state is ShardState.LOADING

    return log_replay.replay(shard.tp, partition_log, buffer_bytes, take, goes_on).records


class _RecordReader:
    """Replays records into a shard."""

    def __init__(self, shard: Shard, high_watermark: int) -> None:
        self._shard = shard
        self._high_watermark = high_watermark
        self._skipped: set[int | str] = set()  # types of which one record was logged

    def __call__(self, header: BatchHeader, record: Record) -> None:
        shard = self._shard
        is_committed = record.offset < self._high_watermark
        if header.is_control:
            kind = parse_control_type(record.key)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                shard.replay_marker(header.producer_id, kind is ControlType.COMMIT, record.offset, is_committed)
        elif record.key is None:
            self._skip(NO_KEY, record.offset)
        elif (parsed := records.read(record.key, record.value, record.offset)) is None:
            self._skip(records.type_of(record.key), record.offset)
        else:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            shard.replay(parsed, producer_id, record.offset, is_committed)

    def _skip(self, kind: int | str, offset: int) -> None:
        if kind not in self._skipped and kind not in records.TYPES_NOT_IMPLEMENTED:
            self._skipped.add(kind)
            log.warning(
                "%s: the record at offset %d is skipped, as are others like it: its type (%s) is unknown",
                self._shard.tp, offset, kind,
            )  # fmt: skip
