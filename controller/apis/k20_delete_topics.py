"""DeleteTopics: v1-v6

Behaviour
- The controller removes the topic at once. Brokers delete their replicas when the push (StopReplica) reaches them. A
  broker that is down learns of the deletion when it returns: the FULL LeaderAndIsr does not name the topic id.

Version notes: v5 (KIP-599) throttling by error; v6 (KIP-516) topics by id.

Errors: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INVALID_REQUEST, TOPIC_DELETION_DISABLED, REQUEST_TIMED_OUT,
THROTTLING_QUOTA_EXCEEDED.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from barnabas.broker.authorization import controller_rows as rights
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_within_quota
from barnabas.controller.decision import everything
from barnabas.controller.decisions.topics import delete_topics

STRICT_QUOTA_SINCE: Final = 5


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the deletion."""
    message, version = request.message, request.header.api_version
    may_describe = may_delete = everything
    if (access := request.access) is not None and not access.allows(rights.DELETE_ANY_TOPIC):
        may_describe = partial(access.allows, rights.SEE_DELETED_TOPIC)
        may_delete = partial(access.allows, rights.DELETE_TOPIC)
    return decide_within_quota(
        services,
        request,
        "deleteTopics",
        lambda view, charge: delete_topics(view, message, version, charge, may_describe, may_delete),
        strict_since=STRICT_QUOTA_SINCE,
    )


API = Api(20, "DeleteTopics", (1, 6), handle, is_forwarded=True)
