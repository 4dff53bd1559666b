"""ListPartitionReassignments: v0

Behaviour: lists what is under way, after everything that was asked for before.
"""

from __future__ import annotations

from broker.answers import Answer
from broker.apis.api import Api
from broker.request_channel import Request
from controller.apis.services import ControllerServices, decide_later, same
from controller.decision import Decision
from controller.reassignment import list_reassignments


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
