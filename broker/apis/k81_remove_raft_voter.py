"""RemoveRaftVoter: v0-v0

Behaviour: makes a voter an observer (KIP-853). Forwarded to the controller.

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


API = Api(81, "RemoveRaftVoter", (0, 0), handle)
