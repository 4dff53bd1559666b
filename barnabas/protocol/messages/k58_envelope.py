"""Envelope (key 58): v0, flexible from v0."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, bytes_, int16


class EnvelopeRequest(Request, key=58, versions="0", flexible="0+"):
    request_data: bytes = bytes_("0+")
    request_principal: bytes | None = bytes_("0+", nullable="0+")
    client_host_address: bytes = bytes_("0+")


class EnvelopeResponse(Response, key=58, versions="0", flexible="0+"):
    response_data: bytes | None = bytes_("0+", None, nullable="0+")
    error_code: int = int16("0+")
