"""CreatePartitions: v0-v3

Behaviour: forwarded to the controller. The response is sent when this broker's metadata cache shows the new partitions,
or after timeout_ms.

Version notes: v1: throttling. v2: flexible. v3 (KIP-599): the client knows THROTTLING_QUOTA_EXCEEDED.

Errors: those of the controller (UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
REASSIGNMENT_IN_PROGRESS, ...); REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Forward, then wait until the partitions are visible."""
    message: CreatePartitionsRequest = request.message
    counts = {topic.name: topic.count for topic in message.topics}

    def is_visible(answer: CreatePartitionsResponse) -> bool:
        snapshot = services.metadata_cache.snapshot
        return all(
            (snapshot.partition_count(result.name) or 0) >= counts.get(result.name, 0)
            for result in answer.results
            if not result.error_code
        )

    timeout_ms = 0 if message.validate_only else message.timeout_ms
    return services.forwarding.forward(request, topics=list(counts), is_visible=is_visible, timeout_ms=timeout_ms)


API = Api(37, "CreatePartitions", (0, 3), handle)
