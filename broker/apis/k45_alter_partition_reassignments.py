"""AlterPartitionReassignments: v0-v1

Behaviour: moves partitions to other replicas, or cancels that (KIP-455); forwarded to the controller.

Version notes: v1: allow_replication_factor_change.

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


API = Api(45, "AlterPartitionReassignments", (0, 1), handle, operation="ALTER", resource="CLUSTER")
