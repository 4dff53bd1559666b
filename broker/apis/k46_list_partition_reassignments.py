"""ListPartitionReassignments: v0-v0

Behaviour: lists the reassignments under way (KIP-455); forwarded to the controller.

Version notes: none.

Errors: those of the controller; REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.answers import Answer
from barnabas.broker.apis.api import Api
from barnabas.broker.forwarding import forward

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.request_channel import Request


def handle(services: Services, request: Request) -> Answer:
    """Forward."""
    return forward(services, request)


API = Api(46, "ListPartitionReassignments", (0, 0), handle, operation="DESCRIBE", resource="CLUSTER")
