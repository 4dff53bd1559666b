"""UnregisterBroker: v0

Behaviour: forgets a broker that will not come back (KIP-500): it leaves every ISR, and is told of no more; one that
still runs registers again. Forwarded to the controller.

Errors: those of the controller (BROKER_ID_NOT_REGISTERED); REQUEST_TIMED_OUT.
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


API = Api(64, "UnregisterBroker", (0, 0), handle, operation="ALTER", resource="CLUSTER")
