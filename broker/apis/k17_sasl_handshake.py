"""SaslHandshake: v0-v1

Behaviour: names the mechanism of a login. On a listener with SASL the connection's authenticator answers it, before any
handler sees it (broker/network/sasl), also when a client authenticates again. What comes here is out of place: on a
listener without SASL, or after a login whose session has no end.

Errors
- ILLEGAL_SASL_STATE: always.
"""

from __future__ import annotations

from typing import Any

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.request import Request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k17_sasl_handshake import SaslHandshakeResponse


def handle(_services: Any, _request: Request) -> Reply:
    """Refuse."""
    return Reply(SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))


API = Api(17, "SaslHandshake", (0, 1), handle)
