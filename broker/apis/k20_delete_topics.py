"""DeleteTopics: v1-v6

Behaviour: forwarded to the controller. The response is sent when this broker's metadata cache no longer has the topics,
or after timeout_ms.

Version notes: v5: error messages. v6 (KIP-516): by topic id.

Errors: those of the controller (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, TOPIC_DELETION_DISABLED, ...);
REQUEST_TIMED_OUT.

Different from Apache Kafka: a KRaft broker answers before its own cache has dropped the topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.common.ids import ZERO_UUID
from barnabas.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request

TOPICS_FROM = 6


def handle(services: Services, request: Request) -> Answer:
    """Forward, then wait until the topics are gone."""
    message: DeleteTopicsRequest = request.message
    snapshot = services.metadata_cache.snapshot
    names = list(message.topic_names)
    if request.version >= TOPICS_FROM:
        names = [topic.name or snapshot.topic_name(topic.topic_id) or "" for topic in message.topics]
    ids = {name: snapshot.topic_id(name) for name in names}

    def is_visible(answer: DeleteTopicsResponse) -> bool:
        now = services.metadata_cache.snapshot
        deleted = [result.name or "" for result in answer.responses if not result.error_code]
        return all(ids.get(name, ZERO_UUID) == ZERO_UUID or now.topic_id(name) != ids[name] for name in deleted)

    return services.forwarding.forward(request, topics=names, is_visible=is_visible, timeout_ms=message.timeout_ms)


API = Api(20, "DeleteTopics", (1, 6), handle)
