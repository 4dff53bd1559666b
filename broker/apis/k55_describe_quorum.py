"""DescribeQuorum: v0-v2

Behaviour: lists the controllers that vote and observe, and how far each has fetched (KIP-595). Forwarded to the
controller.

Version notes: v1 (KIP-836): times of the last fetch. v2 (KIP-853): directory ids and endpoints.

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


API = Api(55, "DescribeQuorum", (0, 2), handle)
