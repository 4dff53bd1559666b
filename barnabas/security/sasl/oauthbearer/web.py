"""Reads what an OAuth provider publishes: its keys, and tokens.

Rules
1. Addresses are `file:`, `https:`, and for tests `http:` of this machine. No redirect is followed.
2. An answer has at most `BYTES_MAX` bytes. Connecting and each read have a timeout.
3. The TLS of `https:` is set by options `ssl.…` of the JAAS entry, as in Kafka: `ssl.truststore.location` and others,
   with the values of the settings of the same names. Without a trust store, the system's authorities are trusted. The
   stores are read once.

Threads: any; immutable. Source: OAuthBearerUtils, HttpJwtRetriever, JaasOptionsUtils (Kafka 4.3).
"""

from __future__ import annotations

import ssl
import urllib.parse
import urllib.request
from collections.abc import Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Final

from barnabas.config.errors import ConfigError
from barnabas.config.listeners import SSL_KEYS
from barnabas.security.sasl.scopes import JAAS, Scope

BYTES_MAX: Final = 1 << 20
TIMEOUT_MS: Final = 10_000
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_TLS_OPTION: Final = "ssl."


class WebError(Exception):
    """An address cannot be used, or not be read; the text is one line."""


class Web:
    """See the module. `tls` is for `https:`; None: the system's authorities are trusted."""

    def __init__(
        self, tls: ssl.SSLContext | None = None, connect_ms: int = TIMEOUT_MS, read_ms: int = TIMEOUT_MS
    ) -> None:
        self._connect_s = connect_ms / 1000  # fixed before start
        self._opener = urllib.request.build_opener(  # fixed before start
            _NoRedirects, _Http(read_ms / 1000), _Https(tls, read_ms / 1000)
        )

    def read(self, url: str, data: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
        """Return what an address answers, or what a file holds; raises WebError."""
        check_url(url)
        parts = urllib.parse.urlsplit(url)
        try:
            if parts.scheme == "file":
                body = path_of(url).read_bytes()
            else:
                request = urllib.request.Request(url, data, dict(headers or {}))
                with self._opener.open(request, timeout=self._connect_s) as response:
                    body = response.read(BYTES_MAX + 1)
        except (OSError, HTTPException, ValueError) as error:
            raise WebError(f"cannot read {url}: {getattr(error, 'strerror', None) or error}") from error
        if len(body) > BYTES_MAX:
            raise WebError(f"{url} has more than {BYTES_MAX} bytes")
        return body


def check_url(url: str) -> None:
    """Raise WebError for an address that is not used (rule 1)."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("file", "https") and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise WebError(f"{url} is neither a file: nor an https: address")


def path_of(url: str) -> Path:
    """Return the file that a `file:` address names."""
    return Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))


def tls_of(scope: Scope, options: Mapping[str, str], now_ms: int) -> ssl.SSLContext | None:
    """Return the TLS that a JAAS entry's options ask for (rule 3), None without any; raises ConfigError."""
    texts = {name: text for name, text in options.items() if name.startswith(_TLS_OPTION)}
    if not texts:
        return None
    from barnabas.security.tls.loaded import load  # Why here: it brings cryptography
    from barnabas.security.tls.settings import settings_of

    unknown = sorted(texts.keys() - set(SSL_KEYS))
    if unknown:
        raise ConfigError(f"{scope.name(JAAS)}: the option {unknown[0]} has no effect")
    try:
        return load(settings_of(texts, scope.listener), is_server=False, now_ms=now_ms).client
    except ConfigError as error:
        raise ConfigError(f"{scope.name(JAAS)}: {error}") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Follow none: the error of the redirect itself is raised."""


class _Http(urllib.request.HTTPHandler):
    def __init__(self, read_s: float) -> None:
        super().__init__()
        self._read_s = read_s

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        """Open a connection with both timeouts."""
        return self.do_open(partial(_connection, HTTPConnection, self._read_s), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, tls: ssl.SSLContext | None, read_s: float) -> None:
        super().__init__()
        self._tls = tls
        self._read_s = read_s

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        """Open a connection with both timeouts."""
        return self.do_open(partial(_connection, HTTPSConnection, self._read_s), req, context=self._tls)


def _connection(kind: type[HTTPConnection], read_s: float, *arguments: Any, **more: Any) -> HTTPConnection:
    """Return a connection with the timeout for connecting, and with that of reads once it is open."""
    connection = kind(*arguments, **more)
    connect = connection.connect

    def connect_and_wait() -> None:
        connect()
        connection.sock.settimeout(read_s)

    connection.connect = connect_and_wait  # type: ignore[method-assign]
    return connection
