"""DescribeShareGroupOffsets: v0-v1

Behaviour: returns the start offsets of share partitions: of those that are named, or (topics null) of all that the
group has. It is answered when the share coordinators have. A partition without state has the offset -1, which is no
error. Any broker answers for named topics; only the group's coordinator knows all.

Version notes: v1 the lag: records from the start offset on that are neither acknowledged nor archived; -1 if unknown.

Errors per group: UNSUPPORTED_VERSION (share.version is 0), NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
INVALID_GROUP_ID, INVALID_REQUEST (the groups up to this one have more than 100,000 partitions together). Per partition:
the errors of ListOffsets at its leader.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.share_groups.requests import NO_LAG, TOO_MANY, TopicOffsets
from barnabas.broker.coordinators.share_state.values import NO_START_OFFSET
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.gathering import Gathering
from barnabas.broker.requests.parking import Park
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.access import Access
    from barnabas.broker.requests.request import Request

Group: TypeAlias = DescribeShareGroupOffsetsResponseGroup
Topic: TypeAlias = DescribeShareGroupOffsetsResponseTopic
Partition: TypeAlias = DescribeShareGroupOffsetsResponsePartition


#: Why a bound: a group's name is a few bytes, and stands for all its partitions, each of which is asked for.
PARTITIONS_MAX: Final = 100_000


def handle(services: Services, request: Request) -> Park:
    """Park until every group is answered."""
    message: DescribeShareGroupOffsetsRequest = request.message
    deferred = Deferred()
    gathering: Gathering[int, Group] = Gathering(
        len(message.groups),
        lambda found: deferred.complete(
            DescribeShareGroupOffsetsResponse(groups=[found[index] for index in sorted(found)])
        ),
    )
    left = PARTITIONS_MAX
    for index, group in enumerate(message.groups):
        left -= _describe(services, request.access, group, partial(gathering.add, index), left)
    return Park(deferred)


def _describe(
    services: Services,
    access: Access | None,
    asked: DescribeShareGroupOffsetsRequestGroup,
    answer: partial[None],
    left: int,
) -> int:
    """Answer for a group, which may have so many partitions (< 0: the request had too many); return how many it has."""
    group_id = asked.group_id
    try:
        if left < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, TOO_MANY)
        if not services.share_groups.is_enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if access is not None:
            access.require(rights.DESCRIBE_SHARE_OFFSETS, group_id)
    except ApiError as error:
        answer(_refused(group_id, error))
        return 0
    wanted = _wanted(asked)
    hidden: dict[str, list[int]] = {}
    if access is not None and wanted is not None:
        allowed = access.allowed(rights.DESCRIBE_SHARE_OFFSETS_TOPIC, wanted)
        hidden = {name: wanted.pop(name) for name in list(wanted) if name not in allowed}

    def answered(found: Sequence[TopicOffsets] | ApiError) -> None:
        if isinstance(found, ApiError):
            answer(_refused(group_id, found))
            return
        if access is not None and wanted is None:
            # Why renewed: the share coordinators were waited for.
            allowed = access.renewed().allowed(rights.DESCRIBE_SHARE_OFFSETS_ALL, {topic.name for topic in found})
            found = [topic for topic in found if topic.name in allowed]
        topics = [_topic(topic) for topic in found]
        answer(Group(group_id=group_id, topics=topics + [_hidden(name, ids) for name, ids in hidden.items()]))

    return services.share_groups.describe_offsets(group_id, wanted, answered, left)


def _wanted(asked: DescribeShareGroupOffsetsRequestGroup) -> dict[str, list[int]] | None:
    """Return the named partitions by topic; None: all."""
    if asked.topics is None:
        return None
    wanted: dict[str, list[int]] = {}
    for topic in asked.topics:
        wanted.setdefault(topic.topic_name, []).extend(topic.partitions)
    return wanted


def _refused(group_id: str, error: ApiError) -> Group:
    return Group(group_id=group_id, error_code=error.code, error_message=error.message or error.code.message)


def _topic(found: TopicOffsets) -> Topic:
    return Topic(
        topic_name=found.name,
        topic_id=found.topic_id,
        partitions=[
            Partition(
                partition_index=partition,
                start_offset=offsets.start_offset,
                leader_epoch=offsets.leader_epoch,
                lag=offsets.lag,
                error_code=offsets.error,
                error_message=offsets.error.message if offsets.error else None,
            )
            for partition, offsets in sorted(found.partitions.items())
        ],
    )


def _hidden(name: str, partitions: Collection[int]) -> Topic:
    error = rights.DESCRIBE_SHARE_OFFSETS_TOPIC.error
    return Topic(
        topic_name=name,
        topic_id=ZERO_UUID,
        partitions=[
            Partition(
                partition_index=partition, start_offset=NO_START_OFFSET, lag=NO_LAG, error_code=error,
                error_message=error.message,
            )
            for partition in sorted(set(partitions))
        ],
    )  # fmt: skip


API = Api(90, "DescribeShareGroupOffsets", (0, 1), handle)
