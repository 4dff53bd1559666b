"""UpdateFeatures: v0-v2

Behaviour: changes the cluster's finalized feature levels, such as transaction.version. Forwarded to the controller.

Version notes: v1 (KIP-584): validate_only, upgrade types. v2: no results for single features.

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


API = Api(57, "UpdateFeatures", (0, 2), handle)
