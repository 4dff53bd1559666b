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

    __slots__ = ("directory", "is_clean", "log_start_offset", "name", "recovery_point", "tp")

    def __init__(
        self,
        directory: LogDirectory,
        name: str,
        tp: TopicPartition,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        is_clean: bool = True,
    ) -> None:
        self.directory = directory
        self.name = name
        self.tp = tp
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.is_clean = is_clean  # the last stop was clean: there is nothing to recover


def load_directory(directory: LogDirectory, load: Callable[[Found], None], thread_count: int) -> None:
    """Call `load` with each partition of a directory, in threads; raises the first error.

    The files are input: every failure is an OSError that names the log, so that it ends this directory and no other.
    LogDirectoryError is raised if a person must fix the cause before a start.
    """
    is_clean = directory.take_clean_shutdown()
    recovery_points = _read_or_empty(directory.recovery_points)
    starts = _read_or_empty(directory.log_start_offsets)
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
                    recovery_point=recovery_points.get(tp, 0),
                    is_clean=is_clean,
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


def _read_or_empty(checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
    """Read a checkpoint; a damaged one counts as empty, so that everything is checked."""
    try:
        return checkpoint.read()
    except CorruptCheckpointError as error:
        log.warning("%s; starting without it", error)
        return {}
