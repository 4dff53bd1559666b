"""JKS: files that keytool (Java 17) wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_der_private_key

from barnabas.security.tls import jks

DATA = Path(__file__).resolve().parents[3] / "data" / "tls"


def test_a_key_and_its_certificate() -> None:
    (entry,) = jks.read((DATA / "key.jks").read_bytes(), "store-pw")
    assert entry.alias == "own"
    assert entry.protected_key is not None
    assert len(entry.certificates) == 1
    key = load_der_private_key(jks.private_key(entry.protected_key, "key-pw-1"), None)
    assert key is not None


@pytest.mark.parametrize("password", ["store-pw", None])
def test_a_trusted_certificate(password: str | None) -> None:
    (entry,) = jks.read((DATA / "trust.jks").read_bytes(), password)
    assert (entry.alias, entry.protected_key, len(entry.certificates)) == ("ca", None, 1)


def test_wrong_passwords() -> None:
    data = (DATA / "key.jks").read_bytes()
    with pytest.raises(jks.WrongPasswordError, match="wrong, or the file was changed"):
        jks.read(data, "other")
    (entry,) = jks.read(data, "store-pw")
    assert entry.protected_key is not None
    with pytest.raises(jks.WrongPasswordError, match="password of the key"):
        jks.private_key(entry.protected_key, "other")


def test_no_cut_or_changed_file_is_more_than_a_value_error() -> None:
    data = (DATA / "key.jks").read_bytes()
    for size in range(0, len(data), 7):
        with pytest.raises(ValueError):
            jks.read(data[:size], None)
    for at in range(4, 40):
        changed = bytearray(data)
        changed[at] ^= 0xFF
        try:
            jks.read(bytes(changed), None)
        except ValueError:
            continue
