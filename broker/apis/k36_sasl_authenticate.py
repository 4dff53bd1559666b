"""SaslAuthenticate: v0-v2

Behaviour: carries a token of a login. On a listener with SASL the connection's authenticator answers it, before any
handler sees it (broker/network/sasl). What comes here is out of place.

Version notes: v1 returns how long the session lasts; v2 is flexible.

Errors
- ILLEGAL_SASL_STATE: always.
"""

from __future__ import annotations

from typing import Any, Final

from barnabas.broker.requests.answers import Reply
from barnabas.broker.requests.api import Api
from barnabas.broker.requests.request import Request
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.k36_sasl_authenticate import SaslAuthenticateResponse

TEXT: Final = "SaslAuthenticate request received after successful authentication"


def handle(_services: Any, _request: Request) -> Reply:
    """Refuse."""
    return Reply(SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=TEXT))


API = Api(36, "SaslAuthenticate", (0, 2), handle)
