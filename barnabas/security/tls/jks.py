"""Java's own key store format, JKS, as old versions of keytool write it (newer ones write PKCS12).

Why not a library: the only one (pyjks) needs a package that must be compiled, and that no longer runs on Python 3.12.

Format (big-endian)
    offset 0   uint32  0xFEEDFEED
    offset 4   uint32  version, 1 or 2
    offset 8   uint32  number of entries
    entries    uint32 1: a key: alias, int64 time, protected key, uint32 number of certificates, certificates
               uint32 2: a trusted certificate: alias, int64 time, certificate
    last 20 bytes      SHA-1 of the password (UTF-16), the words "Mighty Aphrodite", and everything before
An alias is a uint16 size and its text. A certificate is its type (version 2; as an alias), a uint32 size and its bytes.
A protected key is a uint32 size and an EncryptedPrivateKeyInfo: a salt of 20 bytes, the key XORed with a chain of SHA-1
digests of password and salt, and a digest of password and key.

Threads: any; pure. Source: OpenJDK's JavaKeyStore, KeyProtector (17), by what keytool writes.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final, NamedTuple

from barnabas.security.tls import der

MAGIC: Final = b"\xfe\xed\xfe\xed"

_KEY: Final = 1
_TRUSTED: Final = 2
_DIGEST_BYTES: Final = 20
_PROTECTION: Final = "1.3.6.1.4.1.42.2.17.1.1"


class WrongPasswordError(ValueError):
    """The password does not open the store or the key."""


class JksEntry(NamedTuple):
    """A key with its chain, or a trusted certificate (`protected_key` is None). Certificates are DER."""

    alias: str
    protected_key: bytes | None
    certificates: tuple[bytes, ...]


def read(data: bytes, password: str | None) -> list[JksEntry]:
    """Return the entries; raise ValueError if the data is malformed, WrongPasswordError if the password is wrong.

    Without a password the integrity of the store is not checked, as in Java.
    """
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(_utf16(password) + b"Mighty Aphrodite" + body).digest()
        if not hmac.compare_digest(expected, digest):
            raise WrongPasswordError("the password is wrong, or the file was changed")
    reader = _Reader(body)
    if reader.take(4) != MAGIC:
        raise ValueError("this is no JKS key store")
    version = reader.uint32()
    if version not in (1, 2):
        raise ValueError(f"version {version} of JKS is unknown")
    return [_entry(reader, version) for _ in range(reader.uint32())]


def private_key(protected: bytes, password: str) -> bytes:
    """Return a key in PKCS#8; raise WrongPasswordError, or ValueError if it is protected in another way."""
    (outer,) = der.elements(protected)
    algorithm, value = der.elements(outer.expect(der.SEQUENCE))
    oid = der.object_identifier(der.elements(algorithm.expect(der.SEQUENCE))[0].expect(der.OBJECT_IDENTIFIER))
    if oid != _PROTECTION:
        raise ValueError(f"the key is protected by an unknown algorithm, {oid}")
    contents = value.expect(der.OCTET_STRING)
    salt, check = contents[:_DIGEST_BYTES], contents[-_DIGEST_BYTES:]
    hidden = contents[_DIGEST_BYTES:-_DIGEST_BYTES]
    secret = _utf16(password)
    stream = b""
    link = salt
    while len(stream) < len(hidden):
        link = hashlib.sha1(secret + link).digest()
        stream += link
    key = bytes(a ^ b for a, b in zip(hidden, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):
        raise WrongPasswordError("the password of the key is wrong")
    return key


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ValueError("the key store is cut")
        taken, self._at = self._data[self._at : end], end
        return taken

    def uint32(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])

    def text(self) -> str:
        (size,) = struct.unpack(">H", self.take(2))
        return self.take(size).decode("utf-8", "replace")


def _entry(reader: _Reader, version: int) -> JksEntry:
    kind = reader.uint32()
    if kind not in (_KEY, _TRUSTED):
        raise ValueError(f"the key store has an entry of an unknown kind, {kind}")
    alias = reader.text()
    reader.take(8)
    protected = reader.take(reader.uint32()) if kind == _KEY else None
    count = reader.uint32() if kind == _KEY else 1
    return JksEntry(alias, protected, tuple(_certificate(reader, version) for _ in range(count)))


def _certificate(reader: _Reader, version: int) -> bytes:
    if version == 2:
        reader.text()
    return reader.take(reader.uint32())


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
