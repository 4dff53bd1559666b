"""A throw-away certificate authority."""

from __future__ import annotations

import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from barnabas.cluster.security.authority import CERTIFICATE_DAYS, CERTIFICATE_FILE, KEY_FILE, Authority, write_private

NOW_MS = 1_900_000_000_000


def names(certificate: x509.Certificate) -> list[str]:
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in found]


def test_a_certificate_has_its_names_and_dates(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "security", NOW_MS)
    path = authority.issue("broker-0.pem", "broker-0", ("127.0.0.1", "localhost", "127.0.0.1"))
    own, issuer = x509.load_pem_x509_certificates(path.read_bytes())
    own.verify_directly_issued_by(issuer)
    assert own.subject.rfc4514_string() == "CN=broker-0"
    assert names(own) == ["127.0.0.1", "localhost"]
    days = (own.not_valid_after_utc - own.not_valid_before_utc).days
    assert days == CERTIFICATE_DAYS + 1
    assert own.not_valid_after_utc.timestamp() * 1000 == NOW_MS + CERTIFICATE_DAYS * 86_400_000


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "security", NOW_MS)
    authority.issue("a.pem", "a")
    directory = tmp_path / "security"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}


def test_a_private_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("readable by all")
    path.chmod(0o644)
    write_private(path, b"secret")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("secret", 0o600)


def test_the_next_start_uses_the_same_authority(tmp_path: Path) -> None:
    first = Authority(tmp_path, NOW_MS).certificate_file.read_bytes()
    second = Authority(tmp_path, NOW_MS + 1)
    assert second.certificate_file.read_bytes() == first
    own, issuer = x509.load_pem_x509_certificates(second.issue("a.pem", "a").read_bytes())
    own.verify_directly_issued_by(issuer)


def test_after_a_lost_key_and_a_crash_the_certificate_fits_the_key(tmp_path: Path) -> None:
    old = Authority(tmp_path / "old", NOW_MS).certificate_file.read_bytes()
    key = (Authority(tmp_path / "new", NOW_MS).certificate_file.parent / KEY_FILE).read_bytes()
    (tmp_path / "security").mkdir()
    (tmp_path / "security" / CERTIFICATE_FILE).write_bytes(old)
    (tmp_path / "security" / KEY_FILE).write_bytes(key)  # the crash came before the new certificate
    authority = Authority(tmp_path / "security", NOW_MS)
    own, issuer = x509.load_pem_x509_certificates(authority.issue("a.pem", "a").read_bytes())
    own.verify_directly_issued_by(issuer)
    assert issuer == x509.load_pem_x509_certificate(authority.certificate_file.read_bytes())


def test_a_password_encrypts_the_key(tmp_path: Path) -> None:
    path = Authority(tmp_path, NOW_MS).issue("alice.pem", "alice", password="secret")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with pytest.raises(ssl.SSLError):
        context.load_cert_chain(path, password="wrong")
    context.load_cert_chain(path, password="secret")
    store = pkcs12.load_pkcs12(path.with_suffix(".p12").read_bytes(), b"secret")
    assert store.cert is not None
    assert store.cert.certificate == x509.load_pem_x509_certificate(path.read_bytes())


def test_a_private_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def fsync(descriptor: int) -> None:
        steps.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        steps.extend(sorted(path.name for path in tmp_path.iterdir()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_private(tmp_path / "secret", b"secret")
    assert steps == ["secret.tmp", "secret.tmp", tmp_path.name, "secret"]
