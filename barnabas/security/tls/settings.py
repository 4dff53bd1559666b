"""TlsSettings: the ssl.* keys that apply to one listener, or to connections to it.

A key set for one listener (`listener.name.<name>.ssl.…`) overrides the key set for all.

Threads: any; immutable. Source: Kafka's SslConfigs, BrokerSecurityConfigs, ChannelBuilders (4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas.config.errors import ConfigError
from barnabas.config.table.keys import BROKER_KEYS
from barnabas.config.types import Password
from barnabas.security.tls import ciphers

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
NONE, REQUESTED, REQUIRED = "none", "requested", "required"
_PROTOCOLS_OF_JAVA: Final = ("TLS", *PROTOCOLS)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The values of the keys, by what follows `ssl.`; secrets print as [hidden]."""

    keystore_type: str
    keystore_location: str | None
    keystore_password: Password | None
    keystore_key: Password | None
    keystore_certificate_chain: Password | None
    key_password: Password | None
    truststore_type: str
    truststore_location: str | None
    truststore_password: Password | None
    truststore_certificates: Password | None
    client_auth: str
    protocol: str
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    endpoint_identification_algorithm: str
    allow_dn_changes: bool
    allow_san_changes: bool
    principal_mapping_rules: str

    @property
    def has_keystore(self) -> bool:
        """Whether a key store is configured."""
        return bool(self.keystore_location or self.keystore_key)

    @property
    def has_truststore(self) -> bool:
        """Whether a trust store is configured; the system's certificates are trusted otherwise."""
        return bool(self.truststore_location or self.truststore_certificates)


def settings_of(originals: Mapping[str, str], listener: str, *, is_sasl: bool = False) -> TlsSettings:
    """Return the settings of a listener, from the texts of all keys; raise ConfigError.

    With SASL, clients are asked for certificates only if the key is set for the listener itself.
    """
    prefix = f"listener.name.{listener.lower()}."

    def value(name: str) -> Any:
        key = BROKER_KEYS[f"ssl.{name}"]
        own = originals.get(prefix + key.name)
        if own is not None:
            return key._replace(name=prefix + key.name).parse(own)
        if is_sasl and name == "client.auth":
            return NONE
        text = originals.get(key.name)
        return key.default if text is None else key.parse(text)

    settings = TlsSettings(**{name: value(name.replace("_", ".")) for name in TlsSettings.__slots__})
    check(settings)
    return settings


def check(settings: TlsSettings) -> None:
    """Raise ConfigError for values that contradict each other, or ask for something that is not there."""
    _check_store(settings, "keystore", settings.keystore_type)
    _check_store(settings, "truststore", settings.truststore_type)
    _require(
        bool(settings.keystore_key) == bool(settings.keystore_certificate_chain),
        "ssl.keystore.key and ssl.keystore.certificate.chain need each other",
    )
    if settings.keystore_location and settings.keystore_type != "PEM":
        _require(bool(settings.keystore_password), "ssl.keystore.location is set, but not ssl.keystore.password")
    _require(
        settings.protocol in _PROTOCOLS_OF_JAVA,
        f"ssl.protocol={settings.protocol} is not supported: it can be {', '.join(_PROTOCOLS_OF_JAVA)}",
    )
    for protocol in settings.enabled_protocols:
        _require(
            protocol in PROTOCOLS,
            f"ssl.enabled.protocols: {protocol} is not supported: it can be {', '.join(PROTOCOLS)}",
        )
    algorithm = settings.endpoint_identification_algorithm
    _require(
        algorithm.lower() in ("", "https"),
        f"ssl.endpoint.identification.algorithm={algorithm} is not supported: it can be https or empty",
    )
    _check_ciphers(settings)


def _check_store(settings: TlsSettings, store: str, type_: str) -> None:
    location, password = (getattr(settings, f"{store}_{what}") for what in ("location", "password"))
    inline = settings.keystore_key if store == "keystore" else settings.truststore_certificates
    inline_key = "ssl.keystore.key" if store == "keystore" else "ssl.truststore.certificates"
    _require(
        type_.upper() in STORE_TYPES,
        f"ssl.{store}.type={type_} is not supported: it can be {', '.join(STORE_TYPES)}",
    )
    if inline:
        _require(type_ == "PEM", f"{inline_key} needs ssl.{store}.type=PEM, not {type_}")
        _require(not location, f"only one of {inline_key} and ssl.{store}.location can be set")
    if password:
        _require(type_ != "PEM", f"ssl.{store}.password cannot be set with ssl.{store}.type=PEM")
        _require(bool(location), f"ssl.{store}.password is set, but not ssl.{store}.location")


def _check_ciphers(settings: TlsSettings) -> None:
    key = "ssl.cipher.suites"
    unknown = [
        name for name in settings.cipher_suites if name not in ciphers.TLS_1_3 and not ciphers.openssl_name(name)
    ]
    _require(not unknown, f"{key}: {', '.join(unknown)} is not supported")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
