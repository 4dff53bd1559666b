"""The keys of SCRAM: what a server keeps, derived from a password.

Source: RFC 5802; ScramFormatter (Kafka 4.3).
"""

from __future__ import annotations

import hashlib
import hmac

from barnabas.security.values import ScramCredential, ScramMechanism


def salted_password(mechanism: ScramMechanism, password: bytes, salt: bytes, iterations: int) -> bytes:
    """Return the salted password: what a client sends to set a credential, and proves to know at a login."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password, salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Return the credential of a salted password, from which nobody can compute the password."""
    client_key = hmac.digest(salted, b"Client Key", mechanism.hash_name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(mechanism.hash_name, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", mechanism.hash_name),
        iterations=iterations,
    )
