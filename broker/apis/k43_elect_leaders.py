"""ElectLeaders: v0-v2

Behaviour: elects the preferred (or, if told so, any living) replica of partitions as leader; forwarded to the
controller.

Version notes: v1: unclean elections (KIP-460). v2: flexible.

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


API = Api(43, "ElectLeaders", (0, 2), handle, operation="ALTER", resource="CLUSTER")
