"""CreatePartitions: v0-v3

Behaviour: adds partitions to topics. They are placed like those of a new topic, or as the client assigns them.

Version notes: v3 (KIP-599) throttling by error.

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
INVALID_REQUEST, POLICY_VIOLATION, REQUEST_TIMED_OUT, THROTTLING_QUOTA_EXCEEDED.
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
from barnabas.controller.decisions.topics import create_partitions

STRICT_QUOTA_SINCE: Final = 3


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the creation."""
    message, access = request.message, request.access
    may_alter = everything if access is None else partial(access.allows, rights.CREATE_PARTITIONS_TOPIC)
    return decide_within_quota(
        services,
        request,
        "createPartitions",
        lambda view, charge: create_partitions(view, message, charge, may_alter),
        strict_since=STRICT_QUOTA_SINCE,
    )


API = Api(37, "CreatePartitions", (0, 3), handle, is_forwarded=True)
