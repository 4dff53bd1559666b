"""The formulas of SCRAM, with the example of RFC 7677."""

from __future__ import annotations

import base64
import hashlib
import hmac

from barnabas.security.sasl.scram.formulas import credential_of, salted_password
from barnabas.security.values import ScramMechanism

SHA_256 = ScramMechanism.SCRAM_SHA_256
# RFC 7677, section 3: user "user", password "pencil".
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
AUTH_MESSAGE = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,"
    b"i=4096,c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)
PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
SERVER_SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_keys_verify_the_example_of_the_rfc() -> None:
    credential = credential_of(SHA_256, salted_password(SHA_256, "pencil", SALT, 4096), SALT, 4096)
    signature = hmac.digest(credential.stored_key, AUTH_MESSAGE, "sha256")
    client_key = bytes(a ^ b for a, b in zip(PROOF, signature, strict=True))
    assert hashlib.sha256(client_key).digest() == credential.stored_key
    assert hmac.digest(credential.server_key, AUTH_MESSAGE, "sha256") == SERVER_SIGNATURE
    assert (credential.salt, credential.iterations) == (SALT, 4096)


def test_the_mechanism_decides_the_hash() -> None:
    credential = credential_of(ScramMechanism.SCRAM_SHA_512, b"salted", b"salt", 8192)
    assert len(credential.stored_key) == len(credential.server_key) == 64
