"""Listeners: the addresses that a node listens on, and those that it advertises.

Rules
1. A listener has one of Kafka's four security protocols; any other is refused at start, in one line.
2. Names are upper case. Without a `listener.security.protocol.map`, the controller's listener names mean PLAINTEXT,
   unless a listener is named after another protocol: then each needs a mapping.

Source: Kafka 4.3, SocketServerConfigs, AbstractKafkaConfig.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from barnabas.config.errors import ConfigError

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
PROTOCOLS: Final = (PLAINTEXT, SSL, "SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS: Final = (SSL, "SASL_SSL")
LOGIN_PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")

#: Keys that may be set for one listener: `listener.name.<listener in lower case>.<key>`.
LISTENER_LIMITS: Final = ("max.connections", "max.connection.creation.rate", "num.network.threads")
LOGIN_KEYS: Final = ("connections.max.reauth.ms", "connection.failed.authentication.delay.ms")
#: Settings of logins that can change at run time for one listener, or one of its mechanisms, only. Why not those that
#: name code or an address: a client that may change settings need not be allowed to run programs as the broker.
LOGINS_AT_RUN_TIME: Final = (
    *LOGIN_KEYS,
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "sasl.server.max.receive.size",
)
#: Settings of logins that say only when a node renews its own ticket or token. They protect nothing.
RENEWAL_KEYS: Final = (
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
)
#: Settings of a key store and a trust store, wherever there is TLS.
SSL_STORE_KEYS: Final = (
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
SSL_KEYS: Final = (
    *SSL_STORE_KEYS,
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.principal.mapping.rules",
    "ssl.protocol",
)
#: Of the keys for one listener, those without effect on connections to it.
ACCEPTING_KEYS: Final = (
    *LISTENER_LIMITS,
    *LOGIN_KEYS,
    "sasl.enabled.mechanisms",
    "sasl.server.callback.handler.class",
    "sasl.server.max.receive.size",
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
)
LISTENER_KEYS: Final = LISTENER_LIMITS + LOGIN_KEYS + SSL_KEYS
#: Groups of keys that may be set for one listener too; those of SASL also for one of its mechanisms:
#: `listener.name.<listener>.<mechanism in lower case>.<key>`.
LISTENER_GROUPS: Final = ("sasl.",)

#: The mechanisms that keys can name, as they name them.
MECHANISM_NAMES: Final = ("gssapi", "oauthbearer", "plain", "scram-sha-256", "scram-sha-512")

# Patterns are compiled at their first use, not at the start.
_URI: Final = r"(.*)://\[?([0-9a-zA-Z\-._%:]*)\]?:(-?[0-9]+)"
_VOTER: Final = r"([0-9]+)@(.+)"


class Listener(NamedTuple):
    """One address. `host` "" means all interfaces, `port` 0 any free one."""

    name: str
    security_protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def is_any_address(host: str) -> bool:
    """Return whether a host is 0.0.0.0 or [::], in any spelling: all interfaces, when a socket listens there."""
    try:
        return not any(socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host))
    except OSError:
        return False


def limit_of_host(item: str) -> tuple[str, str]:
    """Return the two texts of an item of max.connections.per.ip.overrides: a host, without brackets, and its limit."""
    host, _, limit = item.rpartition(":")
    return host.strip().strip("[]"), limit.strip()


def base_name(name: str) -> str:
    """Return the key behind `listener.name.<listener>.<key>`; any other name is its own."""
    return name.split(".", 3)[3] if name.startswith("listener.name.") and name.count(".") >= 3 else name


def listener_of(name: str) -> str | None:
    """Return the listener, in upper case, that a key is for; None for a key without one."""
    return None if base_name(name) == name else name.split(".", 3)[2].upper()


def is_for_logins(key: str) -> bool:
    """Return whether a key configures logins, so that it may be set for one mechanism of a listener."""
    return key in LOGIN_KEYS or key.startswith(LISTENER_GROUPS)


def is_for_listeners(key: str) -> bool:
    """Return whether a key may be set for one listener."""
    return key in LISTENER_KEYS or key.startswith(LISTENER_GROUPS)


def parse_protocol_map(text: str, controller_names: Sequence[str], *, is_default: bool) -> dict[str, str]:
    """Return the security protocol of each listener name."""
    protocols = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, separator, protocol = item.rpartition(":")
        if not separator:
            raise ConfigError(f"listener.security.protocol.map: expected NAME:PROTOCOL, not {item!r}")
        protocol = protocol.strip().upper()
        if protocol not in PROTOCOLS:
            raise ConfigError(f"Invalid security protocol `{protocol}` defined in listener.security.protocol.map")
        protocols[name.strip().upper()] = protocol
    if is_default:
        for name in controller_names:
            protocols.setdefault(name.upper(), PLAINTEXT)
    return protocols


def parse_listeners(key: str, uris: Sequence[str], protocols: Mapping[str, str]) -> tuple[Listener, ...]:
    """Return the listeners that `key` lists; raise ConfigError for invalid or unsupported ones."""
    return tuple(_parse_uri(key, uri, protocols) for uri in uris)


def check_listeners(key: str, listeners: Sequence[Listener], *, distinct_ports: bool) -> None:
    """Raise ConfigError if two listeners share a name, or a port (unless one is IPv4 and the other IPv6)."""
    shown = ",".join(map(str, listeners))
    if len({listener.name for listener in listeners}) != len(listeners):
        raise ConfigError(f"{key}: Each listener must have a different name, listeners: {shown}")
    if not distinct_ports:
        return
    by_port: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port:
            by_port.setdefault(listener.port, []).append(listener)
    for same in by_port.values():
        if len(same) > 1 and sorted(_ip_version(listener.host) for listener in same) != [4, 6]:
            raise ConfigError(f"{key}: Each listener must have a different port, listeners: {shown}")


def parse_addresses(key: str, items: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Return `host:port` items as pairs."""
    addresses = []
    for item in items:
        host, separator, port = item.rpartition(":")
        if not separator or not port.isdecimal() or not 0 <= int(port) <= 65535 or not host:
            raise ConfigError(f"Invalid value {item} for configuration {key}: expected host:port")
        addresses.append((host.strip("[]"), int(port)))
    return tuple(addresses)


def parse_voters(items: Sequence[str]) -> dict[int, tuple[str, int]]:
    """Return the address of each controller of `id@host:port` items."""
    voters = {}
    for item in items:
        match = re.fullmatch(_VOTER, item)
        if match is None:
            raise ConfigError(f"Invalid value {item} for configuration controller.quorum.voters: expected id@host:port")
        voters[int(match[1])] = parse_addresses("controller.quorum.voters", (match[2],))[0]
    return voters


def _parse_uri(key: str, uri: str, protocols: Mapping[str, str]) -> Listener:
    match = re.fullmatch(_URI, uri.strip())
    if match is None:
        raise ConfigError(f"Invalid value {uri} for configuration {key}: expected NAME://host:port")
    name, host, port = match[1].upper(), match[2], int(match[3])
    if not 0 <= port <= 65535:
        raise ConfigError(f"Invalid value {uri} for configuration {key}: port {port} is not between 0 and 65535")
    protocol = protocols.get(name)
    if protocol is None:
        raise ConfigError(
            f"{key}: No security protocol defined for listener {name}; name it in listener.security.protocol.map"
        )
    return Listener(name, protocol, host, port)


def _ip_version(host: str) -> int:
    for family, version in ((socket.AF_INET, 4), (socket.AF_INET6, 6)):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return version
    return 0
