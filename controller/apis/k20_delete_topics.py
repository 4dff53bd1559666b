"""DeleteTopics: v1-v6

Behaviour
- A topic is gone for the controller at once; brokers delete their replicas when the push (StopReplica) reaches them,
  and one that is down finds out when it returns: a FULL LeaderAndIsr does not name the topic, or names another id.

Version notes: v6 (KIP-516) topics by id.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST, TOPIC_DELETION_DISABLED, REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.topics import delete_topics


def handle(services: ControllerServices, request: Request) -> Answer:
    """Have the topics deleted."""
    message, version = request.message, request.header.api_version
    return decide_later(
        services, "deleteTopics", lambda view: delete_topics(view, message, version), same, message.timeout_ms
    )


API = Api(20, "DeleteTopics", (1, 6), handle, operation="DELETE", resource="TOPIC")
