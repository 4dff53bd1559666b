"""Envelope: v0

Behaviour
- A broker forwards a client's admin request (KIP-590): the client's request as it came, header included, with its
  principal and address. It is handled as if the client had asked here, and its response comes back the same way.
- Only requests that a client may ask of a controller are taken out of an envelope.

Errors: INVALID_REQUEST (what is inside cannot be parsed, or may not be forwarded), PRINCIPAL_DESERIALIZATION_FAILURE.
Errors of the request itself are inside, in its own response.
"""

from __future__ import annotations

import ipaddress
import logging
from typing import Any, Final

from barnabas.broker.answers import Answer, Park, Reply
from barnabas.broker.apis.api import Api
from barnabas.broker.purgatory import DelayedOperation
from barnabas.broker.request_channel import ANONYMOUS, Request, RequestContext
from barnabas.controller.apis.services import ControllerReply, ControllerServices
from barnabas.protocol.error_responses import error_response
from barnabas.protocol.errors import ApiError, EncodeError, ErrorCode, MalformedMessageError
from barnabas.protocol.headers import decode_request_header, response_parts
from barnabas.protocol.messages import request_class
from barnabas.protocol.messages.k58_envelope import EnvelopeResponse
from barnabas.protocol.primitives import read_uvarint

log = logging.getLogger("barnabas.controller.envelope")

FORWARDABLE: Final = frozenset({19, 20, 33, 37, 43, 44, 45, 46, 57, 64})
_SIZE_BYTES: Final = 4


def handle(services: ControllerServices, request: Request) -> Answer:
    """Handle the request inside, and put its response into an envelope."""
    inner, api = _open(services, request)
    log.debug(
        "%s of %s at %s, forwarded by %s",
        api.name, inner.context.principal, inner.context.client_address, request.context.client_address,
    )  # fmt: skip
    try:
        answer = api.handle(services, inner)
    except ApiError as error:
        return Reply(_sealed(inner, _error(api, inner, error)))
    if isinstance(answer, Park):
        return _park(api, inner, answer)
    assert isinstance(answer, Reply), "a forwarded request has an answer"
    return Reply(_sealed(inner, answer.message))


def _open(services: ControllerServices, request: Request) -> tuple[Request, Api]:
    """The request inside and its row; raises ApiError for the envelope."""
    buffer = memoryview(request.message.request_data)
    try:
        header, offset = decode_request_header(buffer)
        api = services.table.get(header.api_key)
        if api is None or api.key not in FORWARDABLE or not api.supports(header.api_version):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"API key {header.api_key} cannot be forwarded")
        if len(buffer) > int(services.config.barnabas_request_max_bytes):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"A request of {len(buffer)} bytes is too large to be forwarded")
        message = request_class(header.api_key).decode(buffer, header.api_version, offset)
    except MalformedMessageError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Failed to parse the request in the envelope: {error}") from error
    inner = Request.for_message(header, message, _client_context(request))
    inner.api = api
    return inner, api


def _client_context(request: Request) -> RequestContext:
    """On whose behalf the request inside is made."""
    message = request.message
    try:
        address = str(ipaddress.ip_address(bytes(message.client_host_address)))
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Failed to parse the client's address") from None
    outer = request.context
    return RequestContext(
        listener_name=outer.listener_name,
        security_protocol=outer.security_protocol,
        client_address=address,
        client_port=0,
        connection_id=outer.connection_id,
        principal=_principal(message.request_principal),
    )


def _principal(data: bytes | None) -> str:
    """Read DefaultPrincipalData v0: version, then compact strings type and name, then a boolean."""
    if not data:
        return ANONYMOUS
    try:
        view = memoryview(data)
        if int.from_bytes(view[:2], "big") != 0:
            raise ValueError("unknown version")
        type_, position = _compact_string(view, 2)
        name, _ = _compact_string(view, position)
    except (ValueError, IndexError) as error:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    return f"{type_}:{name}"


def _compact_string(view: memoryview, position: int) -> tuple[str, int]:
    length, start = read_uvarint(view, position)
    end = start + length - 1
    if length == 0 or end > len(view):
        raise ValueError("the principal is malformed")
    return str(view[start:end], "utf-8"), end


def _park(api: Api, inner: Request, park: Park) -> Park:
    """Wait for the inner answer and seal it."""
    outer = ControllerReply()

    def seal(operation: DelayedOperation) -> None:
        try:
            outcome: Any = operation.response()
            message = outcome.message if isinstance(outcome, Reply) else outcome
        except ApiError as error:
            message = _error(api, inner, error)
        try:
            sealed = _sealed(inner, message)
        except EncodeError as error:  # Why here: the event thread gives the answer, and the broker waits for it
            log.error("the answer to a forwarded %s cannot be encoded: %s", api.name, error)
            sealed = _sealed(inner, _error(api, inner, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR)))
        outer.complete(sealed)

    park.operation.bind(seal)
    return Park(outer)


def _error(api: Api, inner: Request, error: ApiError) -> Any:
    make = api.error_response or error_response
    return make(inner.message, inner.header.api_version, error.code, error.message)


def _sealed(inner: Request, message: Any) -> EnvelopeResponse:
    frame = bytearray()
    for part in response_parts(inner.header, message):
        assert isinstance(part, (bytes, memoryview)), "only a Fetch sends from files"
        frame += part
    return EnvelopeResponse(response_data=bytes(frame[_SIZE_BYTES:]))


API = Api(58, "Envelope", (0, 0), handle, operation="CLUSTER_ACTION", resource="CLUSTER")
