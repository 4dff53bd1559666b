"""What is done to all logs from time to time: retention, flushing, expiry of producers. Kafka's periodic tasks.

Threads: the scheduler's.
Source: Kafka's LogManager.startup, cleanupLogs, flushDirtyLogs, 4.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.storage.retention import delete_old_segments as apply_retention
from barnabas.protocol.errors import ApiError

if TYPE_CHECKING:
    from barnabas.broker.storage.log import Log

log = logging.getLogger("barnabas.storage.log_manager")


def delete_old_segments(logs: list[Log], now_ms: int) -> int:
    """Apply retention to every log; returns how many segments were deleted."""
    return sum(quietly(found, lambda target: apply_retention(target, now_ms)) for found in logs)


def flush_dirty_logs(logs: list[Log], now_ms: int) -> None:
    """Flush the logs whose flush.ms has passed since their last flush."""
    for found in logs:
        if now_ms - found.last_flushed_ms >= found.config.flush_ms and found.unflushed_messages:
            quietly(found, flush)


def quietly(target: Log, job: Callable[[Log], int]) -> int:
    """Run a job on one log; its failure must not keep the others from their turn."""
    try:
        return job(target)
    except ApiError as error:
        if not target.is_offline:
            log.warning("background work on %s failed: %s", target.topic_partition, error)
        return 0


def flush(target: Log) -> int:
    target.flush()
    return 0


def close(target: Log) -> int:
    target.close()
    return 0


def flush_and_close(target: Log) -> int:
    target.flush()
    target.close()
    return 0
