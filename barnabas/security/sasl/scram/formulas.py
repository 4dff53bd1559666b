"""SCRAM's formulas: from a password to what a server keeps, and from that to proofs and signatures.

Source: RFC 5802 section 3; ScramFormatter (Kafka 4.3), which does not normalize passwords either.
"""

from __future__ import annotations

import math
import random
import string
from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas.common import digests
from barnabas.security.values import ScramCredential, ScramMechanism

DEFAULT_ITERATIONS: Final = 4096
_RANDOM_BITS: Final = 130
_RANDOM: Final = random.SystemRandom()
_DIGITS: Final = string.digits + string.ascii_lowercase
_TEXT_MAX: Final = 26  # digits of that many bits


def digest(mechanism: ScramMechanism, data: bytes) -> bytes:
    """Return the mechanism's hash."""
    return digests.digest(mechanism.hash_name, data)


def mac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    """Return the mechanism's HMAC."""
    return digests.mac(mechanism.hash_name, key, data)


def xor(first: bytes, second: bytes) -> bytes:
    """Return the exclusive or of two texts of one length."""
    return (int.from_bytes(first, "big") ^ int.from_bytes(second, "big")).to_bytes(len(first), "big")


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, RFC 5802's Hi(); takes a millisecond for a few thousand iterations."""
    return digests.pbkdf2(mechanism.hash_name, password.encode(), salt, iterations)


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
    return base36(_RANDOM.getrandbits(_RANDOM_BITS))


def fake_salt(secret: bytes, user: str) -> bytes:
    """Return the salt that a user without a credential has: as random as others, and the same each time."""
    number = int.from_bytes(digests.mac("sha256", secret, user.encode("utf-8", "surrogatepass")), "big")
    return base36(number & ((1 << _RANDOM_BITS) - 1)).encode()


class Looks(NamedTuple):
    """What a client sees of a credential before it has proved anything."""

    iterations: int
    salt_size: int
    is_text: bool  # whether the salt is in base 36, as random_text makes it


#: The looks of the credentials that `random_text` and the default iterations make.
USUAL_LOOKS: Final = Looks(DEFAULT_ITERATIONS, 0, is_text=True)


def looks_of(credential: ScramCredential) -> Looks:
    """Return the looks of a credential; salts of text differ in size by chance."""
    salt = credential.salt
    is_text = len(salt) <= _TEXT_MAX and not salt.strip(_DIGITS.encode())
    return Looks(credential.iterations, 0 if is_text else len(salt), is_text)


def fake_looks(secret: bytes, user: str, looks: Mapping[Looks, int]) -> Looks:
    """Return how a user without a credential looks: the same each time, and each way as often as `looks` says.

    A user is given other looks only if those that it had become rarer, or others more frequent.
    """
    own = digests.mac("sha256", secret, b"looks of " + user.encode("utf-8", "surrogatepass"))

    def score(candidate: Looks) -> float:
        seed = digests.mac("sha256", own, repr(tuple(candidate)).encode())
        return math.log((int.from_bytes(seed[:8], "big") + 1) / (1 << 64)) / looks[candidate]

    return max(looks, key=score, default=USUAL_LOOKS)


def false_salt(secret: bytes, user: str, looks: Looks) -> bytes:
    """Return the salt of a user without a credential, for its looks."""
    if looks.is_text:
        return fake_salt(secret, user)
    return digests.stretched(secret + b"\0" + user.encode("utf-8", "surrogatepass"), looks.salt_size)


def base36(number: int) -> str:
    """Return a number in base 36."""
    digits = []
    while True:
        number, digit = divmod(number, 36)
        digits.append(_DIGITS[digit])
        if not number:
            return "".join(reversed(digits))
