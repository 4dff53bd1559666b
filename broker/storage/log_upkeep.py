"""The periodic work on all logs: retention and flushing (Kafka's background tasks).

Threads: the scheduler's.
Source: Kafka's LogManager.startup, cleanupLogs, flushDirtyLogs, 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from barnabas.broker.storage.log.log import Log
from barnabas.broker.storage.log.retention import delete_old_segments as apply_retention
from barnabas.protocol.errors import ApiError

log = logging.getLogger("barnabas.storage.log_manager")


def delete_old_segments(logs: list[Log], now_ms: int) -> int:
    """Apply retention to every log; returns how many segments were deleted."""
    return sum(quietly(found, lambda target: apply_retention(target, now_ms)) for found in logs)


def flush_dirty_logs(logs: list[Log], now_ms: int) -> None:
    """Flush the logs whose flush.ms has passed since their last flush."""
    for found in logs:
        if now_ms - found.last_flushed_ms >= found.config.flush_ms and found.unflushed_messages:
            quietly(found, Log.flush)


def quietly(target: Log, job: Callable[[Log], int | None]) -> int:
    """Run a job on one log and return its result, if any; logs a failure, so that other logs are not affected."""
    try:
        return job(target) or 0
    except ApiError as error:
        if not target.is_offline:
            log.warning("background work on %s failed: %s", target.topic_partition, error)
        return 0


def flush_and_close(target: Log) -> None:
    """Flush and close a log; raises ApiError."""
    target.flush()
    target.close()
