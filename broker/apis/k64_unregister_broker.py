"""UnregisterBroker: v0

Behaviour: removes a broker that will not come back (KIP-500). It leaves every ISR and disappears from the metadata. A
broker that still runs registers again. Forwarded to the controller.

Errors: those of the controller (BROKER_ID_NOT_REGISTERED); REQUEST_TIMED_OUT.
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


API = Api(64, "UnregisterBroker", (0, 0), handle)
