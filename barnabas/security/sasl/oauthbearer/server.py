"""The server's side of OAUTHBEARER.

Rules
1. A refused token is answered with an error as JSON. The client acknowledges it, and the login ends then (RFC 7628,
   section 3.2.2). Many clients do not: they close the connection, or go on as if they had logged in.
2. The login ends when the token does: `Identity.expires_ms`.

Source: OAuthBearerSaslServer (Kafka 4.3).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from barnabas.security.principal import user as user_principal
from barnabas.security.sasl.mechanism import AuthenticationError, Identity, InvalidCredentialsError, RefusalError
from barnabas.security.sasl.oauthbearer.messages import CONTROL_A, parse_client_first
from barnabas.security.sasl.oauthbearer.token import InvalidTokenError, OAuthToken

#: Checks a token; raises InvalidTokenError.
Validate = Callable[[str], OAuthToken]


class OAuthBearerServer:
    """See the module and ServerMechanism."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._error: str | None = None  # what the client was sent, and must acknowledge
        self.identity: Identity | None = None

    def evaluate(self, response: bytes) -> bytes:
        """Take the client's message."""
        if self._error is not None:
            if response == CONTROL_A:
                raise AuthenticationError(self._error)
            self._error = None
        first = parse_client_first(response)
        try:
            token = self._validate(first.token)
        except InvalidTokenError as refused:
            self._error = _as_json(refused)
            raise RefusalError(self._error.encode(), f"{self._error}: {refused}") from refused
        except Exception as error:
            raise InvalidCredentialsError(f"the token could not be checked: {error}") from error
        if first.authorization_id and first.authorization_id != token.user:
            raise AuthenticationError(
                f"Authentication failed: Client requested an authorization id ({first.authorization_id}) that is "
                f"different from the token's principal name ({token.user})"
            )
        self.identity = Identity(user_principal(token.user), token.expires_ms, extensions=first.extensions)
        return b""


def _as_json(error: InvalidTokenError) -> str:
    shown = f'{{"status":{json.dumps(error.status)}'
    return f'{shown}, "scope":{json.dumps(error.scope)}}}' if error.scope is not None else shown + "}"
