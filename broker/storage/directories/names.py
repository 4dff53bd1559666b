"""Kafka's names of files and directories in a log directory.

A segment's file is named by its base offset in 20 digits and a suffix. A file that is about to be deleted, cleaned or
swapped in has a second suffix. A partition's directory is `topic-N`. One that is to be deleted is renamed to
`topic-N.<32 hex digits>-delete`, a stray one (`strays.py`) to `topic-N.<32 hex digits>-stray`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from barnabas.common.ids import uuid4
from barnabas.common.topic_partition import TopicPartition

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
CHECKPOINT_SUFFIX = ".checkpoint"  # of a snapshot of the metadata
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETE_DIR_SUFFIX = "-delete"
FUTURE_DIR_SUFFIX = "-future"
STRAY_DIR_SUFFIX = "-stray"

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
BOOT_ID_FILE = ".boot_id"  # ours: Kafka ignores it
META_PROPERTIES_FILE = "meta.properties"
STRAY_NOTE_FILE = "stray.json"  # ours: Kafka ignores it
PARTITION_METADATA_FILE = "partition.metadata"
LEADER_EPOCH_FILE = "leader-epoch-checkpoint"
TXN_INDEX_FILE = "txn-index-checkpoint"  # ours: Kafka ignores it
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_FILE = "log-start-offset-checkpoint"
LOG_START_OFFSET_COPY = "log-start-offset-checkpoint.copy"
HIGH_WATERMARK_FILE = "replication-offset-checkpoint"
CLEANER_OFFSET_FILE = "cleaner-offset-checkpoint"
PUSH_STATE_FILE = "push-state-checkpoint"  # ours: Kafka ignores it (push_state.py)
METADATA_COPY_FILE = "metadata-copy-checkpoint"  # ours: Kafka ignores it (recovery_report.py)

METADATA_LOG_DIR = "__cluster_metadata-0"
NAME_LENGTH_MAX = 255

OFFSET_MAX = 2**63 - 1
PARTITION_MAX = 2**31 - 1

_MARKED_DIR = re.compile(r"^(\S+)-([0-9]+)\.(\S+)-(delete|future|stray)$")
_DIR = re.compile(r"^(.+)-([0-9]+)$")


#: Returns one object for equal texts, if they come soon after each other. Why not `sys.intern`: some interpreters keep
#: what it returns for ever, as CPython 3.12 does, and topics and segments come and go.
shared: Final[Callable[[str], str]] = lru_cache(1024)(str)


def shared_parts(path: str) -> tuple[str, str]:
    """Return the directory and the name of a file, each one object for the files that have it.

    For objects that thousands of logs have: a path takes more memory than all else in an index without entries.
    """
    directory, _, name = path.rpartition("/")
    return shared(directory), shared(name)


def segment_file(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of one of a segment's files; `suffix` may be two, as `.log.deleted`."""
    return f"{directory}/{base_offset:020d}{suffix}"


def offset_of_file(name: str) -> int | None:
    """Return the offset at the beginning of a file's name; None if there is none, or if no offset could follow it."""
    digits = name.partition(".")[0]
    if not (digits.isascii() and digits.isdigit()):
        return None
    offset = int(digits)
    return offset if offset < OFFSET_MAX else None


def partition_dir_name(tp: TopicPartition) -> str:
    """Return the name of a partition's directory."""
    return f"{tp.topic}-{tp.partition}"


def delete_dir_name(tp: TopicPartition) -> str:
    """Return a new name for a partition's directory that is to be deleted; a long topic name is cut to fit."""
    return _marked(tp, DELETE_DIR_SUFFIX)


def stray_dir_name(tp: TopicPartition) -> str:
    """Return a new name for a partition's stray directory; a long topic name is cut to fit."""
    return _marked(tp, STRAY_DIR_SUFFIX)


def _marked(tp: TopicPartition, mark: str) -> str:
    suffix = f"-{tp.partition}.{uuid4().hex()}{mark}"
    return tp.topic[: NAME_LENGTH_MAX - len(suffix)] + suffix


def future_dir_name(tp: TopicPartition) -> str:
    """Return a new name for the directory of a partition's future log, which moves to another log directory."""
    return f"{tp.topic}-{tp.partition}.{uuid4().hex()}{FUTURE_DIR_SUFFIX}"


def is_delete_dir(name: str) -> bool:
    """Return whether a directory waits to be deleted."""
    return name.endswith(DELETE_DIR_SUFFIX) and _MARKED_DIR.match(name) is not None


def is_future_dir(name: str) -> bool:
    """Return whether a directory holds a future log, which moves here from another log directory."""
    return name.endswith(FUTURE_DIR_SUFFIX) and _MARKED_DIR.match(name) is not None


def is_stray_dir(name: str) -> bool:
    """Return whether a directory holds a stray log."""
    return name.endswith(STRAY_DIR_SUFFIX) and _MARKED_DIR.match(name) is not None


def parse_dir_name(name: str) -> TopicPartition | None:
    """Return the partition that a directory belongs to; None if it is not a partition's name."""
    match = _MARKED_DIR.match(name)
    if match is None and not name.endswith((DELETE_DIR_SUFFIX, FUTURE_DIR_SUFFIX, STRAY_DIR_SUFFIX)):
        match = _DIR.match(name)
    partition = int(match.group(2)) if match else PARTITION_MAX + 1
    return TopicPartition(shared(match.group(1)), partition) if match and partition <= PARTITION_MAX else None


def base_name(path: str) -> str:
    """Return the last component of a path."""
    return os.path.basename(path)
