"""ListPartitionReassignments: v0

Behaviour: lists the reassignments in progress, including the effects of all earlier requests.
"""

from __future__ import annotations

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices, decide_later, same
from barnabas.controller.decision import Decision
from barnabas.controller.decisions.reassignment import list_reassignments


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the query, which runs after the events before it."""
    message = request.message
    return decide_later(
        services,
        "listPartitionReassignments",
        lambda view: Decision([], list_reassignments(view.image, message)),
        same,
    )


API = Api(46, "ListPartitionReassignments", (0, 0), handle, is_forwarded=True)
