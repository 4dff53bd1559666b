"""Authority: a certificate authority for one cluster on one machine.

It is for tests and first steps: its key lies in the cluster's directory, readable by its user alone, and nothing else
should trust it. Certificates are issued again at each start, and before they expire while a cluster runs.

Rules
1. A certificate's common name is a node's or a user's name, and serves both ends of a connection.
2. A node's certificate has the names and addresses at which others reach it.
3. A file with a key has mode 0600 from its first byte on, and is written so that a crash of the machine leaves the old
   or the new file, whole.

Threads: none; writes files.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

NAME: Final = "Barnabas throw-away authority"
AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 365
#: So long before its end a certificate is issued again.
RENEWAL_DAYS: Final = 30
#: Certificates are valid from a day ago, for machines whose clocks differ.
BACKDATED: Final = datetime.timedelta(days=1)
CERTIFICATE_FILE: Final = "ca.pem"
KEY_FILE: Final = "ca-key.pem"
STORE_SUFFIX: Final = ".p12"
#: What the key of an authority is for.
SIGNS: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
_PRIVATE: Final = 0o600
_PRIVATE_DIRECTORY: Final = 0o700


class Authority:
    """A certificate authority whose files are in a directory, created if they are not there."""

    def __init__(self, directory: Path, now_ms: int) -> None:
        self.certificate_file = directory / CERTIFICATE_FILE
        self._directory = directory
        self.issue_from(now_ms)
        directory.mkdir(mode=_PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        self._key = self._kept_key(directory / KEY_FILE)
        self._certificate = self._kept_certificate()

    def is_renewal_due(self, now_ms: int) -> bool:
        """Return whether the certificates that were issued expire within RENEWAL_DAYS."""
        end = self._now + datetime.timedelta(days=CERTIFICATE_DAYS - RENEWAL_DAYS)
        return datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC) >= end

    def issue_from(self, now_ms: int) -> None:
        """Let certificates that are issued from now on begin now."""
        self._now = datetime.datetime.fromtimestamp(now_ms / 1000, datetime.UTC)

    def issue(self, file: str, common_name: str, hosts: Iterable[str] = (), password: str | None = None) -> Path:
        """Write a new key and its certificate chain into a PEM file; return its path, below the directory or absolute.

        A password encrypts the key. Then there is a PKCS12 store beside the file, with the same password: Java cannot
        read the key otherwise.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(common_name, key.public_key(), CERTIFICATE_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        names = [_general_name(host) for host in dict.fromkeys(hosts)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        chain = certificate.public_bytes(Encoding.PEM) + self._certificate.public_bytes(Encoding.PEM)
        path = self._directory / file
        write_private(path, _key_pem(key, encryption) + chain)
        if password is not None:
            name, chain_above = common_name.encode(), [self._certificate]
            store = pkcs12.serialize_key_and_certificates(name, key, certificate, chain_above, encryption)
            write_private(path.with_suffix(STORE_SUFFIX), store)
        return path

    @staticmethod
    def _kept_key(file: Path) -> ec.EllipticCurvePrivateKey:
        if file.exists():
            key = load_pem_private_key(file.read_bytes(), None)
            assert isinstance(key, ec.EllipticCurvePrivateKey)
            return key
        key = ec.generate_private_key(ec.SECP256R1())
        write_private(file, _key_pem(key, NoEncryption()))
        return key

    def _kept_certificate(self) -> x509.Certificate:
        """Return the authority's certificate; one of another key is replaced: that key was lost."""
        if self.certificate_file.exists():
            found = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
            if found.public_key() == self._key.public_key():
                return found
        new = self._authority_certificate()
        write_private(self.certificate_file, new.public_bytes(Encoding.PEM))
        return new

    def _authority_certificate(self) -> x509.Certificate:
        builder = self._builder(NAME, self._key.public_key(), AUTHORITY_DAYS)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return builder.add_extension(SIGNS, critical=True).sign(self._key, hashes.SHA256())

    def _builder(self, common_name: str, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - BACKDATED)
            .not_valid_after(self._now + datetime.timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def write_private(path: Path, data: bytes, mode: int = _PRIVATE) -> None:
    """Write a file that only its owner can read (rule 3), or with another mode; an existing one is replaced whole."""
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _key_pem(key: ec.EllipticCurvePrivateKey, encryption: KeySerializationEncryption) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
