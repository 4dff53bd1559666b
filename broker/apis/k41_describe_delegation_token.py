"""DescribeDelegationToken: v1-v3

Behaviour: lists delegation tokens, with their HMACs. `owners` null asks for all that the client may see; an empty list
is answered with an empty list. A client sees the tokens that it owns or may renew. Others it sees if it may describe
them, which everybody may without an authorizer.

Version notes: v2 flexible; v3 (KIP-373) adds the requester.

Errors: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED (a client that is anonymous, or authenticated by a token),
DELEGATION_TOKEN_AUTH_DISABLED.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.broker.apis.security_requests import may_use_tokens
from barnabas.broker.authorization import broker_rows as rights
from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k41_describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from barnabas.security.principal import parse_principal
from barnabas.security.tokens import token_hmac
from barnabas.security.values import TokenInformation

if TYPE_CHECKING:
    from barnabas.broker.apis.services import Services
    from barnabas.broker.authorization.row import Row
    from barnabas.broker.requests.request import Request
    from barnabas.config.config import Config
    from barnabas.security.image import SecurityImage


class TokenRights(NamedTuple):
    """The rights to see tokens that the client neither owns nor may renew; one of them is enough."""

    of_token: Row
    of_owner: Row


RIGHTS: Final = TokenRights(rights.DESCRIBE_TOKEN, rights.DESCRIBE_TOKENS_OF)


def handle(services: Services, request: Request) -> Reply:
    """Return the requested tokens that the client may see."""
    return answer(request, services.config, services.security.image, RIGHTS)


def answer(request: Request, config: Config, image: SecurityImage, needed: TokenRights) -> Reply:
    """Return the requested tokens of an image that the client may see; also for controllers."""
    message: DescribeDelegationTokenRequest = request.message
    secret = config.delegation_token_secret_key
    if not may_use_tokens(request):
        return Reply(DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED))
    if secret is None:
        return Reply(DescribeDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
    owners = None
    if message.owners is not None:
        owners = {f"{owner.principal_type}:{owner.principal_name}" for owner in message.owners}
    tokens = [
        _described(token, token_hmac(secret.value, token.token_id), request.version)
        for token in image.tokens.values()
        if _is_requested(token, owners) and _may_describe(request, token, needed)
    ]
    return Reply(DescribeDelegationTokenResponse(tokens=tokens))


def _is_requested(token: TokenInformation, owners: set[str] | None) -> bool:
    return owners is None or token.owner in owners or not owners.isdisjoint(token.renewers)


def _may_describe(request: Request, token: TokenInformation, needed: TokenRights) -> bool:
    """Return whether the client may see a token: its own, or one that the authorizer lets it describe."""
    access = request.access
    if access is None or token.can_be_renewed_by(request.principal):
        return True
    return access.allows(needed.of_token, token.token_id) or access.allows(needed.of_owner, token.owner)


def _described(token: TokenInformation, hmac: bytes, version: int) -> DescribedDelegationToken:
    owner, requester = parse_principal(token.owner), parse_principal(token.requester)
    described = DescribedDelegationToken(
        principal_type=owner.type,
        principal_name=owner.name,
        issue_timestamp=token.issue_timestamp_ms,
        expiry_timestamp=token.expiry_timestamp_ms,
        max_timestamp=token.max_timestamp_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in map(parse_principal, token.renewers)
        ],
    )
    if version >= 3:
        described.token_requester_principal_type = requester.type
        described.token_requester_principal_name = requester.name
    return described


API = Api(41, "DescribeDelegationToken", (1, 3), handle)
