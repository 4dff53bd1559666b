"""Key stores and trust stores: PEM (inline or in a file), PKCS12 and JKS.

Rules
1. Every error is a ConfigError of one line that names the key or file, and never a secret.
2. As in Java, a file is read by its contents where the type says JKS or PKCS12: keytool writes PKCS12 for both.
3. As in Java, every certificate of a trust store is trusted, those of no authority too.

Threads: any. Reads files, nothing else. Source: Kafka's DefaultSslEngineFactory (4.3).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    load_pem_private_key,
    pkcs12,
)

from barnabas.config.errors import ConfigError
from barnabas.security.tls import jks

if TYPE_CHECKING:
    from barnabas.config.types import Password
    from barnabas.security.tls.settings import TlsSettings

_BLOCK: Final = r"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----"
_STORE_BYTES_MAX: Final = 16 << 20
_MALFORMED: Final = (ValueError, TypeError, UnsupportedAlgorithm, binascii.Error, x509.InvalidVersion)


class KeyEntry(NamedTuple):
    """A private key and its certificate chain, the key's own certificate first."""

    key: Any
    chain: tuple[x509.Certificate, ...]

    def key_pem(self) -> bytes:
        """Return the key in clear."""
        return bytes(self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def chain_pem(self) -> bytes:
        """Return the chain."""
        return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in self.chain)


def load_key_store(settings: TlsSettings) -> KeyEntry | None:
    """Return the key and its chain; None if no key store is configured. Raises ConfigError."""
    if settings.keystore_key is not None and settings.keystore_certificate_chain is not None:
        chain = _certificates("ssl.keystore.certificate.chain", settings.keystore_certificate_chain.value)
        key = _pem_key("ssl.keystore.key", settings.keystore_key.value, settings.key_password)
        return _fitting("ssl.keystore.key", key, chain)
    path = settings.keystore_location
    if not path:
        return None
    data = read_file("ssl.keystore.location", path)
    if settings.keystore_type == "PEM":
        text = data.decode("latin-1")
        return _fitting(path, _pem_key(path, text, settings.key_password), _certificates(path, text))
    password = settings.keystore_password
    assert password is not None  # checked by settings.py
    if data.startswith(jks.MAGIC):
        return _jks_key(path, data, password, settings.key_password or password)
    key, own, others = _pkcs12(path, data, password)
    if key is None or own is None:
        raise ConfigError(f"{path} has no private key with a certificate")
    return _fitting(path, key, _ordered(own, others))


def load_trust_store(settings: TlsSettings) -> tuple[x509.Certificate, ...] | None:
    """Return the trusted certificates; None if no trust store is configured. Raises ConfigError."""
    if settings.truststore_certificates is not None:
        return _certificates("ssl.truststore.certificates", settings.truststore_certificates.value)
    path = settings.truststore_location
    if not path:
        return None
    data = read_file("ssl.truststore.location", path)
    if settings.truststore_type == "PEM":
        return _certificates(path, data.decode("latin-1"))
    password = settings.truststore_password
    if data.startswith(jks.MAGIC):
        entries = _reading(path, lambda: jks.read(data, password.value if password else None))
        trusted = [der for entry in entries for der in entry.certificates]
        found = tuple(_reading(path, lambda: [x509.load_der_x509_certificate(der) for der in trusted]))
    else:
        _, own, others = _pkcs12(path, data, password)
        found = (*((own,) if own else ()), *others)
    if not found:
        raise ConfigError(f"{path} has no certificates")
    return found


def read_file(key: str, path: str) -> bytes:
    """Return the contents of a store; raise ConfigError."""
    try:
        file = Path(path)
        size = file.stat().st_size
        if size > _STORE_BYTES_MAX:
            raise ConfigError(f"{key}: {path} has {size} bytes, which is no key store")
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{key}: cannot read {path}: {error.strerror}") from error


def _reading(source: str, read: Callable[[], Any]) -> Any:
    """Return what `read` returns; its errors become lines that name the source."""
    try:
        return read()
    except jks.WrongPasswordError as error:
        raise ConfigError(f"{source}: {error}") from None
    except _MALFORMED as error:
        raise ConfigError(f"{source} cannot be read: {_first_line(error)}") from None


