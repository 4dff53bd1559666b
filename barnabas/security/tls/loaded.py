"""Loaded: the key, trust and contexts of one listener, made from its settings at one moment; and what may replace them.

Rules for a replacement (Kafka's SslFactory)
1. A key store, or a trust store, is neither added to a listener that has none nor removed.
2. The distinguished name stays, unless ssl.allow.dn.changes; alternative names may be added, but none may go, unless
   ssl.allow.san.changes.
3. On the listener between brokers the old and the new key must accept each other, or the cluster would fall apart. The
   old one may have expired: its dates do not count. The new one must be accepted with its dates by its own trust store.

Threads: any; immutable.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from barnabas.config.errors import ConfigError
from barnabas.security.tls.errors import TlsError
from barnabas.security.tls.names import distinguished_name

if TYPE_CHECKING:
    import ssl

    from cryptography import x509

    from barnabas.security.tls.settings import TlsSettings
    from barnabas.security.tls.stores import KeyEntry

log = logging.getLogger("barnabas.tls")

MS_PER_DAY: Final = 86_400_000
WARN_DAYS: Final = 30
_TURNS_MAX: Final = 20
#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python's ssl does not name.
NO_CHECK_TIME: Final = 0x200000

#: What tells a changed file: (inode, ctime in ns, size) by path; None for a missing file. Why not the time of its
#: modification: a file that could not be read may be readable once its rights have changed.
Stamps = Mapping[str, tuple[int, int, int] | None]


class Loaded(NamedTuple):
    """See the module."""

    settings: TlsSettings
    entry: KeyEntry | None
    trusted: tuple[x509.Certificate, ...] | None
    server: ssl.SSLContext | None  # None where only connections are opened
    client: ssl.SSLContext
    stamps: Stamps

    def expires_ms(self) -> int | None:
        """Return when the first certificate of the chain expires, in milliseconds since 1970; None without one."""
        if self.entry is None:
            return None
        return min(int(certificate.not_valid_after_utc.timestamp() * 1000) for certificate in self.entry.chain)

    def subject(self) -> str:
        """Return the distinguished name of the own certificate; "" without one."""
        return "" if self.entry is None else distinguished_name(self.entry.chain[0].subject.public_bytes())


class ExpiryLog:
    """Logs once a day, from WARN_DAYS on, how long a certificate is valid; both roles of a process share one.

    Threads: any.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a leaf
        self._noted: dict[str, tuple[int, int]] = {}  # guarded by: _lock; the day of the last line, and what expires

    def note(self, whose: str, expires_ms: int | None, now_ms: int) -> None:
        """Log a certificate that expires at this time, if it is time for a line; None has no certificate."""
        if expires_ms is None or expires_ms - now_ms > WARN_DAYS * MS_PER_DAY:
            return
        noted = now_ms // MS_PER_DAY, expires_ms
        with self._lock:
            if self._noted.get(whose) == noted:
                return
            self._noted[whose] = noted
        if expires_ms < now_ms:
            log.error("the certificate of %s has expired: no client accepts it", whose)
        else:
            log.warning("the certificate of %s expires in %d days", whose, (expires_ms - now_ms) // MS_PER_DAY)


def load(settings: TlsSettings, *, is_server: bool, is_between_nodes: bool = False, now_ms: int) -> Loaded:
    """Load everything that the settings name; raise ConfigError of one line."""
    # Why here: they load OpenSSL and cryptography, which most processes do not need
    from barnabas.security.tls.contexts import client_context, server_context
    from barnabas.security.tls.stores import load_key_store, load_trust_store

    if is_server and not settings.has_keystore:
        raise ConfigError("TLS needs ssl.keystore.location, or ssl.keystore.key and ssl.keystore.certificate.chain")
    stamps = stamps_of(settings)
    entry = load_key_store(settings)
    trusted = load_trust_store(settings)
    if entry is not None:
        _check_dates(entry.chain[0], now_ms)
    server = server_context(settings, entry, trusted) if is_server and entry is not None else None
    loaded = Loaded(settings, entry, trusted, server, client_context(settings, entry, trusted), stamps)
    if is_between_nodes and is_server:
        _check_own_trust(loaded)
    return loaded


def check_replacement(old: Loaded, new: Loaded, *, is_between_nodes: bool) -> None:
    """Raise ConfigError unless `new` may replace `old`."""
    if (old.entry is None) != (new.entry is None):
        raise ConfigError("a key store can neither be added nor removed while the listener runs")
    if old.trusted is None and new.trusted is not None:
        raise ConfigError("a trust store cannot be added while the listener runs")
    if old.entry is not None and new.entry is not None:
        _check_names(old, new)
    if is_between_nodes:
        _check_own_trust(new)
        if not (_accepts(old, new, with_dates=False) and _accepts(new, old, with_dates=False)):
            raise ConfigError(
                "the old and the new certificate do not trust each other, but brokers connect to each other"
            )


def stamps_of(settings: TlsSettings) -> Stamps:
    """Return the present stamps of the files that the settings name."""
    return {path: _stamp(path) for path in (settings.keystore_location, settings.truststore_location) if path}


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns, status.st_size


def _check_dates(certificate: x509.Certificate, now_ms: int) -> None:
    from datetime import UTC, datetime  # Why here: processes without TLS load this module, too

    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    name = certificate.subject.rfc4514_string()
    if certificate.not_valid_after_utc < now:
        raise ConfigError(
            f"the certificate of {name!r} expired on {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        )
    if certificate.not_valid_before_utc > now:
        raise ConfigError(
            f"the certificate of {name!r} is not valid before {certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        )


def _check_names(old: Loaded, new: Loaded) -> None:
    settings = new.settings
    if not settings.allow_dn_changes and old.subject().lower() != new.subject().lower():
        raise ConfigError(
            f"the distinguished name would change from {old.subject()!r} to {new.subject()!r}; "
            "ssl.allow.dn.changes=true allows that"
        )
    if not settings.allow_san_changes:
        gone = _alternative_names(old) - _alternative_names(new)
        if gone:
            raise ConfigError(
                f"the new certificate lacks the alternative names {', '.join(sorted(gone))}; "
                "ssl.allow.san.changes=true allows that"
            )


def _alternative_names(loaded: Loaded) -> set[str]:
    from cryptography import x509

    assert loaded.entry is not None
    try:
        extension = loaded.entry.chain[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    except ValueError as error:
        raise ConfigError(f"the alternative names of a certificate cannot be read: {error}") from None
    return {f"{type(name).__name__}:{name.value}" for name in extension.value}


def _check_own_trust(loaded: Loaded) -> None:
    if not _accepts(loaded, loaded):
        raise ConfigError(
            "the certificate of the key store is not trusted by the trust store, but brokers connect to each other here"
        )


def _accepts(server: Loaded, client: Loaded, *, with_dates: bool = True) -> bool:
    """Return whether a handshake between the two succeeds; names of hosts are not compared."""
    if server.server is None or server.entry is None:
        return True
    from barnabas.security.tls.contexts import client_context, server_context
    from barnabas.security.tls.session import TlsSession

    settings = replace(client.settings, endpoint_identification_algorithm="")
    # Why not `server.server`: connections use it, and the flag below is not for them.
    accepting = server_context(server.settings, server.entry, server.trusted)
    connecting = client_context(settings, client.entry, client.trusted)
    if not with_dates:
        for context in (accepting, connecting):
            context.verify_flags |= NO_CHECK_TIME
    one, other = TlsSession(connecting, is_server=False), TlsSession(accepting, is_server=True)
    try:
        for _ in range(_TURNS_MAX):
            if one.is_established and other.is_established:
                one.read_into(memoryview(bytearray(1)))  # TLS 1.3: a refused client certificate shows only here
                return True
            for session, peer in ((one, other), (other, one)):
                if not session.is_established:
                    session.handshake()
                output = session.take_output()
                if output:
                    peer.receive(output)
    except TlsError:
        return False
    return False
