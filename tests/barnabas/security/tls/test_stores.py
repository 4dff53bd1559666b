"""Key stores and trust stores in every format, and what is said about bad ones."""

from __future__ import annotations

import base64
import contextlib
import warnings
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from barnabas.common.clock import SystemClock
from barnabas.config.errors import ConfigError
from barnabas.security.tls.loaded import check_replacement, load
from barnabas.security.tls.settings import settings_of
from barnabas.security.tls.stores import KeyEntry, load_key_store, load_trust_store
from tests.support.certificates import Authority

DATA = Path(__file__).resolve().parents[3] / "data" / "tls"
AUTHORITY = Authority()
ONE = AUTHORITY.issue("one")
NOW_MS = SystemClock().wall_ms()


def keys(**values: object) -> KeyEntry | None:
    return load_key_store(settings(**values))


def settings(**values: object):
    return settings_of({f"ssl.{name.replace('_', '.')}": str(value) for name, value in values.items()}, "L")


@pytest.mark.parametrize("password", [None, "p4ss"])
def test_pem_in_a_file_and_inline(tmp_path: Path, password: str | None) -> None:
    secret = {} if password is None else {"key_password": password}
    in_file = keys(keystore_type="PEM", keystore_location=ONE.write_pem(tmp_path / "k.pem", password), **secret)
    inline = keys(
        keystore_type="PEM", keystore_key=ONE.key_pem(password), keystore_certificate_chain=ONE.chain_pem(), **secret
    )
    for entry in (in_file, inline):
        assert entry is not None
        assert entry.chain == (ONE.certificate, AUTHORITY.certificate)
        assert entry.key.private_numbers() == ONE.key.private_numbers()


def test_pem_on_one_line_and_in_the_old_way_of_encrypting() -> None:
    chain = ONE.chain_pem().replace("\n", " ")
    old = ONE.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, BestAvailableEncryption(b"p")).decode()
    assert keys(keystore_type="PEM", keystore_key=old, keystore_certificate_chain=chain, key_password="p") is not None


@pytest.mark.parametrize("type_", ["JKS", "PKCS12"])
def test_pkcs12_under_either_type(tmp_path: Path, type_: str) -> None:
    path = ONE.write_pkcs12(tmp_path / "k.p12", "p4ss")
    entry = keys(keystore_type=type_, keystore_location=path, keystore_password="p4ss")
    assert entry is not None
    assert entry.chain == (ONE.certificate, AUTHORITY.certificate)


def test_jks() -> None:
    entry = keys(keystore_location=DATA / "key.jks", keystore_password="store-pw", key_password="key-pw-1")
    assert entry is not None
    assert entry.chain[0].subject.rfc4514_string() == "CN=jks.example,O=Barnabas"
    for name in ("trust.jks", "trust.p12"):
        trusted = load_trust_store(settings(truststore_location=DATA / name, truststore_password="store-pw"))
        assert trusted == entry.chain


def test_nothing_is_configured() -> None:
    assert keys() is None
    assert load_trust_store(settings()) is None


def test_trusted_certificates_inline() -> None:
    pem = AUTHORITY.pem() + ONE.chain_pem()
    found = load_trust_store(settings(truststore_type="PEM", truststore_certificates=pem))
    assert found == (AUTHORITY.certificate, ONE.certificate, AUTHORITY.certificate)


def test_damaged_stores_are_one_line(tmp_path: Path) -> None:
    """Every byte of a certificate and of a key; the files may be half written, or the disk's mistake."""
    # With trusted certificates: without, OpenSSL reads all those of the system each time, which takes 100 ms.
    trusted = {"truststore_type": "PEM", "truststore_certificates": AUTHORITY.pem()}
    store = settings(keystore_type="PEM", keystore_location=tmp_path / "damaged.pem", **trusted)
    key = ONE.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    certificate = ONE.certificate.public_bytes(Encoding.DER)
    warnings.simplefilter("ignore")  # of cryptography, about what it accepts for now
    for at in range(len(key) + len(certificate)):
        damaged = bytearray(key + certificate)
        damaged[at] ^= 0x22
        (tmp_path / "damaged.pem").write_text(
            pem("PRIVATE KEY", damaged[: len(key)]) + pem("CERTIFICATE", damaged[len(key) :])
        )
        with contextlib.suppress(ConfigError):
            loaded = load(store, is_server=True, now_ms=NOW_MS)
            check_replacement(loaded, loaded, is_between_nodes=False)


def pem(label: str, der: bytes) -> str:
    return f"-----BEGIN {label}-----\n{base64.b64encode(der).decode()}\n-----END {label}-----\n"


def test_bad_stores_are_one_line_without_a_secret(tmp_path: Path) -> None:
    other = AUTHORITY.issue("other")
    wrong = tmp_path / "wrong.pem"
    wrong.write_text(other.key_pem() + ONE.chain_pem())
    p12 = ONE.write_pkcs12(tmp_path / "k.p12", "p4ss")
    junk = tmp_path / "junk"
    junk.write_bytes(b"junk")
    pem = {"keystore_type": "PEM"}
    plain, locked = ONE.write_pem(tmp_path / "plain.pem"), ONE.write_pem(tmp_path / "locked.pem", "p4ss")
    chain = {"keystore_certificate_chain": ONE.chain_pem(), **pem}
    cases: list[tuple[dict[str, object], str]] = [
        ({**pem, "keystore_location": wrong}, "the private key does not fit the certificate"),
        ({**pem, "keystore_location": tmp_path / "none"}, "cannot read"),
        ({**pem, "keystore_location": junk}, "has 0 private keys"),
        ({**pem, "keystore_location": locked}, "ssl.key.password is not set"),
        ({**pem, "keystore_location": locked, "key_password": "hidden"}, "does not open the private key"),
        ({**pem, "keystore_location": plain, "key_password": "hidden"}, "but ssl.key.password is set"),
        ({**chain, "keystore_key": "-----BEGIN PRIVATE KEY-----AAAA-----END PRIVATE KEY-----"}, "cannot be read"),
        ({"keystore_location": p12, "keystore_password": "hidden"}, "the password is wrong"),
        ({"keystore_location": junk, "keystore_password": "hidden"}, "is neither PKCS12 nor JKS"),
        ({"keystore_location": DATA / "key.jks", "keystore_password": "hidden"}, "the password is wrong"),
        ({"keystore_location": DATA / "key.jks", "keystore_password": "store-pw"}, "password of the key is wrong"),
        ({"keystore_location": DATA / "trust.jks", "keystore_password": "store-pw"}, "has no private key"),
        ({"keystore_location": DATA / "trust.p12", "keystore_password": "store-pw"}, "has no private key"),
    ]
    for values, message in cases:
        with pytest.raises(ConfigError) as caught:
            keys(**values)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "hidden" not in str(caught.value)
        assert "p4ss" not in str(caught.value)
