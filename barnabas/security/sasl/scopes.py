"""Where a setting of SASL is found: for one mechanism of one listener, for the listener, for all.

Rules
1. A key is looked up as `listener.name.<listener>.<mechanism>.<key>`, then `listener.name.<listener>.<key>`, then
   `<key>`; listener and mechanism in lower case.
2. The login entry and the callbacks belong to one mechanism, so only the first form counts.
3. The entry names a login module of the mechanism, since another one's options would mean something else. With a
   callback of the operator's own it may be any.

Source: ChannelBuilders.channelBuilderConfigs, JaasContext, SaslChannelBuilder (Kafka 4.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from barnabas.common import digests
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.config.listeners import LISTENER_GROUPS, LOGIN_KEYS
from barnabas.config.table.keys import BROKER_KEYS
from barnabas.security.image import SecurityImage
from barnabas.security.sasl.jaas import JaasError, LoginModule, parse_jaas
from barnabas.security.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512

JAAS: Final = "sasl.jaas.config"
SERVER_HANDLER: Final = "sasl.server.callback.handler.class"
LOGIN_HANDLER: Final = "sasl.login.callback.handler.class"
_PACKAGE: Final = "org.apache.kafka.common.security."
_SCRAM: Final = (f"{_PACKAGE}scram.ScramLoginModule",)
#: The login modules of each mechanism (rule 3); errors name the first one.
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    PLAIN: (f"{_PACKAGE}plain.PlainLoginModule",),
    SCRAM_SHA_256: _SCRAM,
    SCRAM_SHA_512: _SCRAM,
    OAUTHBEARER: (f"{_PACKAGE}oauthbearer.OAuthBearerLoginModule",),
    GSSAPI: ("com.sun.security.auth.module.Krb5LoginModule", "com.ibm.security.auth.module.Krb5LoginModule"),
}


class ListenerScope:
    """The settings of one listener."""

    def __init__(self, config: Config, listener: str) -> None:
        self._config = config
        self.listener = listener
        self._prefix = f"listener.name.{listener.lower()}."

    def value(self, key: str) -> Any:
        """Return a setting (rule 1); raises ConfigError for an invalid one."""
        for name in self._names(key):
            text = self._config.current.get(name)
            if text is not None:
                return BROKER_KEYS[key]._replace(name=name).parse(text)
        return self._config.value(key)

    def _names(self, key: str) -> tuple[str, ...]:
        return (self._prefix + key,)


class Scope(ListenerScope):
    """The settings of one mechanism of one listener."""

    def __init__(self, config: Config, listener: str, mechanism: str) -> None:
        super().__init__(config, listener)
        self.mechanism = mechanism

    def name(self, key: str) -> str:
        """Return the full name that a person writes for this mechanism."""
        return f"{self._prefix}{self.mechanism.lower()}.{key}"

    def own(self, key: str) -> str | None:
        """Return a setting that belongs to the mechanism (rule 2); None if it is missing or empty."""
        text = self._config.current.get(self.name(key))
        return text.strip() or None if text is not None else None

    def login_module(self) -> LoginModule | None:
        """Return the JAAS entry; raises ConfigError if it cannot be used. No option's value is in the error."""
        text = self.own(JAAS)
        if text is None:
            return None
        try:
            module = parse_jaas(text)
        except JaasError as error:
            raise ConfigError(f"{self.name(JAAS)}: {error}") from error
        fitting = MODULES[self.mechanism]
        # Why the dot: applications that contain Kafka's client put a prefix before the names of its packages
        is_fitting = f".{module.name}".endswith(tuple(f".{name}" for name in fitting))
        if not is_fitting and not self._has_callback():
            raise ConfigError(
                f"{self.name(JAAS)}: {module.name} is no login module of {self.mechanism}: use {fitting[0]}"
            )
        return module

    def required_login_module(self) -> LoginModule:
        """Return the JAAS entry; raises ConfigError if there is none."""
        module = self.login_module()
        if module is None:
            raise ConfigError(f"listener {self.listener} uses {self.mechanism}, so {self.name(JAAS)} must be set")
        return module

    def _has_callback(self) -> bool:
        """Return whether a callback of the operator's own is set, and not a class of Kafka's."""
        return any(":" in (self.own(key) or "") for key in (SERVER_HANDLER, LOGIN_HANDLER))

    def _names(self, key: str) -> tuple[str, ...]:
        return self.name(key), *super()._names(key)


def login_texts(texts: Mapping[str, str], listener: str) -> dict[str, str]:
    """Return the settings, as texts, that logins on a listener are made from."""
    prefixes = (f"listener.name.{listener.lower()}.", *LISTENER_GROUPS)
    return {name: text for name, text in texts.items() if name.startswith(prefixes) or name in LOGIN_KEYS}


def false_salt_secret(config: Config, cluster_id: str, image: SecurityImage) -> bytes:
    """Return the key of the salts of users that do not exist: the same on all nodes and after a restart.

    Nobody outside knows `delegation.token.secret.key`. Without it, the secret is in the metadata log, once there is a
    user whom false salts could hide.
    """
    key, logged = config.delegation_token_secret_key, image.false_salts
    parts = ("false salts", cluster_id, "" if key is None else key.value)
    secret = logged.stored_key if key is None and logged is not None else b""
    return digests.digest("sha256", "\0".join(parts).encode() + secret)
