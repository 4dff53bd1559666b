"""Where a node gets the token that it presents to other nodes.

| source | settings |
|---|---|
| written here, unsigned | JAAS options `unsecuredLoginStringClaim_sub` … |
| a file | `sasl.oauthbearer.token.endpoint.url` = `file:///…` |
| the provider, by client credentials | `…token.endpoint.url` = `https://…`, and `…client.credentials.client.id` |

With client credentials, `…client.credentials.client.secret` and `sasl.oauthbearer.scope` are used too; the JAAS options
`clientId`, `clientSecret` and `scope` stand for them.

Rules
1. A token of the provider is used again until most of its life has passed (`Refresh`).
2. After a failure the provider is not asked for a pause, which doubles with each failure
   (`sasl.login.retry.backoff.ms` to `sasl.login.retry.backoff.max.ms`). Until then a token that is still valid is used,
   and without one a login fails at once. Why not retry here, as Kafka's clients do: the calling thread has a connection
   to open, and tries again by itself.

Threads: any that opens a connection to another node; two that find no token may both ask for one.
Source: DefaultJwtRetriever, FileJwtRetriever, ClientCredentialsJwtRetriever, ExpiringCredentialRefreshingLogin (Kafka
4.3).
"""

from __future__ import annotations

import base64
import json
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from barnabas.common.clock import Clock
from barnabas.security.sasl.mechanism import AuthenticationError
from barnabas.security.sasl.oauthbearer.web import WebError

_LIFETIME_S: Final = 60  # of a token whose provider does not say
_FORM: Final = "application/x-www-form-urlencoded"


class ClientCredentials(NamedTuple):
    """What a node presents to the provider. Its repr hides the secret."""

    client_id: str
    secret: str
    scope: str | None

    def __repr__(self) -> str:
        return f"ClientCredentials(client_id={self.client_id!r})"


class Refresh(NamedTuple):
    """When a token is replaced: the settings `sasl.login.refresh.…`."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_s: int = 60
    buffer_s: int = 300

    def after_ms(self, lifetime_ms: float, chance: float) -> float:
        """Return the milliseconds after which a token is replaced; `chance` is a random number from 0 to 1.

        A part of its life, but `buffer_s` before its end and `min_period_s` after its beginning, unless its life is too
        short for both. Never after its end.
        """
        after_ms = lifetime_ms * (self.window_factor + self.window_jitter * chance)
        first_ms, last_ms = self.min_period_s * 1000, lifetime_ms - self.buffer_s * 1000
        if first_ms <= last_ms:
            after_ms = max(first_ms, min(after_ms, last_ms))
        return max(0.0, min(after_ms, lifetime_ms))


class Backoff(NamedTuple):
    """The pauses after failures: the settings `sasl.login.retry.…`."""

    first_ms: int = 100
    max_ms: int = 10_000

    def pause_ms(self, failures: int) -> int:
        """Return the pause after this many failures in a row."""
        return min(self.max_ms, self.first_ms << min(max(0, failures - 1), 20))


class _Held(NamedTuple):
    """What is known of the provider's tokens. Times are monotonic, in milliseconds."""

    token: str = ""
    ask_ms: int = 0  # when to ask for the next token
    ends_ms: int = 0
    failures: int = 0  # since the last token
    reason: str = ""  # of the last failure


def token_of_file(url: str, read: Callable[[str], bytes]) -> str:
    """Return the token in a file; raises AuthenticationError."""
    try:
        return read(url).decode("ascii").strip()
    except (WebError, UnicodeDecodeError) as error:
        raise AuthenticationError(f"there is no token: {error}") from error


class ProviderTokens:
    """Tokens of a provider, each asked for when the last one grows old."""

    def __init__(
        self,
        url: str,
        credentials: ClientCredentials,
        clock: Clock,
        read: Callable[[str, bytes, Mapping[str, str]], bytes],
        *,
        refresh: Refresh,
        backoff: Backoff,
        chance: Callable[[], float],
    ) -> None:
        # Fixed before start.
        self._url = url
        self._credentials = credentials
        self._clock = clock
        self._read = read
        self._refresh = refresh
        self._backoff = backoff
        self._chance = chance
        self._held = _Held()  # replaced whole

    def __call__(self) -> str:
        """Return a token; raises AuthenticationError."""
        held = self._held
        if self._clock.monotonic_ms() >= held.ask_ms:
            asked = self._asked(held)
            if not asked.failures or self._held is held:  # else another thread was answered meanwhile
                self._held = asked
            held = self._held
        if self._clock.monotonic_ms() < held.ends_ms:
            return held.token
        raise AuthenticationError(f"the provider gave no token: {held.reason}")

    def _asked(self, held: _Held) -> _Held:
        """Ask the provider; return what is known then."""
        try:
            answer = json.loads(self._read(self._url, self._body(), self._headers()))
            token = answer["access_token"]
            lifetime_ms = float(answer.get("expires_in", _LIFETIME_S)) * 1000
            if not isinstance(token, str) or not token:
                raise ValueError("access_token is not a text, or empty")
            if not lifetime_ms > 0:  # also false for what is no number
                raise ValueError("expires_in is not positive")
            now_ms = self._clock.monotonic_ms()
            after_ms = int(self._refresh.after_ms(lifetime_ms, self._chance()))
            return _Held(token, now_ms + after_ms, now_ms + int(lifetime_ms))
        except (WebError, ValueError, OverflowError, RecursionError, KeyError, TypeError, AttributeError) as error:
            failures = held.failures + 1
            ask_ms = self._clock.monotonic_ms() + self._backoff.pause_ms(failures)
            return held._replace(ask_ms=ask_ms, failures=failures, reason=_one_line(error))

    def _body(self) -> bytes:
        fields = {"grant_type": "client_credentials"}
        if self._credentials.scope:
            fields["scope"] = self._credentials.scope
        return urllib.parse.urlencode(fields).encode()

    def _headers(self) -> Mapping[str, str]:
        pair = f"{self._credentials.client_id}:{self._credentials.secret}".encode()
        return {"Authorization": "Basic " + base64.b64encode(pair).decode(), "Content-Type": _FORM}


def _one_line(error: Exception) -> str:
    return f"its answer lacks {error}" if isinstance(error, KeyError) else str(error)
