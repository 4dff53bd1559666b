"""AlterReplicaLogDirs: v1-v2.

Behaviour: each partition starts to move to the log directory that lists it. The response is sent at once;
DescribeLogDirs shows the copy (`is_future_key`) until it has replaced the current log. A partition that this broker
does not hold yet will be created in that directory; it gets REPLICA_NOT_AVAILABLE all the same.

Version notes: v2: flexible.

Errors, of a partition: LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR (the directory, or any other, is offline);
INVALID_REPLICA_ASSIGNMENT (the directory is cordoned, KIP-1066); REPLICA_NOT_AVAILABLE; UNKNOWN_TOPIC_OR_PARTITION;
INVALID_TOPIC_EXCEPTION (the name is too long for a future log); INVALID_REQUEST (too many that do not exist yet).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

log = logging.getLogger("barnabas.replication")


def handle(services: Services, request: Request) -> Answer:
    """Start the moves."""
    wanted = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.message.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    failures: list[str] = []
    for tp, path in wanted.items():
        results.setdefault(tp.topic, []).append(
            AlterReplicaLogDirPartitionResult(
                partition_index=tp.partition, error_code=_move(services, tp, path, failures)
            )
        )
    if failures:  # Why one line for all: a request may name a million partitions
        log.warning("cannot move %d partitions, the first: %s", len(failures), failures[0])
    return Reply(
        AlterReplicaLogDirsResponse(
            results=[
                AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions)
                for topic, partitions in results.items()
            ]
        )
    )


def _move(services: Services, tp: TopicPartition, path: str, failures: list[str]) -> ErrorCode:
    """Start one move; an unexpected error is added to `failures`."""
    try:
        services.log_dir_moves.move(tp, path)
    except ApiError as error:
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        failures.append(f"{str(tp)[:300]!r} to {path[:300]!r}: {error}")
        return error.code
    return ErrorCode.NONE


API = Api(34, "AlterReplicaLogDirs", (1, 2), handle)
