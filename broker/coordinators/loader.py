"""Reads a partition of __consumer_offsets into its shard when this broker becomes its leader.

Rules
1. Everything up to the log end is read, in order: a later record of a key replaces an earlier one. What an offset
   record or a marker says counts once the high watermark has passed it, and no offset is told before.
2. Skipped, as Kafka does: records of kinds of groups that are not built (of share groups and streams groups) and of
   kinds that nobody knows, which may be left over from a newer version. They stay in the log. A record without a key
   says nothing and is skipped too. Of kinds nobody knows, and of records without key, the first is logged.
3. A record of a kind we know that cannot be read fails the load: to skip it would tell an older offset, or an older
   group, than the one that was acknowledged.
4. Offsets of transactions count once their marker is read.

Threads: `group-metadata-manager-0`, the only one that touches a loading shard.
Source: Kafka's CoordinatorLoaderImpl (4.3).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.coordinators import log_replay
from barnabas.broker.coordinators import offset_records as records
from barnabas.broker.coordinators.shard_core import ShardCore, ShardState
from barnabas.protocol.records.batch import ControlType, parse_control_type

if TYPE_CHECKING:
    from barnabas.protocol.records.batch import BatchHeader, Record

log = logging.getLogger("barnabas.group")

NO_PRODUCER_ID: Final = -1
NO_KEY: Final = "no key"


def load(shard: ShardCore, partition_log: Any, buffer_bytes: int) -> int:
    """Replay the log into the shard, `buffer_bytes` at a time; returns how many records were read.

    Gives up, silently, when the shard is closed meanwhile. Raises ReplayError, ApiError, OSError.
    """
    take = _Take(shard, partition_log.high_watermark)
    goes_on = lambda: shard.state is ShardState.LOADING  # noqa: E731
    return log_replay.replay(shard.tp, partition_log, buffer_bytes, take, goes_on).records


class _Take:
    """Takes records over into a shard."""

    def __init__(self, shard: ShardCore, high_watermark: int) -> None:
        self._shard = shard
        self._high_watermark = high_watermark
        self._skipped: set[int | str] = set()  # kinds of which one was logged

    def __call__(self, header: BatchHeader, record: Record) -> None:
        shard = self._shard
        is_committed = record.offset < self._high_watermark
        if header.is_control:
            kind = parse_control_type(record.key)
            if kind in (ControlType.COMMIT, ControlType.ABORT):
                shard.replay_marker(header.producer_id, kind is ControlType.COMMIT, record.offset, is_committed)
        elif record.key is None:
            self._skip(NO_KEY, record.offset)
        elif (what := records.read(record.key, record.value, record.offset)) is None:
            self._skip(records.type_of(record.key), record.offset)
        else:
            producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
            shard.replay(what, producer_id, record.offset, is_committed)

    def _skip(self, kind: int | str, offset: int) -> None:
        if kind not in self._skipped and kind not in records.TYPES_NOT_BUILT:
            self._skipped.add(kind)
            log.warning(
                "%s: the record at offset %d is skipped, as are others like it: its type (%s) is unknown",
                self._shard.tp, offset, kind,
            )  # fmt: skip
