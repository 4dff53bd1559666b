"""CreateTopics: v2-v7

Behaviour
- All topics of a request are one atomic batch. Topics with errors are left out of it and reported one by one.
- The response is sent once the batch is durable. A broker that forwarded the request then waits for the topics.

Version notes: v5 (KIP-525) configs, counts; v6 throttling by error; v7 topic id.

Errors: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR,
INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST, POLICY_VIOLATION, REQUEST_TIMED_OUT,
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
from barnabas.controller.decisions.topics import create_topics

STRICT_QUOTA_SINCE: Final = 6


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the creation."""
    message = request.message
    may_create = may_see_configs = everything
    if (access := request.access) is not None:
        if not access.allows(rights.CREATE_ANY_TOPIC):
            may_create = partial(access.allows, rights.CREATE_TOPIC)
        may_see_configs = partial(access.allows, rights.SEE_CREATED_CONFIGS)
    return decide_within_quota(
        services,
        request,
        "createTopics",
        lambda view, charge: create_topics(view, message, charge, may_create, may_see_configs),
        strict_since=STRICT_QUOTA_SINCE,
    )


API = Api(19, "CreateTopics", (2, 7), handle, is_forwarded=True)
