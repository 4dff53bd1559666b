"""CreateDelegationToken: v1-v3

Behaviour: creates a delegation token (KIP-48). Its HMAC is in the response only; the log has its id.

Errors: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (a client that is anonymous, or authenticated by a token),
DELEGATION_TOKEN_AUTH_DISABLED (no secret is configured), UNSUPPORTED_VERSION (the metadata.version is too old);
INVALID_PRINCIPAL_TYPE; DELEGATION_TOKEN_AUTHORIZATION_FAILED (for another owner); POLICY_VIOLATION (the owner has too
many).

Different from Apache Kafka: it refuses every request that came over a PLAINTEXT controller listener, even if the client
authenticated to the broker that forwarded it.
"""

from __future__ import annotations

from barnabas.broker.authorization import controller_rows as rights
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Answer
from barnabas.broker.requests.request import Request
from barnabas.controller.apis.services import ControllerServices
from barnabas.controller.apis.token_requests import decide_for_caller
from barnabas.controller.decision import Decision, View
from barnabas.controller.decisions.security.tokens import Caller, create_token, owner_of
from barnabas.protocol.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

REQUESTER_FROM = 3  # the first version that tells who requested a token


def handle(services: ControllerServices, request: Request) -> Answer:
    """Submit the change."""
    access = request.access

    def create(
        view: View, message: CreateDelegationTokenRequest, caller: Caller
    ) -> Decision[CreateDelegationTokenResponse]:
        owner = str(owner_of(message, caller.principal))
        if access is not None and owner != caller.principal:
            access.require(rights.CREATE_TOKEN, owner)
        decision = create_token(view, message, caller)
        if request.version < REQUESTER_FROM:
            decision.response.token_requester_principal_type = decision.response.token_requester_principal_name = ""
        return decision

    return decide_for_caller(services, request, create, keeps_answer=False)


API = Api(38, "CreateDelegationToken", (1, 3), handle, is_forwarded=True)