def _first_line(error: BaseException) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__


def _pkcs12(path: str, data: bytes, password: Password | None) -> tuple[Any, x509.Certificate | None, list[Any]]:
    secret = password.value.encode() if password is not None else None
    try:
        return pkcs12.load_key_and_certificates(data, secret)
    except ValueError as error:
        if "password" in str(error).lower():
            raise ConfigError(f"{path}: the password is wrong, or the file was changed") from None
        raise ConfigError(f"{path} is neither PKCS12 nor JKS: {_first_line(error)}") from None
    except (TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path} cannot be read: {_first_line(error)}") from None


def _jks_key(path: str, data: bytes, password: Password, key_password: Password) -> KeyEntry:
    entries: list[jks.JksEntry] = _reading(path, lambda: jks.read(data, password.value))
    entry = next((entry for entry in entries if entry.protected_key is not None), None)
    if entry is None or not entry.certificates:
        raise ConfigError(f"{path} has no private key with a certificate")
    protected = entry.protected_key
    assert protected is not None
    key = _reading(path, lambda: load_der_private_key(jks.private_key(protected, key_password.value), None))
    chain = _reading(path, lambda: tuple(x509.load_der_x509_certificate(der) for der in entry.certificates))
    return _fitting(path, key, chain)


def _blocks(text: str, label: str) -> list[tuple[str, str]]:
    """Return (whole block, body) of the PEM blocks whose name ends in `label`."""
    found = re.finditer(_BLOCK, text, re.DOTALL)
    return [(match[0], match[2]) for match in found if match[1].endswith(label)]


def _decoded(body: str) -> bytes:
    return base64.b64decode("".join(body.split()), validate=True)


def _certificates(source: str, text: str) -> tuple[x509.Certificate, ...]:
    bodies = [body for _, body in _blocks(text, "CERTIFICATE")]
    if not bodies:
        raise ConfigError(f"{source} has no certificate")
    return tuple(_reading(source, lambda: [x509.load_der_x509_certificate(_decoded(body)) for body in bodies]))


def _pem_key(source: str, text: str, password: Password | None) -> Any:
    blocks = _blocks(text, "PRIVATE KEY")
    if len(blocks) != 1:
        raise ConfigError(f"{source} has {len(blocks)} private keys instead of one")
    block, body = blocks[0]
    secret = password.value.encode() if password is not None else None
    try:
        if "Proc-Type" in body:  # encrypted in the way of old versions of OpenSSL
            return load_pem_private_key(block.encode("latin-1"), secret)
        return load_der_private_key(_decoded(body), secret)
    except TypeError:
        state = "is encrypted, but ssl.key.password is not set" if secret is None else "is not encrypted"
        raise ConfigError(
            f"{source}: the private key {state}{'' if secret is None else ', but ssl.key.password is set'}"
        ) from None
    except _MALFORMED as error:
        if secret is not None:
            raise ConfigError(f"{source}: ssl.key.password does not open the private key") from None
        raise ConfigError(f"{source}: the private key cannot be read: {_first_line(error)}") from None


def _fitting(source: str, key: Any, chain: tuple[x509.Certificate, ...]) -> KeyEntry:
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    # Why here: cryptography looks at these parts only when they are asked for, and does not refuse bad ones before.
    own, certified = _reading(source, lambda: [part.public_key().public_bytes(*form) for part in (key, chain[0])])
    name = _reading(source, lambda: chain[0].subject.rfc4514_string())
    if own != certified:
        raise ConfigError(f"{source}: the private key does not fit the certificate of {name!r}")
    return KeyEntry(key, chain)


def _ordered(own: x509.Certificate, others: Iterable[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """Return the chain: each certificate followed by its issuer's; the rest of a PKCS12 file is left out."""
    left = list(others)
    chain = [own]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((other for other in left if other.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        left.remove(issuer)
        chain.append(issuer)
    return tuple(chain)
