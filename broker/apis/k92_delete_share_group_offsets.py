"""DeleteShareGroupOffsets: v0

Behaviour: deletes the state of topics in a share group without members: start offsets and deliveries. A member that
subscribes to the topic later starts where `share.auto.offset.reset` says. It is answered when the share coordinators
have done it.

Errors: UNSUPPORTED_VERSION (share.version is 0), INVALID_GROUP_ID, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE, NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND. Per topic: UNKNOWN_TOPIC_OR_PARTITION (also if the group
has no state of it), COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.coordinators.share_groups.state_changes import TopicOutcome
from barnabas.broker.purgatory import Deferred
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

Topic: TypeAlias = DeleteShareGroupOffsetsResponseTopic


def handle(services: Services, request: Request) -> Reply | Park:
    """Park until the state is deleted."""
    message: DeleteShareGroupOffsetsRequest = request.message
    access = request.access
    names = list(dict.fromkeys(topic.topic_name for topic in message.topics))
    allowed = set(names)
    try:
        if not services.share_groups.is_enabled:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        if access is not None:
            access.require(rights.DELETE_SHARE_OFFSETS, message.group_id)
            allowed = set(access.allowed(rights.DELETE_SHARE_OFFSETS_TOPIC, names))
    except ApiError as error:
        return Reply(_refused(error))
    hidden = rights.DELETE_SHARE_OFFSETS_TOPIC.error
    refused = [
        _topic(TopicOutcome(name, error=hidden, message=hidden.message)) for name in names if name not in allowed
    ]
    deferred = Deferred()

    def answered(outcome: Sequence[TopicOutcome] | ApiError) -> None:
        if isinstance(outcome, ApiError):
            deferred.complete(_refused(outcome))
        else:
            topics = refused + [_topic(topic) for topic in outcome]
            deferred.complete(DeleteShareGroupOffsetsResponse(responses=topics))

    services.share_groups.delete_offsets(message.group_id, [name for name in names if name in allowed], answered)
    return Park(deferred)


def _refused(error: ApiError) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message or error.code.message)


def _topic(outcome: TopicOutcome) -> Topic:
    return Topic(
        topic_name=outcome.name,
        topic_id=outcome.topic_id,
        error_code=outcome.error,
        error_message=outcome.message,
    )


API = Api(92, "DeleteShareGroupOffsets", (0, 0), handle)
