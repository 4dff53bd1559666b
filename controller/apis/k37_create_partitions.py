"""CreatePartitions: v0-v3

Behaviour: adds partitions to topics. They are placed like those of a new topic, or as the client assigns them.

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
INVALID_REQUEST, POLICY_VIOLATION, REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.decisions.topics import create_partitions


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the creation."""
    message = request.message
    return decide_later(
        services, "createPartitions", lambda view: create_partitions(view, message), same, message.timeout_ms
    )


API = Api(37, "CreatePartitions", (0, 3), handle, operation="ALTER", resource="TOPIC")
