"""ClientSecurity: how connections to one listener of another node are protected.

Made once from the config of the process and given to every factory of connections; each new connection uses the newest
certificates. None stands for PLAINTEXT.

Threads: any; what it refers to is replaced whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.config.listeners import PLAINTEXT
from barnabas.security.tls.session import TlsSession

if TYPE_CHECKING:
    from barnabas.config.config import Config
    from barnabas.security.tls.endpoints import TlsEndpoint, TlsEndpoints


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """See the module."""

    listener_name: str
    protocol: str
    tls: TlsEndpoint | None = None  # None for protocols without TLS

    def session(self, host: str) -> TlsSession | None:
        """Return a TLS session with a host, whose name is compared with its certificate if the config says so."""
        if self.tls is None:
            return None
        return TlsSession(self.tls.client_context, is_server=False, server_hostname=host)


def security_of(endpoints: TlsEndpoints, listener_name: str, protocol: str) -> ClientSecurity | None:
    """Return how to connect to a listener; raises ConfigError if its certificates cannot be loaded."""
    if protocol == PLAINTEXT:
        return None
    return ClientSecurity(listener_name, protocol, endpoints.peer(listener_name, protocol))


def security_of_brokers(endpoints: TlsEndpoints, config: Config) -> ClientSecurity | None:
    """Return how brokers connect to each other."""
    name = config.inter_broker_listener_name
    return security_of(endpoints, name, config.listener_protocols.get(name, PLAINTEXT))


def security_of_controller(endpoints: TlsEndpoints, config: Config) -> ClientSecurity | None:
    """Return how brokers connect to the controller: by the first of controller.listener.names."""
    name = str(config.controller_listener_names[0]).upper()
    return security_of(endpoints, name, config.listener_protocols.get(name, PLAINTEXT))
