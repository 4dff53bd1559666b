"""The mechanisms that a listener offers, made from its settings.

| mechanism | needs | `sasl.server.callback.handler.class`: takes, returns |
|---|---|---|
| PLAIN | JAAS options `user_NAME="password"` | (user, password): whether it is right |
| SCRAM-SHA-256, -512 | credentials in the metadata log | none |
| OAUTHBEARER | `sasl.oauthbearer.jwks.endpoint.url`, or a JAAS option `unsecured…` | (token): `OAuthToken` |
| GSSAPI | JAAS options `keyTab` and `principal`, `sasl.kerberos.service.name` | none |

Source: SaslChannelBuilder.createServerCallbackHandlers (Kafka 4.3). Different: without a callback handler, Kafka's
OAUTHBEARER accepts tokens without a signature. Here the settings must ask for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from barnabas.common.clock import Clock
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.security.sasl.callbacks import load_callback
from barnabas.security.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, ServerMechanism
from barnabas.security.sasl.plain import USER_OPTION, CheckPassword, PlainServer, passwords_of
from barnabas.security.sasl.scopes import SERVER_HANDLER, ListenerScope, Scope
from barnabas.security.sasl.scram.server import ScramLookup, ScramServer
from barnabas.security.values import ScramMechanism

MECHANISMS: Final = "sasl.enabled.mechanisms"
SUPPORTED: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER, GSSAPI)
#: Kafka's own handler, recognized by name.
_ANY_PASSWORDS: Final = "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler"


class KeySource(Protocol):
    """Keys that a thread keeps current."""

    def take_over(self, before: object) -> None:
        """Use the keys of a former source, if it had them from the same address; before `start`."""

    def start(self) -> None:
        """Begin the thread."""

    def stop(self) -> None:
        """End the thread."""


class Credentials(NamedTuple):
    """What logins are checked against besides the settings."""

    scram: ScramLookup
    secret: Callable[[], bytes]  # the key of false salts (scram/server.py, rule 1)


class ServerSettings(NamedTuple):
    """The SASL of one listener."""

    mechanisms: Mapping[str, Callable[[], ServerMechanism]]  # by name, in the configured order
    max_reauth_ms: Mapping[str, int]  # by name; 0: sessions do not end
    receive_bytes_max: int
    failure_delay_ms: int
    key_sources: tuple[KeySource, ...]  # to be started and stopped


def server_settings(config: Config, listener: str, credentials: Credentials, clock: Clock) -> ServerSettings:
    """Return the SASL of a listener; raises ConfigError."""
    scope = ListenerScope(config, listener)
    enabled = tuple(dict.fromkeys(scope.value(MECHANISMS)))
    if not enabled:
        raise ConfigError(f"listener {listener}: {MECHANISMS} names no mechanism")
    builder = _Builder(config, listener, credentials, clock)
    return ServerSettings(
        mechanisms={mechanism: builder.factory(mechanism) for mechanism in enabled},
        max_reauth_ms={name: int(Scope(config, listener, name).value("connections.max.reauth.ms")) for name in enabled},
        receive_bytes_max=int(scope.value("sasl.server.max.receive.size")),
        failure_delay_ms=int(scope.value("connection.failed.authentication.delay.ms")),
        key_sources=tuple(builder.key_sources),
    )


class _Builder:
    def __init__(self, config: Config, listener: str, credentials: Credentials, clock: Clock) -> None:
        self._config = config
        self._listener = listener
        self._credentials = credentials
        self._clock = clock
        self.key_sources: list[KeySource] = []

    def factory(self, mechanism: str) -> Callable[[], ServerMechanism]:
        if mechanism not in SUPPORTED:
            raise ConfigError(
                f"listener {self._listener}: {MECHANISMS} has {mechanism}, which is not supported here; "
                f"supported are {', '.join(SUPPORTED)}"
            )
        scope = Scope(self._config, self._listener, mechanism)
        scope.login_module()  # Why also for SCRAM, which has its users elsewhere: a mistake in it is one
        if mechanism == PLAIN:
            return self._plain(scope)
        if mechanism in (SCRAM_SHA_256, SCRAM_SHA_512):
            return self._scram(scope)
        if mechanism == OAUTHBEARER:
            return self._oauthbearer(scope)
        from barnabas.security.sasl.gssapi.server_settings import kerberos_server  # Why here: it brings a library

        return kerberos_server(scope)

    def _plain(self, scope: Scope) -> Callable[[], ServerMechanism]:
        handler = scope.own(SERVER_HANDLER)
        check: CheckPassword
        if handler is None or handler == _ANY_PASSWORDS:
            options = scope.required_login_module().options
            if not any(name.startswith(USER_OPTION) for name in options):
                raise ConfigError(
                    f'{scope.name("sasl.jaas.config")} has no option {USER_OPTION}NAME="password", so nobody could log '
                    "in with PLAIN"
                )
            check = passwords_of(options)
        else:
            check = load_callback(scope.name(SERVER_HANDLER), handler)
        return lambda: PlainServer(check)

    def _scram(self, scope: Scope) -> Callable[[], ServerMechanism]:
        handler = scope.own(SERVER_HANDLER)
        if handler is not None:
            raise ConfigError(f"{scope.name(SERVER_HANDLER)}: SCRAM has its credentials in the metadata log")
        mechanism = ScramMechanism[scope.mechanism.replace("-", "_")]
        lookup, secret = self._credentials
        return lambda: ScramServer(mechanism, lookup, secret())

    def _oauthbearer(self, scope: Scope) -> Callable[[], ServerMechanism]:
        from barnabas.security.sasl.oauthbearer.server_settings import bearer_server  # Why here: loads much

        begin, keys = bearer_server(scope, self._clock)
        if keys is not None:
            self.key_sources.append(keys)
        return begin
