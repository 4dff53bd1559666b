"""Envelope: v0

Behaviour
- A broker forwards a client's admin request (KIP-590): the unchanged request with its header, and the client's
  principal and address. It is handled, and authorized, as if the client had sent it here. Its response returns in the
  same way. Only a node may send one: the authorizer demands CLUSTER_ACTION of the sender.
- Only requests that clients may send to a controller are accepted (`is_forwarded` in their rows).

- Changes of voters and DescribeQuorum are for the leader of the quorum. Another controller answers the envelope with
  NOT_CONTROLLER, as for decisions: the broker, not the client, looks for the leader.
- Tag 10011 says which request of the broker this is. One that was carried out already is answered again
  (controller/forwarded/once.py).
- Tag 10001 of the response is the metadata offset that the effect of the request has at most, of those that are pushed.
  The forwarding broker waits for it where a client expects to see the effect at once.

Errors: INVALID_REQUEST (the inner request cannot be parsed, or may not be forwarded), NOT_CONTROLLER (another
controller is active), PRINCIPAL_DESERIALIZATION_FAILURE. Errors of the inner request are in its own response.
"""

from __future__ import annotations

import ipaddress
import logging
import zlib
from typing import Any, Final

from barnabas.broker.requests.answers import Ending, Reply
from barnabas.broker.requests.api import Api, nodes_only
from barnabas.broker.requests.parking import Answer, then
from barnabas.broker.requests.request import ANONYMOUS, Request, RequestContext
from barnabas.controller.apis.services import ControllerServices, check_cluster
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.data.principal import DefaultPrincipalData
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ApiError, EncodeError, ErrorCode, MalformedMessageError
from barnabas.protocol.headers import decode_request_header, response_parts
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.k58_envelope import EnvelopeResponse
from barnabas.protocol.push_tags import attempt_of, set_offset, token_id_of
from barnabas.protocol.schema import Message

log = logging.getLogger("barnabas.controller.envelope")

_FOR_THE_LEADER: Final = frozenset({ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER})

_SIZE_BYTES: Final = 4
_VERSION_BYTES: Final = 2


def handle(services: ControllerServices, request: Request) -> Answer:
    """Handle the inner request, and put its response into an envelope."""
    check_cluster(services, request)
    epoch = services.controller.epoch  # Why first: a handler may take its time, and the lead may go and come back
    inner, api = _open(services, request, epoch)
    log.debug(
        "%s of %s at %s, forwarded by %s",
        api.name, inner.context.principal, inner.context.client_address, request.context.client_address,
    )  # fmt: skip

    def refuse(error: ApiError) -> Reply:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise error  # of the envelope: the broker, not the client, tries another controller
        return Reply(_error(api, inner, error))

    def enclosed(given: Ending) -> Reply:
        return _enclosed(services, api, inner, given)

    try:
        if request.access is not None and request.access.authorizer.admit(api, inner) is not None:
            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        answer = api.handle(services, inner)
    except ApiError as error:
        answer = refuse(error)
    return then(answer, enclosed, refuse)


def _open(services: ControllerServices, request: Request, epoch: int) -> tuple[Request, Api]:
    """Return the inner request and its row; raises ApiError for the envelope."""
    buffer = memoryview(request.message.request_data)
    try:
        header, offset = decode_request_header(buffer)
        api = services.table.get(header.api_key)
        if api is None or not api.is_forwarded or not api.supports(header.api_version):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"API key {header.api_key} cannot be forwarded")
        if len(buffer) > int(services.config.barnabas_request_max_bytes):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"A request of {len(buffer)} bytes is too large to be forwarded")
        message = request_class(header.api_key).decode(buffer, header.api_version, offset)
    except MalformedMessageError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Failed to parse the request in the envelope: {error}") from error
    inner = Request.for_message(header, message, _client_context(request, epoch))
    inner.api = api
    return inner, api


def _client_context(request: Request, epoch: int) -> RequestContext:
    """Return the context of the client that sent the inner request."""
    message = request.message
    try:
        address = str(ipaddress.ip_address(bytes(message.client_host_address)))
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Failed to parse the client's address") from None
    outer = request.context
    principal, is_token_authenticated = _principal(message.request_principal)
    return RequestContext(
        listener_name=outer.listener_name,
        security_protocol=outer.security_protocol,
        client_address=address,
        client_port=0,
        connection_id=outer.connection_id,
        principal=principal,
        is_token_authenticated=is_token_authenticated,
        token_id=token_id_of(message),
        attempt=attempt_of(message),
        checksum=zlib.crc32(message.request_data, zlib.crc32(message.request_principal or b"")),
        epoch=epoch,
    )


def _principal(data: bytes | None) -> tuple[str, bool]:
    """Return the client's principal, and whether it authenticated by a delegation token.

    The field holds the version of DefaultPrincipalData, then its body.
    """
    if not data:
        return ANONYMOUS, False
    try:
        if int.from_bytes(data[:_VERSION_BYTES], "big") != 0:
            raise MalformedMessageError("unknown version")
        principal = DefaultPrincipalData.decode(memoryview(data), 0, _VERSION_BYTES)
    except MalformedMessageError as error:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    return f"{principal.type}:{principal.name}", principal.token_authenticated


def _enclosed(services: ControllerServices, api: Api, inner: Request, answer: Ending) -> Reply:
    """Put the response to the inner request into an envelope."""
    assert isinstance(answer, Reply), "a forwarded request has a response"
    if api.key in _FOR_THE_LEADER and _leads_not(answer.message):
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    try:
        response = _envelope(inner, answer.message)
        set_offset(response, services.controller.pushed_offset)
        return Reply(response)
    except EncodeError as error:  # Why here: the forwarding broker waits for a response of the API
        log.error("the response to a forwarded %s cannot be encoded: %s", api.name, error)
        return Reply(_envelope(inner, _error(api, inner, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))))


def _leads_not(response: Any) -> bool:
    """Return whether another controller leads the quorum."""
    partitions = [found for topic in getattr(response, "topics", ()) for found in topic.partitions]
    return any(found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for found in (response, *partitions))


def _error(api: Api, inner: Request, error: ApiError) -> Message:
    make = api.error_response or error_response
    return make(inner.message, inner.header.api_version, error.code, error.message)


def _envelope(inner: Request, message: Message) -> EnvelopeResponse:
    frame = bytearray()
    for part in response_parts(inner.header, message):
        assert isinstance(part, (bytes, memoryview)), "only a Fetch sends from files"
        frame += part
    return EnvelopeResponse(response_data=bytes(frame[_SIZE_BYTES:]))


API = Api(58, "Envelope", (0, 0), handle, nodes_only=nodes_only)
