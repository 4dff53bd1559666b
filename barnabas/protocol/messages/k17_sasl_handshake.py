"""SaslHandshake (key 17): v0-v1, never flexible."""

from __future__ import annotations

from barnabas.protocol.schema import Request, Response, array, int16, string


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: str = string("0+")


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: int = int16("0+")
    mechanisms: list[str] = array(string, "0+")
