"""SCRAM's formulas: from a password to what a server keeps, and from that to proofs and signatures.

Source: RFC 5802 section 3; ScramFormatter (Kafka 4.3), which does not normalize passwords either.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import string
from typing import Final

from barnabas.security.values import ScramCredential, ScramMechanism

DEFAULT_ITERATIONS: Final = 4096
_RANDOM_BITS: Final = 130
_DIGITS: Final = string.digits + string.ascii_lowercase


def digest(mechanism: ScramMechanism, data: bytes) -> bytes:
    """Return the mechanism's hash."""
    return hashlib.new(mechanism.hash_name, data).digest()


def mac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    """Return the mechanism's HMAC."""
    return hmac.digest(key, data, mechanism.hash_name)


def xor(first: bytes, second: bytes) -> bytes:
    """Return the exclusive or of two texts of one length."""
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, RFC 5802's Hi(); takes a millisecond for a few thousand iterations."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return what a client proves that it has."""
    return mac(mechanism, salted, b"Client Key")


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    """Return what a server proves that it has."""
    return mac(mechanism, salted, b"Server Key")


def make_credential(
    mechanism: ScramMechanism, password: str, iterations: int = DEFAULT_ITERATIONS, salt: bytes | None = None
) -> ScramCredential:
    """Return what a server keeps of a password; the salt is random unless given."""
    salt = random_text().encode() if salt is None else salt
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return what a server keeps of a salted password."""
    stored_key = digest(mechanism, client_key(mechanism, salted))
    return ScramCredential(salt, stored_key, server_key(mechanism, salted), iterations)


def random_text() -> str:
    """Return 130 random bits in base 36, as Kafka's nonces and salts are."""
    return base36(secrets.randbits(_RANDOM_BITS))


def fake_salt(secret: bytes, user: str) -> bytes:
    """Return the salt that a user without a credential has: as random as others, and the same each time."""
    number = int.from_bytes(hmac.digest(secret, user.encode("utf-8", "surrogatepass"), "sha256"), "big")
    return base36(number & ((1 << _RANDOM_BITS) - 1)).encode()


def base36(number: int) -> str:
    """Return a number in base 36."""
    digits = []
    while True:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
        if not number:
            return "".join(reversed(digits))
