"""The removed versions of all other APIs: today's lowest version does the work, and the messages are changed.

Behaviour
- OffsetCommit v0 and OffsetFetch v0 kept offsets in ZooKeeper. Here they are the offsets of the group, as in v1: only
  the group's coordinator has them. A partition without an offset is UNKNOWN_TOPIC_OR_PARTITION in OffsetFetch v0, as it
  was. The times in OffsetCommit v1 are ignored: an offset is as old as its commit.
- DescribeConfigs v0 says whether a value is the default instead of its source.
- ACLs of v0 have no pattern type: they are literal ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from barnabas.broker.settings.config_describer import Source
from barnabas.broker.wiring.removed.raising import carry_out, copied, lowering, to_current, to_removed
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.removed import k02_list_offsets as offsets_v0
from barnabas.protocol.removed import k32_describe_configs as configs_v0

if TYPE_CHECKING:
    from barnabas.broker.requests.api import Api
    from barnabas.broker.requests.parking import Answer
    from barnabas.broker.requests.request import Request
    from barnabas.protocol.schema import Message

Change = Callable[[Any], Any]


def handle(api: Api, services: Any, request: Request) -> Answer:
    """Carry out a request of a removed version."""
    raised: Message = TO_CURRENT.get(api.key, to_current)(request.message)
    return carry_out(api, services, request, raised, lowering(to_removed_of(api.key)))


def to_removed_of(api_key: int) -> Change:
    """Return what changes a response of today to one of the removed versions."""
    return TO_REMOVED.get(api_key, to_removed)


def _offset_commit(message: Any) -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=topic.name,
            partitions=[copied(partition, OffsetCommitRequestPartition) for partition in topic.partitions],
        )
        for topic in message.topics
    ]
    return OffsetCommitRequest(
        group_id=message.group_id,
        generation_id_or_member_epoch=message.generation_id_or_member_epoch,
        member_id=message.member_id,
        topics=topics,
    )


def _fetched_offsets(message: Any) -> Message:
    for topic in message.topics:
        for partition in topic.partitions:
            if not partition.error_code and partition.committed_offset < 0:
                partition.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return to_removed(message)


def _described_configs(message: Any) -> configs_v0.DescribeConfigsResponse:
    results = []
    for result in message.results:
        changed = copied(result, configs_v0.DescribeConfigsResult)
        changed.configs = [_config(entry) for entry in result.configs]
        results.append(changed)
    return configs_v0.DescribeConfigsResponse(throttle_time_ms=message.throttle_time_ms, results=results)


def _config(entry: Any) -> configs_v0.DescribeConfigsResourceResult:
    changed: configs_v0.DescribeConfigsResourceResult = copied(entry, configs_v0.DescribeConfigsResourceResult)
    changed.is_default = entry.config_source == Source.DEFAULT
    return changed


def _listed_offsets(message: Any) -> Message:
    """Change an error of the whole request; other answers are made in v0 (`list_offsets`)."""
    row, topic_row = offsets_v0.ListOffsetsPartitionResponse, offsets_v0.ListOffsetsTopicResponse
    topics = [
        topic_row(name=topic.name, partitions=[copied(each, row) for each in topic.partitions])
        for topic in message.topics
    ]
    return offsets_v0.ListOffsetsResponse(topics=topics)


TO_CURRENT: Final[dict[int, Change]] = {ApiKey.OFFSET_COMMIT: _offset_commit}
TO_REMOVED: Final[dict[int, Change]] = {
    ApiKey.LIST_OFFSETS: _listed_offsets,
    ApiKey.OFFSET_FETCH: _fetched_offsets,
    ApiKey.DESCRIBE_CONFIGS: _described_configs,
}
