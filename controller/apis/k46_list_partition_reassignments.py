"""ListPartitionReassignments: v0

Behaviour: lists what is under way, after everything that was asked for before.
"""

from __future__ import annotations

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.request_channel import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.decision import Decision
from barnabas.controller.reassignment import list_reassignments


def handle(services: ControllerServices, request: Request) -> Answer:
    """List the reassignments."""
    message = request.message
    return decide_later(
        services,
        "listPartitionReassignments",
        lambda view: Decision([], list_reassignments(view.image, message)),
        same,
        message.timeout_ms,
    )


API = Api(46, "ListPartitionReassignments", (0, 0), handle, operation="DESCRIBE", resource="CLUSTER")
