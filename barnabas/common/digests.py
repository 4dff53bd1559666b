"""Digests, and the comparison of secrets: `hashlib` and `hmac`, loaded at the first digest.

Why: they load OpenSSL, 4 MB of each process. Without security, the processes and the commands never need it. They do
compare: a broker compares the id in each push of the controller with its own.

Threads: any.
"""

from __future__ import annotations

from _operator import _compare_digest  # Why not from hmac: that loads OpenSSL, and takes this function without it


def digest(name: str, data: bytes) -> bytes:
    """Return the digest of an algorithm of hashlib."""
    import hashlib

    return hashlib.new(name, data).digest()


def stretched(data: bytes, size: int) -> bytes:
    """Return a digest of any size (SHAKE256)."""
    import hashlib

    return hashlib.shake_256(data).digest(size)


def mac(name: str, key: bytes, data: bytes) -> bytes:
    """Return the HMAC (RFC 2104) with an algorithm of hashlib."""
    import hmac

    return hmac.digest(key, data, name)


def pbkdf2(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the key derived by PBKDF2-HMAC (RFC 8018), as long as the digest."""
    import hashlib

    return hashlib.pbkdf2_hmac(name, password, salt, iterations)


def is_equal(one: bytes, other: bytes) -> bool:
    """Compare two secrets in a time that does not depend on where they differ."""
    return _compare_digest(one, other)
