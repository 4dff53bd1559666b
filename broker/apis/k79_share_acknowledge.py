"""ShareAcknowledge: v1-v2

Behaviour: a member of a share group accepts (1), releases (2), rejects (3) or renews (4) records that it holds; 0 is an
offset without a record. A type holds for a whole batch of offsets, or there is one for each. The request is the next
one of the member's share session; with epoch -1 it is the last: what the member still holds is released. The response
is sent when the new states are written.

Version notes: v2 renewal (KIP-1222), and the response has the duration of acquisition locks.

Errors: UNSUPPORTED_VERSION (share.version is 0), INVALID_REQUEST, SHARE_SESSION_NOT_FOUND,
INVALID_SHARE_SESSION_EPOCH, GROUP_AUTHORIZATION_FAILED; of a partition: INVALID_RECORD_STATE (the member does not hold
these records), INVALID_REQUEST, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION (also where this broker does not deliver
the partition to the group), TOPIC_AUTHORIZATION_FAILED, NOT_LEADER_OR_FOLLOWER, COORDINATOR_NOT_AVAILABLE.

Different from Apache Kafka: with one record that a member does not hold, nothing of its partition changes, renewals
neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.share_requests import Acknowledging, Places, acknowledgements_of, member_of, redirect
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer, Continuation
from barnabas.broker.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Member
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.messages.k79_share_acknowledge import (
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Apply the acknowledgements; answer when they are written."""
    message: ShareAcknowledgeRequest = request.message
    member = member_of(services, message)
    if message.share_session_epoch == INITIAL_EPOCH:
        raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    services.share_partitions.sessions.step(member, message.share_session_epoch)
    named = [place for place, _ in acknowledgements_of(message.topics)]
    places = Places(services, request, rights.SHARE_ACKNOWLEDGE_TOPIC, named)
    acknowledging = Acknowledging(services, request, member, places)
    return Continuation(acknowledging.wait, lambda: _respond(services, request, member, places, acknowledging))


def _respond(
    services: Services, request: Request, member: Member, places: Places, acknowledging: Acknowledging
) -> Reply:
    if request.message.share_session_epoch == FINAL_EPOCH:
        services.share_partitions.end_session(member)
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    nodes: dict[int, NodeEndpoint] = {}
    for place, outcome in acknowledging.outcomes().items():
        topic = topics.setdefault(place.topic_id, ShareAcknowledgeTopicResponse(topic_id=place.topic_id, partitions=[]))
        data = PartitionData(
            partition_index=place.partition, error_code=outcome.error, error_message=outcome.message or None
        )
        redirect(services, request, places.topic(place), data, nodes, NodeEndpoint)
        topic.partitions.append(data)
    limits = services.share_partitions.settings.of(member.group_id).limits
    return Reply(
        ShareAcknowledgeResponse(
            acquisition_lock_timeout_ms=limits.lock_duration_ms,
            responses=list(topics.values()),
            node_endpoints=list(nodes.values()),
        )
    )


API = Api(79, "ShareAcknowledge", (1, 2), handle)
