"""AlterPartitionReassignments: v0-v1

Behaviour: starts, replaces or cancels reassignments (KIP-455). They complete by themselves: see reassignment.py.

Version notes: v1 (KIP-860) may forbid a change of the replication factor.

Errors: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR,
NO_REASSIGNMENT_IN_PROGRESS, REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_once, same
from barnabas.controller.decisions.reassignment import alter_reassignments


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    message = request.message
    return decide_once(
        services,
        request,
        "alterPartitionReassignments",
        lambda view: alter_reassignments(view, message),
        same,
        message.timeout_ms,
    )


API = Api(45, "AlterPartitionReassignments", (0, 1), handle, is_forwarded=True)
