"""A throw-away certificate authority for tests: keys and certificates as PEM, PKCS12 and files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from barnabas.cluster.security.authority import SIGNS

NAMES = ("localhost", "127.0.0.1")
CN = NameOID.COMMON_NAME


def subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(CN, common_name), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Barnabas")])


def general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@dataclass(frozen=True)
class Identity:
    """A key with its certificate, issued by an authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    def key_pem(self, password: str | None = None) -> str:
        encryption = NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def chain_pem(self) -> str:
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in (self.certificate, self.authority))

    def pem(self, password: str | None = None) -> str:
        return self.key_pem(password) + self.chain_pem()

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        path.write_text(self.pem(password))
        return path

    def write_pkcs12(self, path: Path, password: str) -> Path:
        secret = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, [self.authority], secret)
        )
        return path


class Authority:
    """Signs certificates."""

    def __init__(self, name: str = "Test authority") -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        own = subject(name)
        self.certificate = (
            _builder(own, own, self.key.public_key(), -1, 3650)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(SIGNS, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def issue(
        self,
        name: str | x509.Name,
        *,
        names: tuple[str, ...] = NAMES,
        from_days: float = -1,
        to_days: float = 365,
        key: ec.EllipticCurvePrivateKey | None = None,
    ) -> Identity:
        key = key or ec.generate_private_key(ec.SECP256R1())
        own = subject(name) if isinstance(name, str) else name
        builder = _builder(own, self.certificate.subject, key.public_key(), from_days, to_days)
        # Why: from Python 3.13 on, clients refuse a certificate without it.
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([general_name(each) for each in names]), critical=False
            )
        return Identity(key, builder.sign(self.key, hashes.SHA256()), self.certificate)

    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def write_pem(self, path: Path) -> Path:
        path.write_text(self.pem())
        return path


def _builder(
    own: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, from_days: float, to_days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=from_days))
        .not_valid_after(now + timedelta(days=to_days))
    )
