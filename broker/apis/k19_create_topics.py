"""CreateTopics: v2-v7

Behaviour: forwarded to the controller, which places the replicas. The response is sent when this broker's metadata
cache shows the new topics, or after timeout_ms.

Version notes: v4 (KIP-464): -1 for defaults. v5 (KIP-525): the created topic's configs. v7: topic ids.

Errors: those of the controller (TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, ...); REQUEST_TIMED_OUT.

Different from Apache Kafka: a KRaft broker answers before its own cache has the topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.protocol.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Forward, then wait until the topics are visible."""
    message: CreateTopicsRequest = request.message

    def is_visible(answer: CreateTopicsResponse) -> bool:
        topics = services.metadata_cache.snapshot.topics
        return all(
            topic.name in topics and len(topics[topic.name].partitions) >= topic.num_partitions
            for topic in answer.topics
            if not topic.error_code
        )

    names = [topic.name for topic in message.topics]
    timeout_ms = 0 if message.validate_only else message.timeout_ms
    return services.forwarding.forward(request, topics=names, is_visible=is_visible, timeout_ms=timeout_ms)


API = Api(19, "CreateTopics", (2, 7), handle)
