"""Where a node gets the token that it presents to other nodes.

| source | settings |
|---|---|
| written here, unsigned | JAAS options `unsecuredLoginStringClaim_sub` … |
| a file | `sasl.oauthbearer.token.endpoint.url` = `file:///…` |
| the provider, by client credentials | `…token.endpoint.url` = `https://…`, and `…client.credentials.client.id` |

With client credentials, `…client.credentials.client.secret` and `sasl.oauthbearer.scope` are used too; the JAAS options
`clientId`, `clientSecret` and `scope` stand for them. A token of the provider is used again until
`sasl.login.refresh.window.factor` of its life has passed.

Threads: any that opens a connection to another node; two that find no token may both ask for one.
Source: DefaultJwtRetriever, FileJwtRetriever, ClientCredentialsJwtRetriever (Kafka 4.3).
"""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.common.clock import Clock
from barnabas.security.sasl.mechanism import AuthenticationError
from barnabas.security.sasl.oauthbearer.jwks import JwksError, read_url

_LIFETIME_S: Final = 60  # of a token whose provider does not say
_FORM: Final = "application/x-www-form-urlencoded"


class ClientCredentials(NamedTuple):
    """What a node presents to the provider. Its repr hides the secret."""

    client_id: str
    secret: str
    scope: str | None

    def __repr__(self) -> str:
        return f"ClientCredentials(client_id={self.client_id!r})"


def token_of_file(url: str, read: Callable[[str], bytes] = read_url) -> str:
    """Return the token in a file; raises AuthenticationError."""
    try:
        return read(url).decode("ascii").strip()
    except (JwksError, UnicodeDecodeError) as error:
        raise AuthenticationError(f"there is no token: {error}") from error


class ProviderTokens:
    """Tokens of a provider, each asked for when the last one grows old."""

    def __init__(
        self,
        url: str,
        credentials: ClientCredentials,
        clock: Clock,
        window: float,
        read: Callable[[str, bytes, dict[str, str]], bytes] = read_url,
    ) -> None:
        # Fixed before start.
        self._url = url
        self._credentials = credentials
        self._clock = clock
        self._window = window
        self._read = read
        self._token = ("", 0)  # a token, and until when it is used (monotonic, in milliseconds); replaced whole

    def __call__(self) -> str:
        """Return a token; raises AuthenticationError."""
        token, until_ms = self._token
        now_ms = self._clock.monotonic_ms()
        if token and now_ms < until_ms:
            return token
        try:
            answer = json.loads(self._read(self._url, self._body(), self._headers()))
            token = answer["access_token"]
            lifetime_ms = int(float(answer.get("expires_in", _LIFETIME_S)) * 1000 * self._window)
        except (JwksError, ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise AuthenticationError(f"the provider gave no token: {error}") from error
        if not isinstance(token, str) or not token:
            raise AuthenticationError("the provider gave no token")
        self._token = token, now_ms + lifetime_ms
        return token

    def _body(self) -> bytes:
        fields = {"grant_type": "client_credentials"}
        if self._credentials.scope:
            fields["scope"] = self._credentials.scope
        return urllib.parse.urlencode(fields).encode()

    def _headers(self) -> dict[str, str]:
        pair = f"{self._credentials.client_id}:{self._credentials.secret}".encode()
        return {"Authorization": "Basic " + base64.b64encode(pair).decode(), "Content-Type": _FORM}
