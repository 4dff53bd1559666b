"""ClientSecurity: how connections to one listener of another node are protected, and how they log in.

| towards | listener | SASL mechanism |
|---|---|---|
| brokers | `inter.broker.listener.name` | `sasl.mechanism.inter.broker.protocol` |
| the controller | the first of `controller.listener.names` | `sasl.mechanism.controller.protocol` |

Made once from the config of the process and given to every factory of connections; each new connection uses the newest
certificates. None stands for PLAINTEXT.

Threads: any; what it refers to is replaced whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.config.errors import ConfigError
from barnabas.config.listeners import PLAINTEXT, TLS_PROTOCOLS
from barnabas.security.sasl.mechanism import ClientLogin
from barnabas.security.sasl.scopes import ListenerScope

if TYPE_CHECKING:
    from barnabas.common.clock import Clock
    from barnabas.config.config import Config
    from barnabas.security.tls.endpoints import TlsEndpoint, TlsEndpoints
    from barnabas.security.tls.session import TlsSession

_BROKERS_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
_CONTROLLERS_MECHANISM: Final = "sasl.mechanism.controller.protocol"


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """See the module."""

    listener_name: str
    protocol: str
    tls: TlsEndpoint | None = None  # None for protocols without TLS
    login: ClientLogin | None = None  # None for protocols without SASL

    def session(self, host: str) -> TlsSession | None:
        """Return a TLS session with a host, whose name is compared with its certificate if the config says so."""
        if self.tls is None:
            return None
        from barnabas.security.tls.session import TlsSession  # Why here: it loads OpenSSL

        return TlsSession(self.tls.client_context, is_server=False, server_hostname=host)


def security_of(
    endpoints: TlsEndpoints, config: Config, listener_name: str, protocol: str, clock: Clock
) -> ClientSecurity | None:
    """Return how to connect to a broker's listener; raises ConfigError if certificates or a login cannot be used."""
    mechanism = ListenerScope(config, listener_name).value(_BROKERS_MECHANISM)
    return _security(endpoints, config, listener_name, protocol, (_BROKERS_MECHANISM, mechanism), clock)


def security_of_brokers(endpoints: TlsEndpoints, config: Config, clock: Clock) -> ClientSecurity | None:
    """Return how brokers connect to each other; raises ConfigError."""
    name = config.inter_broker_listener_name
    return security_of(endpoints, config, name, config.listener_protocols.get(name, PLAINTEXT), clock)


def check_security(endpoints: TlsEndpoints, config: Config, clock: Clock) -> None:
    """Raise ConfigError if a broker with these settings could not connect to other nodes, or such a one to it."""
    security_of_brokers(endpoints, config, clock)
    security_of_controller(endpoints, config, clock)
    name = config.inter_broker_listener_name
    scope = ListenerScope(config, name)
    if (
        config.listener_protocols.get(name, PLAINTEXT).startswith("SASL_")
        and scope.value(_BROKERS_MECHANISM) not in scope.value("sasl.enabled.mechanisms")
    ):  # fmt: skip
        raise ConfigError(
            f"{_BROKERS_MECHANISM} must be included in sasl.enabled.mechanisms when SASL is used for inter-broker "
            "communication"
        )


def security_of_controller(endpoints: TlsEndpoints, config: Config, clock: Clock) -> ClientSecurity | None:
    """Return how brokers connect to the controller; raises ConfigError."""
    name = str(config.controller_listener_names[0]).upper()
    mechanism = ListenerScope(config, name).value(_CONTROLLERS_MECHANISM)
    protocol = config.listener_protocols.get(name, PLAINTEXT)
    return _security(endpoints, config, name, protocol, (_CONTROLLERS_MECHANISM, mechanism), clock)


def _security(
    endpoints: TlsEndpoints, config: Config, name: str, protocol: str, mechanism: tuple[str, str], clock: Clock
) -> ClientSecurity | None:
    if protocol == PLAINTEXT:
        return None
    login = None
    if protocol.startswith("SASL_"):
        from barnabas.security.sasl.client_settings import current_login  # Why here: not loaded without SASL

        login = current_login(config, name, mechanism[1], mechanism[0], clock)
    tls = endpoints.peer(name, protocol) if protocol in TLS_PROTOCOLS else None
    return ClientSecurity(name, protocol, tls, login)
