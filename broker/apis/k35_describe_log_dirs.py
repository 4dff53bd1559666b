"""DescribeLogDirs: v1-v5.

Behaviour: lists each log directory of this broker with the size and lag of its partitions, and the total and usable
bytes of its volume. The lag of a copy that is being made (`is_future_key`) is counted from the current log. `topics`
null requests all partitions. A directory without any requested partition is listed as well.

Version notes: v3 adds a top-level error; v4 total and usable bytes (KIP-827); v5 whether the directory is cordoned, so
that it gets no new replicas (KIP-1066); below metadata.version 4.3-IV0 none is.

Errors: KAFKA_STORAGE_ERROR for a directory that failed.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from barnabas.broker.log_dirs import LogDir, describe
from barnabas.broker.metadata.features import VERSION_4_3_IV0
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.common.topic_partition import TopicPartition
from barnabas.protocol.messages.k35_describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Describe the directories."""
    topics = request.message.topics
    wanted = None
    if topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in topics for index in topic.partitions}
    level = services.metadata_cache.finalized_features.levels.get("metadata.version", 0)
    directories = describe(services.log_manager, wanted, can_cordon=level >= VERSION_4_3_IV0)
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


API = Api(35, "DescribeLogDirs", (1, 5), handle)
