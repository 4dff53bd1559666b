"""ClientProperties: the security settings of a Kafka client, for our connections and for librdkafka.

They are the properties of Kafka's Java client: security.protocol, ssl.* and sasl.*. Other properties, such as those of
producers, may be in the same file, and are not looked at.

Rules
1. Stores of every type that TLS listeners read (PEM, PKCS12, JKS) work for librdkafka too: it gets PEM texts. So does
   every login: librdkafka gets a name and a password, or asks for a token when it needs one.
2. Every error is a ConfigError of one line that names the key or file, and never a secret.

Threads: none; reads files.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from barnabas.client.security import ClientSecurity
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import PLAINTEXT, PROTOCOLS, SSL_STORE_KEYS
from barnabas.config.properties import parse_properties
from barnabas.config.secrets import exposed
from barnabas.config.secrets.variables import resolve
from barnabas.security.sasl.mechanism import GSSAPI, OAUTHBEARER, ClientLogin

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.security.sasl.scopes import Scope
    from barnabas.security.tls.loaded import Loaded

NAME: Final = "CLIENT"
PROTOCOL_KEY: Final = "security.protocol"
MECHANISM_KEY: Final = "sasl.mechanism"
_SECURITY_PREFIXES: Final = ("security.", "ssl.", "sasl.")
_TLS_KEYS: Final = frozenset(
    {*SSL_STORE_KEYS, "ssl.cipher.suites", "ssl.endpoint.identification.algorithm", "ssl.protocol"}
)
_SASL_KEYS: Final = frozenset(
    {
        MECHANISM_KEY,
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        *(
            f"sasl.kerberos.{name}"
            for name in (
                "service.name",
                "min.time.before.relogin",
                "ticket.renew.jitter",
                "ticket.renew.window.factor",
            )
        ),
    }
)
_TOKEN_PREFIXES: Final = (
    "sasl.oauthbearer.",
    "sasl.login.connect.",
    "sasl.login.read.",
    "sasl.login.refresh.",
    "sasl.login.retry.",
)
#: How long librdkafka keeps a token whose end is unknown.
_TOKEN_LIFETIME_MS: Final = 300_000


class ClientProperties:
    """See the module."""

    def __init__(
        self, properties: Mapping[str, str], clock: Clock, source: str = "", warnings: Sequence[str] = ()
    ) -> None:
        self.source = source  # where they are from; errors do not name it
        self.warnings = tuple(warnings)  # about the file, a line each
        self._properties = dict(properties)
        self._clock = clock

    @classmethod
    def load(cls, path: Path, clock: Clock) -> ClientProperties:
        """Read a properties file, and the values that its config providers have; raises ConfigError."""
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read it: {getattr(error, 'strerror', None) or 'it is not UTF-8'}") from error
        written = parse_properties(text)
        resolved = resolve(written, os.environ)
        warnings = [*resolved.warnings, *exposed.warnings(path, written, {}, resolved)]
        return cls(resolved.properties, clock, str(path), warnings)

    @property
    def bootstrap(self) -> str:
        """bootstrap.servers, "" if it is not set."""
        return self._properties.get("bootstrap.servers", "")

    @property
    def protocol(self) -> str:
        """security.protocol; raises ConfigError."""
        protocol = self._properties.get(PROTOCOL_KEY, PLAINTEXT).strip().upper()
        if protocol not in PROTOCOLS:
            raise ConfigError(f"{PROTOCOL_KEY}={protocol} is not supported: it can be {', '.join(PROTOCOLS)}")
        return protocol

    def without_effect(self) -> list[str]:
        """Return the security settings that commands do not follow."""
        known = {PROTOCOL_KEY, *_TLS_KEYS, *_SASL_KEYS}
        return sorted(
            key
            for key in self._properties
            if key.startswith(_SECURITY_PREFIXES) and key not in known and not key.startswith(_TOKEN_PREFIXES)
        )

    def security(self) -> ClientSecurity | None:
        """Return how our connections are protected, None for PLAINTEXT; raises ConfigError."""
        protocol = self.protocol
        if protocol == PLAINTEXT:
            return None
        loaded, endpoint = self.tls, None
        if loaded is not None:
            from barnabas.security.tls.endpoints import TlsEndpoint

            endpoint = TlsEndpoint(NAME, loaded, is_sasl=False, is_server=False, is_between_nodes=False)
        return ClientSecurity(NAME, protocol, endpoint, self._login())

    def librdkafka(self) -> dict[str, Any]:
        """Return the same for librdkafka; raises ConfigError."""
        return {PROTOCOL_KEY: self.protocol, **dict(self._librdkafka_tls()), **dict(self._librdkafka_sasl())}

    @property
    def mechanism(self) -> str:
        """sasl.mechanism; raises ConfigError if the protocol needs one and it is not set."""
        mechanism = self._properties.get(MECHANISM_KEY, "").strip()
        if not mechanism and self.protocol.startswith("SASL_"):
            raise ConfigError(f"{PROTOCOL_KEY}={self.protocol} needs {MECHANISM_KEY}, such as SCRAM-SHA-512")
        return mechanism

    @cached_property
    def tls(self) -> Loaded | None:
        """The key, trust and context; None without TLS. Raises ConfigError."""
        if not self.protocol.endswith("SSL"):
            return None
        from barnabas.security.tls.loaded import load  # Why here: it brings cryptography
        from barnabas.security.tls.settings import settings_of

        return load(settings_of(self._properties, NAME), is_server=False, now_ms=self._clock.wall_ms())

    def _login(self) -> ClientLogin | None:
        if not self.protocol.startswith("SASL_"):
            return None
        from barnabas.security.sasl.client_settings import client_login  # Why here: it loads much

        with self._as_written():
            return client_login(self._config(), NAME, self.mechanism, MECHANISM_KEY, self._clock)

    def _config(self) -> Config:
        """Return a node's settings that make it log in with these."""
        prefix = f"listener.name.{NAME.lower()}.{self.mechanism.lower()}."
        own = {f"{prefix}{key}": text for key, text in self._properties.items() if key.startswith("sasl.")}
        return Config(own)  # Why not from_properties: it warns of settings of listeners that are not there

    @contextlib.contextmanager
    def _as_written(self) -> Iterator[None]:
        """Name keys in errors as the client's file has them: it has no listeners."""
        try:
            yield
        except ConfigError as error:
            prefix = f"listener.name.{NAME.lower()}.{self.mechanism.lower()}."
            text = str(error).replace(prefix, "").replace(f"listener {NAME} uses", "the client uses")
            raise ConfigError(text) from None

    def _librdkafka_sasl(self) -> Iterator[tuple[str, Any]]:
        login = self._login()
        if login is None:
            return
        yield MECHANISM_KEY, login.mechanism
        if login.mechanism == OAUTHBEARER:
            yield "oauth_cb", lambda _: token_for_librdkafka(login, self._clock)
            return
        from barnabas.security.sasl.scopes import Scope

        if login.mechanism == GSSAPI:
            yield from self._librdkafka_kerberos(Scope(self._config(), NAME, self.mechanism))
            return
        with self._as_written():
            module = Scope(self._config(), NAME, self.mechanism).required_login_module()
        if module.options.get("tokenauth", "").lower() == "true":
            raise ConfigError("sasl.jaas.config: librdkafka cannot log in with a delegation token (tokenauth)")
        yield "sasl.username", module.options.get("username", "")
        yield "sasl.password", module.options.get("password", "")

    def _librdkafka_kerberos(self, scope: Scope) -> Iterator[tuple[str, str]]:
        """Yield settings for a librdkafka with GSSAPI. Without a keytab, nothing renews tickets."""
        from barnabas.security.sasl.gssapi.krb5_login import krb5_login

        with self._as_written():
            login = krb5_login(scope)
        yield "sasl.kerberos.service.name", login.service
        if login.principal is not None:
            yield "sasl.kerberos.principal", login.principal
        if login.uses_keytab and login.keytab is not None:
            yield "sasl.kerberos.keytab", login.keytab
        else:
            yield "sasl.kerberos.kinit.cmd", ""

    def _librdkafka_tls(self) -> Iterator[tuple[str, str]]:
        loaded = self.tls
        if loaded is None:
            return
        from cryptography.hazmat.primitives.serialization import Encoding

        from barnabas.security.tls.ciphers import openssl_name

        settings = loaded.settings
        if loaded.trusted is not None:
            yield "ssl.ca.pem", "".join(each.public_bytes(Encoding.PEM).decode() for each in loaded.trusted)
        if loaded.entry is not None:
            yield "ssl.certificate.pem", loaded.entry.chain_pem().decode()
            yield "ssl.key.pem", loaded.entry.key_pem().decode()
        suites = [name for name in map(openssl_name, settings.cipher_suites) if name]
        if suites:
            yield "ssl.cipher.suites", ":".join(suites)
        algorithm = settings.endpoint_identification_algorithm or "none"
        yield "ssl.endpoint.identification.algorithm", algorithm.lower()


def token_for_librdkafka(login: ClientLogin, clock: Clock) -> tuple[str, float]:
    """Return a new token and when it ends, in seconds since 1970: what librdkafka's oauth_cb returns."""
    found = re.search(rb"auth=Bearer ([^\x01]+)", login.begin("").first())
    token = found[1].decode() if found else ""
    ends_s = (clock.wall_ms() + _TOKEN_LIFETIME_MS) / 1000
    with contextlib.suppress(ValueError, IndexError, TypeError):
        payload = token.split(".")[1]
        ends_s = float(json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))).get("exp", ends_s))
    return token, ends_s
