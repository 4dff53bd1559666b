"""The SSLContext of a listener, and of connections to it, made from its settings.

Rules
1. A private key is never on a disk: Python reads keys from files only, so OpenSSL reads it from memory that has a
   descriptor but no name (memfd_create).
2. Renegotiation is off. Compression is off. Versions below TLS 1.2 do not exist.
3. A handshake is never resumed from another context, so new trust has effect on all new connections.
4. A trusted certificate ends a chain, whether or not it signed itself, as in Java.

Threads: any. Source: Kafka's DefaultSslEngineFactory (4.3).
"""

from __future__ import annotations

import os
import ssl
from typing import TYPE_CHECKING, Final

from barnabas.config.errors import ConfigError
from barnabas.security.tls import ciphers
from barnabas.security.tls.settings import REQUESTED, REQUIRED, TlsSettings

if TYPE_CHECKING:
    from cryptography import x509

    from barnabas.security.tls.stores import KeyEntry

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {REQUESTED: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}
# Why: Java uses such keys, so whoever brings Kafka's key store sees these first.
_TOO_WEAK: Final = {
    "CA_KEY_TOO_SMALL": "a key of its chain is too short",
    "CA_MD_TOO_WEAK": "a certificate of its chain is signed with SHA-1 or MD5",
    "EE_KEY_TOO_SMALL": "the key is too short",
}


def server_context(
    settings: TlsSettings, entry: KeyEntry, trusted: tuple[x509.Certificate, ...] | None
) -> ssl.SSLContext:
    """Return the context for accepted connections; raise ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, settings)
    context.num_tickets = 1
    context.verify_mode = _CLIENT_AUTH.get(settings.client_auth, ssl.CERT_NONE)
    if context.verify_mode != ssl.CERT_NONE:
        _trust(context, trusted)
    _load(context, entry)
    return context


def client_context(
    settings: TlsSettings, entry: KeyEntry | None, trusted: tuple[x509.Certificate, ...] | None
) -> ssl.SSLContext:
    """Return the context for connections to a listener with these settings; raise ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _configure(context, settings)
    context.check_hostname = bool(settings.endpoint_identification_algorithm)
    _trust(context, trusted)
    if entry is not None:
        _load(context, entry)
    return context


def _configure(context: ssl.SSLContext, settings: TlsSettings) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    enabled = set(settings.enabled_protocols or _VERSIONS)
    names = settings.cipher_suites
    newer = [name for name in names if name in ciphers.TLS_1_3]
    older = [name for name in map(ciphers.openssl_name, names) if name]
    if names and not newer:
        enabled.discard("TLSv1.3")
    if names and not older:
        enabled.discard("TLSv1.2")
    versions = sorted(_VERSIONS[name] for name in enabled)
    if not versions:
        raise ConfigError("ssl.cipher.suites has no suite for the versions of ssl.enabled.protocols")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    if newer:
        _choose_newer(context, newer)
    if older:
        _choose_older(context, older)


def _choose_newer(context: ssl.SSLContext, names: list[str]) -> None:
    if ciphers.TLS_1_3.issubset(names) or ciphers.choose_tls_1_3(context, names):
        return
    raise ConfigError(
        "ssl.cipher.suites: this interpreter cannot choose among the suites of TLS 1.3; list all of them "
        f"({', '.join(sorted(ciphers.TLS_1_3))}) or none, which leaves TLS 1.2"
    )


def _choose_older(context: ssl.SSLContext, names: list[str]) -> None:
    try:
        context.set_ciphers(":".join(names))
    except ssl.SSLError:
        raise ConfigError("ssl.cipher.suites: OpenSSL offers none of these suites") from None
    missing = set(names).difference(cipher["name"] for cipher in context.get_ciphers())
    if missing:
        raise ConfigError(f"ssl.cipher.suites: OpenSSL does not offer {', '.join(sorted(missing))}")


def _trust(context: ssl.SSLContext, trusted: tuple[x509.Certificate, ...] | None) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if trusted is None:
        context.set_default_verify_paths()
        return
    context.load_verify_locations(cadata=b"".join(certificate.public_bytes(Encoding.DER) for certificate in trusted))


def _load(context: ssl.SSLContext, entry: KeyEntry) -> None:
    """Give a key and its chain to OpenSSL (rule 1)."""
    descriptor = os.memfd_create("barnabas-tls", os.MFD_CLOEXEC)
    try:
        data = entry.key_pem() + entry.chain_pem()
        while data:
            data = data[os.write(descriptor, data) :]
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if reason in _TOO_WEAK:
            reason = f"{_TOO_WEAK[reason]} ({reason})"
        raise ConfigError(f"OpenSSL refuses the key or its certificate: {reason}") from None
    finally:
        os.close(descriptor)
