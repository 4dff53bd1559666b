"""AlterPartitionReassignments: v0-v1

Behaviour: moves partitions to other replicas, or cancels such a move (KIP-455). Forwarded to the controller.

Version notes: v1: allow_replication_factor_change.

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


API = Api(45, "AlterPartitionReassignments", (0, 1), handle)
