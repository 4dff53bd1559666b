"""Loads every partition of a log directory at start, in `num.recovery.threads.per.data.dir` threads.

After a clean stop a partition costs a few small reads. After a crash everything past its recovery point is checked
(`recovery.py`).

Threads: the starting one and `log-recovery-<directory>-<n>`, which end when the directory is loaded. At the stop,
`log-closing-<directory>-<n>` likewise.
Source: Kafka's LogManager.loadLogs, 4.3.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from barnabas.broker.storage.directories.checkpoints import CorruptCheckpointError, OffsetCheckpoint
from barnabas.broker.storage.directories.log_directory import LogDirectory, LogDirectoryError
from barnabas.broker.storage.directories.names import METADATA_LOG_DIR, is_stray_dir, parse_dir_name
from barnabas.common.threads import ServiceThread
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, MalformedMessageError

log = logging.getLogger("barnabas.storage.log_manager")

Job = TypeVar("Job")


class Found:
    """A partition's directory and its offsets in the checkpoints."""

    __slots__ = (
        "directory",
        "is_clean",
        "log_start_offset",
        "may_have_gaps",
        "may_have_holes",
        "name",
        "recovery_point",
        "tp",
    )

    def __init__(
        self,
        directory: LogDirectory,
        name: str,
        tp: TopicPartition,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        is_clean: bool = True,
        may_have_holes: bool = False,
        may_have_gaps: bool = False,
    ) -> None:
        self.directory = directory
        self.name = name
        self.tp = tp
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.is_clean = is_clean  # the last stop was clean: there is nothing to recover
        self.may_have_holes = may_have_holes  # a loss of power may have taken the end of a segment, and left the next
        self.may_have_gaps = may_have_gaps  # it is in the cleaner's file, so no later start looks for holes


def load_directory(directory: LogDirectory, load: Callable[[Found], None], thread_count: int) -> None:
    """Call `load` with each partition of a directory, in threads; raises the first error.

    The files are input: every failure is an OSError that names the log, so that it ends this directory and no other.
    LogDirectoryError is raised if a person must fix the cause before a start.
    """
    is_clean = directory.take_clean_shutdown()
    recovery_points = _read(directory.recovery_points)
    starts = _read(directory.log_start_offsets) or {}
    # The logs that the cleaner may have left gaps in. If that is not known, or what was flushed, or if no power was
    # lost, gaps are left alone.
    compacted = _read(directory.clean_offsets)
    looks_for_holes = (
        compacted is not None and not is_clean and recovery_points is not None and directory.may_have_lost_power()
    )
    jobs = []
    for name in directory.partition_names():
        tp = parse_dir_name(name)
        if tp is not None and name != METADATA_LOG_DIR and not is_stray_dir(name):
            jobs.append(
                Found(
                    directory,
                    name,
                    tp,
                    log_start_offset=starts.get(tp, 0),
                    recovery_point=(recovery_points or {}).get(tp, 0),
                    is_clean=is_clean,
                    may_have_holes=looks_for_holes and tp not in (compacted or {}),
                    may_have_gaps=compacted is None or tp in compacted,
                )
            )
        elif tp is None:
            log.warning("%s/%s is not a partition's directory and is ignored", directory.path, name)
    if jobs:
        stop = "a clean" if is_clean else "an unclean"
        log.info("Loading %d logs of %s after %s stop", len(jobs), directory.path, stop)
    else:  # a new directory was never stopped
        log.info("%s holds no logs", directory.path)
    in_threads(f"log-recovery-{directory.path}", jobs, partial(_load, load), thread_count)


def _load(load: Callable[[Found], None], found: Found) -> None:
    try:
        load(found)
    except (OSError, LogDirectoryError):
        raise
    except Exception as error:
        what = str(error) if isinstance(error, ApiError | MalformedMessageError) else f"{type(error).__name__}: {error}"
        raise OSError(f"{found.directory.path}/{found.name}: {what}") from error


def in_threads(name: str, jobs: list[Job], work_on: Callable[[Job], object], thread_count: int) -> None:
    """Do the jobs in `thread_count` threads, the calling one included; stops at the first error and raises it."""
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    errors: list[BaseException] = []

    def work() -> None:
        while not errors:
            try:
                job = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                work_on(job)
            except (OSError, ApiError, LogDirectoryError) as error:
                errors.append(error)

    threads = [
        ServiceThread(f"{name}-{number}", f"{name.partition('-/')[0]}-{number}", work)
        for number in range(1, min(len(jobs), thread_count))
    ]
    for thread in threads:
        thread.start()
    work()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def _read(checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int] | None:
    """Read a checkpoint; None if it is damaged, so that everything is checked."""
    try:
        return checkpoint.read()
    except CorruptCheckpointError as error:
        log.warning("%s; starting without it", error)
        return None
