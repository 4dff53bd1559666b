"""Tells what lies in the log directories: the substance of DescribeLogDirs.

Threads: any.
Source: ReplicaManager.describeLogDirs (Kafka 4.3).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.common.topic_partition import TopicPartition
    from broker.storage.log import Log

_LONG_MAX = 2**63 - 1


class Replica(NamedTuple):
    """One log. `offset_lag`: how far the log ends below the high watermark."""

    tp: TopicPartition
    size_bytes: int
    offset_lag: int


class LogDir(NamedTuple):
    """One log directory; `total_bytes` and `usable_bytes` are those of its volume, -1 when it failed."""

    path: str
    error: ErrorCode
    replicas: list[Replica]
    total_bytes: int = -1
    usable_bytes: int = -1


def describe(
    directories: Iterable[str | Path],
    logs: Iterable[Log],
    offline: Collection[Path],
    wanted: Collection[TopicPartition] | None,
) -> list[LogDir]:
    """Describe each directory, with those of its logs that are wanted (None: all)."""
    by_directory: dict[Path, list[Log]] = {}
    for log in logs:
        if wanted is None or log.topic_partition in wanted:
            by_directory.setdefault(Path(log.directory).parent.resolve(), []).append(log)
    away = {Path(path).resolve() for path in offline}
    result = []
    for directory in dict.fromkeys(Path(directory).absolute() for directory in directories):
        resolved = directory.resolve()
        if resolved in away:
            result.append(LogDir(str(directory), ErrorCode.KAFKA_STORAGE_ERROR, []))
        else:
            result.append(_describe(directory, by_directory.get(resolved, [])))
    return result


def _describe(directory: Path, logs: list[Log]) -> LogDir:
    try:
        volume = os.statvfs(directory)
    except OSError:
        return LogDir(str(directory), ErrorCode.KAFKA_STORAGE_ERROR, [])
    replicas = [
        Replica(log.topic_partition, log.size_in_bytes, max(log.high_watermark - log.log_end_offset, 0)) for log in logs
    ]
    return LogDir(
        str(directory),
        ErrorCode.NONE,
        sorted(replicas),
        min(volume.f_blocks * volume.f_frsize, _LONG_MAX),
        min(volume.f_bavail * volume.f_frsize, _LONG_MAX),
    )
