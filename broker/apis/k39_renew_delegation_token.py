"""RenewDelegationToken: v1-v2

Behaviour: extends the life of a delegation token, which the client names by its HMAC. Only the token's owner and its
renewers may. Forwarded to the controller; the response is sent when this broker has the change.

Version notes: v2 flexible.

Errors: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (a client that is anonymous, or authenticated by a token); those of the
controller (DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH,
DELEGATION_TOKEN_AUTH_DISABLED); REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.security_requests import forward, may_use_tokens
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k39_renew_delegation_token import RenewDelegationTokenResponse

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Forward, unless the client may not use tokens."""
    if not may_use_tokens(request):
        error = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        return Reply(RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=-1))
    return forward(services, request)


API = Api(39, "RenewDelegationToken", (1, 2), handle)
