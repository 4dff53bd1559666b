"""CreateDelegationToken: v1-v3

Behaviour: creates a delegation token for the client, or for another owner. Forwarded to the controller; the response is
sent when this broker has the token, so it can be used at once.

Version notes: v2 flexible; v3 (KIP-373) names an owner.

Errors: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (a client that is anonymous, or authenticated by a token),
DELEGATION_TOKEN_AUTHORIZATION_FAILED (for another owner), INVALID_PRINCIPAL_TYPE, DELEGATION_TOKEN_AUTH_DISABLED,
POLICY_VIOLATION (the owner has too many); REQUEST_TIMED_OUT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.apis.security_requests import forward, may_use_tokens
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.security.principal import USER_TYPE, Principal, parse_principal

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.requests.request import Request


def handle(services: Services, request: Request) -> Answer:
    """Check what the broker can check, then forward."""
    message: CreateDelegationTokenRequest = request.message
    if not may_use_tokens(request):
        return _refusal(request, ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    owner = f"{message.owner_principal_type}:{message.owner_principal_name}" if message.owner_principal_name else None
    access = request.access
    is_for_another = owner is not None and owner != request.principal
    if is_for_another and access is not None and not access.allows(rights.CREATE_TOKEN, owner or ""):
        return _refusal(request, rights.CREATE_TOKEN.error)
    if any(renewer.principal_type != USER_TYPE for renewer in message.renewers):
        return _refusal(request, ErrorCode.INVALID_PRINCIPAL_TYPE)
    return forward(services, request)


def _refusal(request: Request, error: ErrorCode) -> Reply:
    message: CreateDelegationTokenRequest = request.message
    requester = parse_principal(request.principal)
    owner = requester
    if message.owner_principal_name:
        owner = Principal(message.owner_principal_type or "", message.owner_principal_name)
    response = CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    if request.version >= 3:
        response.token_requester_principal_type = requester.type
        response.token_requester_principal_name = requester.name
    return Reply(response)


API = Api(38, "CreateDelegationToken", (1, 3), handle)
