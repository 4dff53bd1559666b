"""AlterUserScramCredentials: v0-v0

Behaviour: sets and removes SCRAM credentials of users (KIP-554). Forwarded to the controller; the response is sent when
this broker has the credentials, so a user can log in at once.

Errors: those of the controller (RESOURCE_NOT_FOUND, DUPLICATE_RESOURCE, UNACCEPTABLE_CREDENTIAL,
UNSUPPORTED_SASL_MECHANISM); REQUEST_TIMED_OUT.
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


API = Api(51, "AlterUserScramCredentials", (0, 0), handle)
