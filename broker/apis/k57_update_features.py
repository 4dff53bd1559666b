"""UpdateFeatures: v0-v2

Behaviour: changes the feature levels that the cluster has agreed on, transaction.version for one; forwarded to the
controller.

Version notes: v1 (KIP-584) validate_only, upgrade types; v2 answers for the whole only.

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


API = Api(57, "UpdateFeatures", (0, 2), handle, operation="ALTER", resource="CLUSTER")
