"""ListPartitionReassignments: v0-v0

Behaviour: lists the ongoing reassignments (KIP-455). Forwarded to the controller.

Version notes: none.

Errors: those of the controller; REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Forward to the controller."""
    return services.forwarding.forward(request)


API = Api(46, "ListPartitionReassignments", (0, 0), handle)
