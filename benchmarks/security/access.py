"""How the clients of a measurement connect to a system: without TLS and SASL, or as users over SASL_SSL.

Both systems are secured by the same code, `barnabas up --security sasl_ssl`: keys and certificates of one kind (P-256,
one authority), SCRAM-SHA-512, TLS between nodes, the StandardAuthorizer with the nodes and `admin` as super users. The
clients demand one version of TLS and one cipher suite.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from barnabas.cluster import HOST, Node
from barnabas.cluster.security.client_settings import SCRAM, java, librdkafka
from barnabas.cluster.security.cluster_security import ADMIN, SASL_SSL, ClusterSecurity
from barnabas.common.clock import SystemClock

USER = "bench"
TLS_VERSION, CIPHER_SUITE = "TLSv1.3", "TLS_AES_256_GCM_SHA384"
INTERNAL = "INTERNAL"
LIST_TIMEOUT_S = 2
_PASSWORD_BYTES = 18


@dataclass(frozen=True, slots=True)
class Access:
    """Settings of clients, beside bootstrap.servers."""

    java: Mapping[str, str]  # of the Java clients that load a system
    librdkafka: Mapping[str, str]  # of the client that creates topics

    def admin(self, bootstrap: str) -> AdminClient:
        """Return a client that may do everything."""
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, **self.librdkafka}
        return AdminClient(settings)

    def listed_brokers(self, bootstrap: str) -> int:
        """Return the number of brokers that a broker lists; 0 while it does not respond, or refuses the login."""
        try:
            # Why a new client: librdkafka waits for up to ten seconds after some failures.
            return len(self.admin(bootstrap).list_topics(timeout=LIST_TIMEOUT_S).brokers)
        except KafkaException:
            return 0


OPEN = Access({}, {})


def secure(directory: Path) -> ClusterSecurity:
    """Create keys and passwords for a system, in its directory."""
    password = secrets.token_urlsafe(_PASSWORD_BYTES)
    return ClusterSecurity(directory, SASL_SSL, {USER: password}, SystemClock().wall_ms())


def access_to(security: ClusterSecurity) -> Access:
    """Return how clients connect to a secured system."""
    chosen = {"ssl.enabled.protocols": TLS_VERSION, "ssl.cipher.suites": CIPHER_SUITE}
    return Access({**java(security.login(USER)), **chosen}, librdkafka(security.login(ADMIN)))


def apache_properties(security: ClusterSecurity, directory: Path, ports: tuple[int, int, int]) -> dict[str, str]:
    """Write the keys of a single node of Apache Kafka; return the properties that secure it.

    `ports` are those of clients, of the controller, and of other brokers.
    """
    client_port, controller_port, internal_port = ports
    node = Node("broker", 0, client_port, -1, directory)
    security.prepare([node], f"{HOST}:{client_port}")
    listeners = f"{SASL_SSL}://{HOST}:{client_port},{INTERNAL}://{HOST}:{internal_port}"
    return {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": listeners,
        "inter.broker.listener.name": INTERNAL,
        **security.properties(node, [node.name], INTERNAL),
        "listener.name.controller.ssl.client.auth": "required",  # it is the controller, too
    }


def scram_options(security: ClusterSecurity) -> list[str]:
    """Return the options with which kafka-storage creates the users."""
    users = security.users.items()
    return [word for name, key in users for word in ("--add-scram", f"{SCRAM}=[name={name},password={key}]")]
