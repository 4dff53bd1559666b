"""ElectLeaders: v0-v2

Behaviour: elects the preferred replica of partitions as leader, or any live one if requested. Forwarded to the
controller.

Version notes: v1: unclean elections (KIP-460). v2: flexible.

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


API = Api(43, "ElectLeaders", (0, 2), handle)
