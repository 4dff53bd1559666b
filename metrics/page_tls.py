"""TLS of the pages: the settings `barnabas.pages.ssl.…`, and certificates that change on disk.

Rules
1. A visitor notices files that changed, at most every REVIEW_MS. A file that cannot be used is logged once, and the old
   certificate stays.
2. From 30 days on, the days until the certificate expires are logged once a day: at the start, and by a visitor. The
   seconds until then are a gauge, as for listeners.

Threads: `context` by the threads of visitors.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from barnabas.config.errors import ConfigError
from barnabas.config.table.keys import BROKER_KEYS
from barnabas.config.table.keys_own import PAGE_SSL_KEYS
from barnabas.metrics.table import catalogue
from barnabas.security.tls.loaded import ExpiryLog, load, stamps_of
from barnabas.security.tls.settings import REQUIRED, TlsSettings, check

if TYPE_CHECKING:
    import ssl

    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.metrics.registry import Registry

log = logging.getLogger("barnabas.metrics")

REVIEW_MS: Final = 10_000
#: The pages in the label `listener` of the gauge; names of listeners have capital letters.
PAGES: Final = "pages"


def settings_of(config: Config) -> TlsSettings:
    """Return the settings; those that pages do not have are the defaults. Raises ConfigError."""
    names = TlsSettings.__slots__
    values = {name: BROKER_KEYS[f"ssl.{name.replace('_', '.')}"].default for name in names}
    for name in names:
        if f"ssl.{name.replace('_', '.')}" in PAGE_SSL_KEYS:
            values[name] = getattr(config, f"barnabas_pages_ssl_{name}")
    settings = TlsSettings(**values)
    try:
        check(settings)
    except ConfigError as error:
        raise _of_pages(error) from error
    return settings


class PageTls:
    """The certificate of the pages."""

    def __init__(self, settings: TlsSettings, clock: Clock) -> None:
        self._clock = clock  # fixed before start
        self._lock = threading.Lock()  # a leaf
        try:
            loaded = load(settings, is_server=True, now_ms=clock.wall_ms())
        except ConfigError as error:
            raise _of_pages(error) from error
        self._loaded = loaded  # guarded by: _lock
        self._stamps = loaded.stamps  # guarded by: _lock; of the files that were looked at last
        self._reviewed_ms = clock.monotonic_ms()  # guarded by: _lock
        self._expiry = ExpiryLog()  # fixed before start
        self._expiry.note("the pages", loaded.expires_ms(), clock.wall_ms())

    def register(self, registry: Registry) -> None:
        """Show the seconds until the certificate expires."""
        registry.gauge(catalogue.TLS_CERTIFICATE_SECONDS_LEFT, self._seconds_left, listener=PAGES)

    @property
    def authenticates(self) -> bool:
        """Whether visitors need a certificate."""
        return self._loaded.settings.client_auth == REQUIRED

    def context(self) -> ssl.SSLContext:
        """Return the context for a visitor."""
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            if now_ms - self._reviewed_ms >= REVIEW_MS:
                self._reviewed_ms = now_ms
                self._review()
            context = self._loaded.server
        assert context is not None
        return context

    def _seconds_left(self) -> float:
        expires_ms = self._loaded.expires_ms()
        assert expires_ms is not None  # Why: pages without a key store have no TLS
        return (expires_ms - self._clock.wall_ms()) / 1000

    def _review(self) -> None:
        settings = self._loaded.settings
        stamps = stamps_of(settings)
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._loaded = load(settings, is_server=True, now_ms=self._clock.wall_ms())
                log.info("the pages have a new certificate: %s", self._loaded.subject())
            except ConfigError as error:
                log.error("the pages keep their certificate: %s", _of_pages(error))
        self._expiry.note("the pages", self._loaded.expires_ms(), self._clock.wall_ms())


def make_tls(config: Config, clock: Clock) -> PageTls | None:
    """Return the TLS that a config asks for; None if the pages have no key store. Raises ConfigError."""
    settings = settings_of(config)
    return PageTls(settings, clock) if settings.has_keystore else None


def _of_pages(error: ConfigError) -> ConfigError:
    return ConfigError(f"barnabas.pages.ssl: {error}")
