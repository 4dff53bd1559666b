"""DescribeLogDirs: v1-v5.

Behaviour: for each log directory of this broker, the partitions in it with size and lag, and the total and usable
bytes of its volume. The lag of a copy on its way there (`is_future_key`) is that behind the current log. `topics` null
asks for all partitions; a directory without any that is wanted is listed all the same.

Version notes: v3 adds a top-level error; v4 total and usable bytes (KIP-827); v5 whether new replicas are kept away
(KIP-1066).

Errors: KAFKA_STORAGE_ERROR for a directory that failed.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from barnabas.broker.answers import Answer, Reply
from barnabas.broker.apis.api import Api
from barnabas.broker.log_dirs import LogDir, describe
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request


def handle(services: Services, request: Request) -> Answer:
    """Describe the directories."""
    topics = request.message.topics
    wanted = None
    if topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions}
    directories = describe(services.log_manager, wanted)
    return Reply(DescribeLogDirsResponse(results=[_result(directory) for directory in directories]))


def _result(directory: LogDir) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=directory.error,
        log_dir=directory.path,
        topics=[
            DescribeLogDirsTopic(
                name=topic,
                partitions=[
                    DescribeLogDirsPartition(
                        partition_index=replica.tp.partition,
                        partition_size=replica.size_bytes,
                        offset_lag=replica.offset_lag,
                        is_future_key=replica.is_future,
                    )
                    for replica in replicas
                ],
            )
            for topic, replicas in groupby(directory.replicas, key=lambda replica: replica.tp.topic)
        ],
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
        is_cordoned=directory.is_cordoned,
    )


API = Api(35, "DescribeLogDirs", (1, 5), handle, operation="DESCRIBE", resource="CLUSTER")
