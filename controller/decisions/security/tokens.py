"""Delegation tokens: created, renewed, expired by clients, and removed when their time is up.

The log holds no secret: a token's HMAC is derived from its id by `delegation.token.secret.key`.

Source: DelegationTokenControlManager (Kafka 4.3); KIP-48, KIP-373. Different: there, a user may fill the memory of all
nodes with tokens. Here an owner has `barnabas.delegation.tokens.per.owner.max` at most. An expired one counts until it
is removed.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from barnabas.common import digests
from barnabas.common.ids import random_uuid, uuid_to_string
from barnabas.controller.decision import Decision, View, check_item_count
from barnabas.controller.image import METADATA_VERSION
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages import k38_create_delegation_token as create_wire
from barnabas.protocol.messages import k39_renew_delegation_token as renew_wire
from barnabas.protocol.messages import k40_expire_delegation_token as expire_wire
from barnabas.protocol.metadata_records import MetadataRecord, RemoveDelegationTokenRecord
from barnabas.security.image import token_record
from barnabas.security.principal import USER_TYPE, Principal, parse_principal
from barnabas.security.tokens import token_hmac
from barnabas.security.values import TokenInformation

log = logging.getLogger("barnabas.controller")

VERSION_3_6_IV2: Final = 14  # the first version with delegation tokens
TIMESTAMP_MAX: Final = (1 << 63) - 1
_SHOWN_MAX: Final = 300  # characters of a name in the log


class Caller(NamedTuple):
    """The client of a request, and when the decision is made."""

    principal: str
    now_ms: int
    #: The id for a new token, drawn by the broker that forwards the request; None: it is drawn here.
    token_id: bytes | None = None


def secret_key(view: View) -> str | None:
    """Return the secret of all tokens; None: there are none in this cluster."""
    secret = view.config.delegation_token_secret_key
    return None if secret is None else str(secret.value)


def create_token(
    view: View, request: create_wire.CreateDelegationTokenRequest, caller: Caller
) -> Decision[create_wire.CreateDelegationTokenResponse]:
    """Create a token for the caller, or for another owner (which needs a right of its own).

    A request that a broker has sent twice, since its connection was lost, has one token, and the same answer.
    """
    check_item_count(len(request.renewers))
    requester = parse_principal(caller.principal)
    owner = owner_of(request, caller.principal)
    response = create_wire.CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
    )
    error = _disabled(view)
    secret = secret_key(view)
    if secret is None or error:
        response.error_code = error
        return Decision([], response)
    if any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        response.error_code = ErrorCode.INVALID_PRINCIPAL_TYPE
        return Decision([], response)
    token_id = uuid_to_string(random_uuid() if caller.token_id is None else caller.token_id)
    former = view.image.security.tokens.get(token_id)
    if former is not None:
        if (former.owner, former.requester) != (str(owner), caller.principal):
            response.error_code = ErrorCode.INVALID_REQUEST  # another broker's id cannot be guessed
            return Decision([], response)
        return Decision([], _created(response, former, secret))
    if _count(view, str(owner)) >= int(view.config.barnabas_delegation_tokens_per_owner_max):
        # Why not at INFO: a client can repeat it for ever, and the request log has a line.
        log.debug("refused a delegation token for %s, which has too many", ascii(str(owner)[:_SHOWN_MAX]))
        response.error_code = ErrorCode.POLICY_VIOLATION
        return Decision([], response)
    lifetime_ms = int(view.config.delegation_token_max_lifetime_ms)
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    max_timestamp_ms = _sum(caller.now_ms, lifetime_ms)
    token = TokenInformation(
        token_id=token_id,
        owner=str(owner),
        requester=caller.principal,
        renewers=tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers),
        issue_timestamp_ms=caller.now_ms,
        max_timestamp_ms=max_timestamp_ms,
        expiry_timestamp_ms=min(
            max_timestamp_ms, _sum(caller.now_ms, int(view.config.delegation_token_expiry_time_ms))
        ),
    )
    return Decision([token_record(token)], _created(response, token, secret))


def _created(
    response: create_wire.CreateDelegationTokenResponse, token: TokenInformation, secret: str
) -> create_wire.CreateDelegationTokenResponse:
    """Fill the answer to the creation of a token."""
    response.issue_timestamp_ms = token.issue_timestamp_ms
    response.expiry_timestamp_ms = token.expiry_timestamp_ms
    response.max_timestamp_ms = token.max_timestamp_ms
    response.token_id = token.token_id
    response.hmac = token_hmac(secret, token.token_id)
    return response


def _count(view: View, owner: str) -> int:
    return sum(token.owner == owner for token in view.image.security.tokens.values())


def owner_of(request: create_wire.CreateDelegationTokenRequest, requester: str) -> Principal:
    """Return the principal that a new token is for: the requester, if the request names nobody."""
    if request.owner_principal_name:
        return Principal(request.owner_principal_type or "", request.owner_principal_name)
    return parse_principal(requester)


def renew_token(
    view: View, request: renew_wire.RenewDelegationTokenRequest, caller: Caller
) -> Decision[renew_wire.RenewDelegationTokenResponse]:
    """Let a token live longer, but not longer than its maximum."""
    token = _find(view, request.hmac)
    error = _disabled(view) or _end_of(token, caller) or _refusal(token, caller)
    if token is None or error:
        return Decision([], renew_wire.RenewDelegationTokenResponse(error_code=error))
    period_ms = int(view.config.delegation_token_expiry_time_ms)
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    expiry_ms = min(token.max_timestamp_ms, _sum(caller.now_ms, period_ms))
    record = token_record(token._replace(expiry_timestamp_ms=expiry_ms))
    return Decision([record], renew_wire.RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms))


def expire_token(
    view: View, request: expire_wire.ExpireDelegationTokenRequest, caller: Caller
) -> Decision[expire_wire.ExpireDelegationTokenResponse]:
    """Let a token end at a time; a negative period removes it at once, even if its time is up already."""
    token = _find(view, request.hmac)
    is_now = request.expiry_time_period_ms < 0
    error = _disabled(view) or _refusal(token, caller) or (ErrorCode.NONE if is_now else _end_of(token, caller))
    if token is None or error:
        return Decision([], expire_wire.ExpireDelegationTokenResponse(error_code=error))
    record: MetadataRecord
    if is_now:
        expiry_ms = caller.now_ms
        record = RemoveDelegationTokenRecord(token_id=token.token_id)
    else:
        expiry_ms = min(token.max_timestamp_ms, _sum(caller.now_ms, request.expiry_time_period_ms))
        record = token_record(token._replace(expiry_timestamp_ms=expiry_ms))
    return Decision([record], expire_wire.ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms))


def expired_tokens(view: View, now_ms: int, count_max: int) -> list[TokenInformation]:
    """Return tokens whose time is up, at most `count_max`."""
    found: list[TokenInformation] = []
    for token in view.image.security.tokens.values():
        if len(found) >= count_max:
            break
        if token.is_expired(now_ms):
            found.append(token)
    return found


def _disabled(view: View) -> ErrorCode:
    """Return why there are no tokens in this cluster, NONE if there are."""
    if secret_key(view) is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if view.image.features.get(METADATA_VERSION, 0) < VERSION_3_6_IV2:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _refusal(token: TokenInformation | None, caller: Caller) -> ErrorCode:
    """Return why the caller may not change a token, NONE if it may."""
    if token is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    may_renew = token.can_be_renewed_by(caller.principal)
    return ErrorCode.NONE if may_renew else ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


def _end_of(token: TokenInformation | None, caller: Caller) -> ErrorCode:
    """Return DELEGATION_TOKEN_EXPIRED for a token whose time is up, else NONE."""
    is_over = token is not None and token.is_expired(caller.now_ms)
    return ErrorCode.DELEGATION_TOKEN_EXPIRED if is_over else ErrorCode.NONE


def _find(view: View, wanted: bytes) -> TokenInformation | None:
    """Return the token of an HMAC; every comparison takes the same time."""
    secret = secret_key(view)
    if secret is None:
        return None
    for token in view.image.security.tokens.values():
        if digests.is_equal(token_hmac(secret, token.token_id), bytes(wanted)):
            return token
    return None


def _sum(now_ms: int, duration_ms: int) -> int:
    return min(now_ms + duration_ms, TIMESTAMP_MAX)
