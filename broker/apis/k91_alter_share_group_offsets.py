"""AlterShareGroupOffsets: v0

Behaviour: lets a share group without members start at other offsets, and creates the group if it does not exist. The
deliveries that were counted before are forgotten. It is answered when the share coordinators have done it.

Errors: UNSUPPORTED_VERSION (share.version is 0), INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND (a group of another kind). Per partition:
UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST (an offset below -1), COORDINATOR_NOT_AVAILABLE, FENCED_STATE_EPOCH.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.share_groups.state_changes import TopicOutcome
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

Topic: TypeAlias = AlterShareGroupOffsetsResponseTopic
Partition: TypeAlias = AlterShareGroupOffsetsResponsePartition


def handle(services: Services, request: Request) -> Reply | Park:
    """Park until the change is made."""
    message: AlterShareGroupOffsetsRequest = request.message
    access = request.access
    try:
        if not services.share_groups.is_enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if access is not None:
            access.require(rights.ALTER_SHARE_OFFSETS, message.group_id)
    except ApiError as error:
        return Reply(_refused(error))
    wanted: dict[str, dict[int, int]] = {}
    for topic in message.topics:
        offsets = {partition.partition_index: partition.start_offset for partition in topic.partitions}
        wanted.setdefault(topic.topic_name, {}).update(offsets)
    hidden: dict[str, Mapping[int, int]] = {}
    if access is not None:
        allowed = access.allowed(rights.ALTER_SHARE_OFFSETS_TOPIC, wanted)
        hidden = {name: wanted.pop(name) for name in list(wanted) if name not in allowed}
    refused = [
        _topic(TopicOutcome(name, errors=dict.fromkeys(offsets, rights.ALTER_SHARE_OFFSETS_TOPIC.error)))
        for name, offsets in hidden.items()
    ]
    deferred = Deferred()

    def answered(outcome: Sequence[TopicOutcome] | ApiError) -> None:
        if isinstance(outcome, ApiError):
            deferred.complete(_refused(outcome))
        else:
            topics = refused + [_topic(topic) for topic in outcome]
            deferred.complete(AlterShareGroupOffsetsResponse(responses=topics))

    services.share_groups.alter_offsets(message.group_id, wanted, answered)
    return Park(deferred)


def _refused(error: ApiError) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message or error.code.message)


def _topic(outcome: TopicOutcome) -> Topic:
    return Topic(
        topic_name=outcome.name,
        topic_id=outcome.topic_id or ZERO_UUID,
        partitions=[
            Partition(partition_index=partition, error_code=error, error_message=error.message if error else None)
            for partition, error in outcome.errors.items()
        ],
    )


API = Api(91, "AlterShareGroupOffsets", (0, 0), handle)
