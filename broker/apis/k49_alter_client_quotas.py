"""AlterClientQuotas: v0-v1

Behaviour: sets and removes quotas of users, client ids and IP addresses. Forwarded to the controller; the response is
sent when this broker has the quotas.

Version notes: v1 flexible.

Errors: those of the controller (INVALID_REQUEST, POLICY_VIOLATION); REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.security_requests import forward
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Forward to the controller."""
    return forward(services, request)


API = Api(49, "AlterClientQuotas", (0, 1), handle)
