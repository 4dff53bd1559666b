"""AddRaftVoter: v0-v1

Behaviour: makes a controller a voter (KIP-853). Forwarded to the controller.

Version notes: v1: the answer may come before the change is committed.

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


API = Api(80, "AddRaftVoter", (0, 1), handle)
