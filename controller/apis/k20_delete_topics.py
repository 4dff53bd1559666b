"""DeleteTopics: v1-v6

Behaviour
- The controller removes the topic at once. Brokers delete their replicas when the push (StopReplica) reaches them. A
  broker that is down learns of the deletion when it returns: the FULL LeaderAndIsr does not name the topic id.

Version notes: v6 (KIP-516) topics by id.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST, TOPIC_DELETION_DISABLED, REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.decisions.topics import delete_topics


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the deletion."""
    message, version = request.message, request.header.api_version
    return decide_later(
        services, "deleteTopics", lambda view: delete_topics(view, message, version), same, message.timeout_ms
    )


API = Api(20, "DeleteTopics", (1, 6), handle, operation="DELETE", resource="TOPIC")
