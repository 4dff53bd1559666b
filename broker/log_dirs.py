"""Describes the log directories and their replicas, for DescribeLogDirs.

Threads: any.
Source: ReplicaManager.describeLogDirs (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.broker.storage.directories.log_directory import LogDirectory
    from barnabas.broker.storage.log.log import Log
    from barnabas.broker.storage.log_manager import LogManager
    from barnabas.common.topic_partition import TopicPartition

_LONG_MAX = 2**63 - 1


class Replica(NamedTuple):
    """One log. `offset_lag` counts from its end to the high watermark; for a future log, to the current log's end."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool = False


class LogDir(NamedTuple):
    """One log directory; `total_bytes` and `usable_bytes` are those of its volume, -1 when it failed.

    A cordoned directory gets no new replicas (KIP-1066).
    """

    path: str
    error: ErrorCode
    replicas: list[Replica]
    total_bytes: int = -1
    usable_bytes: int = -1
    is_cordoned: bool = False


def describe(manager: LogManager, wanted: Collection[TopicPartition] | None, *, can_cordon: bool) -> list[LogDir]:
    """Describe each directory, with its logs of the `wanted` partitions (None: all).

    `can_cordon`: whether the controller can keep replicas from a directory.
    """
    by_directory: dict[str, list[Replica]] = {}

    def add(log: Log, lag: int, is_future: bool) -> None:
        if wanted is None or log.topic_partition in wanted:
            replica = Replica(log.topic_partition, log.size_in_bytes, max(lag, 0), is_future)
            by_directory.setdefault(log.directory.rpartition("/")[0], []).append(replica)

    for log in manager.all_logs():
        add(log, log.high_watermark - log.log_end_offset, False)
    for log in manager.future_logs():
        current = manager.get_log(log.topic_partition)
        add(log, 0 if current is None else current.log_end_offset - log.log_end_offset, True)
    return [
        _describe(directory, by_directory.get(directory.path, []), can_cordon and manager.is_cordoned(directory))
        for directory in manager.directories
    ]


def _describe(directory: LogDirectory, replicas: list[Replica], is_cordoned: bool) -> LogDir:
    if directory.is_offline:
        return LogDir(directory.path, ErrorCode.KAFKA_STORAGE_ERROR, [])
    try:
        total_bytes, usable_bytes = directory.usage()
    except OSError:
        return LogDir(directory.path, ErrorCode.KAFKA_STORAGE_ERROR, [])
    return LogDir(
        directory.path,
        ErrorCode.NONE,
        sorted(replicas),
        min(total_bytes, _LONG_MAX),
        min(usable_bytes, _LONG_MAX),
        is_cordoned,
    )
