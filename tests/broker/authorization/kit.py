"""Authorizers with a few ACLs, and a broker that asks them: for tests of rights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.broker.apis.table import TABLE
from barnabas.broker.authorization.authorizer import Authorizer
from barnabas.broker.authorization.row import Row
from barnabas.broker.authorization.table import BROKER_RIGHTS, FORWARDED, NO_RIGHTS, Rights
from barnabas.broker.requests.answers import Close, Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.parking import Park
from barnabas.broker.requests.request import Request, RequestContext
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ApiError, ErrorCode
from barnabas.protocol.headers import RequestHeader
from barnabas.protocol.messages import response_class
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.protocol.schema import Message
from barnabas.security.acls.index import AclIndex
from barnabas.security.acls.rules import AclRules
from barnabas.security.values import (
    ANY_NAME,
    CLUSTER_NAME,
    AclBinding,
    AclOperation,
    PatternType,
    PermissionType,
    ResourceType,
)
from tests.support.broker.parked import Waiting

ALICE = "User:alice"
ROOT = "User:root"
HOST = "10.1.2.3"
HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")


def acl(
    operation: AclOperation,
    resource: ResourceType,
    name: str = ANY_NAME,
    permission: PermissionType = PermissionType.ALLOW,
    principal: str = ALICE,
) -> AclBinding:
    """An ACL of a literal pattern."""
    given = (resource, name, PatternType.LITERAL, principal, "*", operation, permission)
    return AclBinding(repr(given).encode(), *given)


def allowed(row: Row, name: str = ANY_NAME) -> AclBinding:
    """What gives the right of a row."""
    return acl(row.operation, row.resource, name)


def denied(row: Row, name: str = ANY_NAME) -> AclBinding:
    """What takes the right of a row away."""
    return acl(row.operation, row.resource, name, PermissionType.DENY)


def authorizer(
    acls: Iterable[AclBinding] | None = (), *, default: bool = True, rights: Rights = BROKER_RIGHTS
) -> Authorizer:
    """An authorizer; by default everything is allowed that no ACL is about. `acls` None: they have not arrived."""
    index = None if acls is None else AclIndex(acls)
    rules = AclRules(index, frozenset({ROOT}), allows_by_default=default)
    return Authorizer(rules, rights, FORWARDED.union(NO_RIGHTS))


def lacking(*rows: Row, name: str = ANY_NAME, rights: Rights = BROKER_RIGHTS) -> Authorizer:
    """An authorizer by which a client has every right but these."""
    everything = [acl(AclOperation.ALL, resource) for resource in (*ResourceType,)[2:]]
    names = [CLUSTER_NAME if row.resource is ResourceType.CLUSTER else name for row in rows]
    taken = [denied(row, which) for row, which in zip(rows, names, strict=True)]
    return authorizer([*everything, *taken], default=False, rights=rights)


def make_request(message: Message, version: int, principal: str = ALICE, *, is_for_clients: bool = False) -> Request:
    """A request as a client of this version sends it."""
    sent = type(message).decode(message.encode(version), version)
    context = RequestContext("PLAINTEXT", "PLAINTEXT", HOST, 5, "c", principal, is_for_clients)
    request = Request.for_message(RequestHeader(message.API_KEY, version, 7, "client"), sent, context)
    request.api = TABLE.get(message.API_KEY)
    return request


def ask(
    services: Any, message: Message, version: int, by: Authorizer | None, api: Api | None = None, **about: Any
) -> Any:
    """Carry a request out as the dispatcher does; returns what the client of the version decodes, or a Close."""
    request = make_request(message, version, **about)
    row = TABLE[message.API_KEY] if api is None else api
    try:
        answer = None if by is None else by.admit(row, request)
        answer = answer or row.handle(services, request)
        if isinstance(answer, Park):
            waiting = Waiting(request, lambda key: services.complete_all_delayed([key]))
            waiting.wait(answer)
            assert waiting.response is not None, "the request waits"
            response = waiting.response
        else:
            response = answer.message if isinstance(answer, Reply) else answer
    except ApiError as error:
        response = error_response(request.message, version, error.code, error.message)
    if isinstance(response, ApiError):
        response = error_response(request.message, version, response.code, response.message)
    if isinstance(response, Close):
        return response
    return response_class(message.API_KEY).decode(response.encode(version), version)


def admit(by: Authorizer, message: Any = HEARTBEAT, version: int = 4, **about: Any) -> Any:
    """A request that an authorizer has admitted."""
    request = make_request(message, version, **about)
    by.admit(TABLE[message.API_KEY], request)
    return request


def is_admitted(by: Authorizer, message: Any = HEARTBEAT, **about: Any) -> bool:
    """Whether an authorizer admits a request to a group."""
    try:
        admit(by, message, **about)
    except ApiError as error:
        return error.code != ErrorCode.GROUP_AUTHORIZATION_FAILED
    return True
