"""Logins of connections to a real listener (connection.py), and the settings that they come from (security.py)."""

from __future__ import annotations

import pytest

from barnabas.client.connection import NodeConnection
from barnabas.client.errors import NodeConnectionError, NodeLoginError
from barnabas.client.security import ClientSecurity, check_security, security_of_brokers, security_of_controller
from barnabas.common.clock import FakeClock, SystemClock
from barnabas.config.config import Config
from barnabas.config.errors import ConfigError
from barnabas.metrics.table import catalogue as c
from barnabas.protocol.messages.k12_heartbeat import HeartbeatRequest
from barnabas.security.sasl.mechanism import ClientLogin
from barnabas.security.sasl.plain import PlainClient
from barnabas.security.tls.endpoints import TlsEndpoints
from tests.broker.network.sasl.test_logins import SaslNetwork

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="n" password="s";'
PROTOCOLS = "CONTROLLER:SASL_PLAINTEXT,INSIDE:SASL_PLAINTEXT,OUTSIDE:PLAINTEXT"


def config(**settings: str) -> Config:
    names = {name.replace("_", "."): text for name, text in settings.items()}
    return Config.from_properties({"node.id": "1", **names})


TLS = TlsEndpoints({}, FakeClock().wall_ms)


def test_brokers_and_controllers_have_mechanisms_of_their_own() -> None:
    found = config(
        listener_security_protocol_map=PROTOCOLS,
        inter_broker_listener_name="INSIDE",
        listeners="INSIDE://:1,OUTSIDE://:2",
        sasl_mechanism_inter_broker_protocol="PLAIN",
        sasl_mechanism_controller_protocol="SCRAM-SHA-256",
        listener_name_inside_plain_sasl_jaas_config=PLAIN,
    )
    brokers = security_of_brokers(TLS, found, FakeClock())
    assert brokers is not None
    assert brokers.login is not None
    assert brokers.tls is None
    assert brokers.login.mechanism == "PLAIN"
    assert brokers.login.begin("localhost").first() == b"\0n\0s"
    with pytest.raises(ConfigError, match=r"listener\.name\.controller\.scram-sha-256\.sasl\.jaas\.config must be set"):
        security_of_controller(TLS, found, FakeClock())


def test_a_changed_password_is_used_at_the_next_login(caplog: pytest.LogCaptureFixture) -> None:
    settings = {
        "listener_security_protocol_map": PROTOCOLS,
        "inter_broker_listener_name": "INSIDE",
        "listeners": "INSIDE://:1,OUTSIDE://:2",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        "listener_name_inside_plain_sasl_jaas_config": PLAIN,
    }
    found = config(**settings)
    file = found.with_overrides({})
    brokers = security_of_brokers(TLS, found, FakeClock())
    assert brokers is not None
    assert brokers.login is not None
    key = "listener.name.inside.plain.sasl.jaas.config"
    for jaas, first in (
        (PLAIN.replace('"s"', '"new"'), b"\0n\0new"),
        ("no JAAS", b"\0n\0new"),
        (PLAIN, b"\0n\0s"),
    ):
        found.replace(file.with_overrides({key: jaas}))
        assert brokers.login.begin("localhost").first() == first
    assert "logins to other nodes go on as before" in caplog.text


def test_a_broker_needs_a_mechanism_that_it_offers() -> None:
    settings = {
        "listener_security_protocol_map": PROTOCOLS.replace("CONTROLLER:SASL_PLAINTEXT", "CONTROLLER:PLAINTEXT"),
        "inter_broker_listener_name": "INSIDE",
        "listeners": "INSIDE://:1,OUTSIDE://:2",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        "listener_name_inside_plain_sasl_jaas_config": PLAIN,
    }
    check_security(TLS, config(**settings, sasl_enabled_mechanisms="SCRAM-SHA-256,PLAIN"), FakeClock())
    with pytest.raises(ConfigError, match=r"must be included in sasl\.enabled\.mechanisms"):
        check_security(TLS, config(**settings, sasl_enabled_mechanisms="SCRAM-SHA-256"), FakeClock())


def login(user: str, password: str, mechanism: str = "PLAIN") -> ClientSecurity:
    return ClientSecurity(
        "OUTSIDE", "SASL_PLAINTEXT", login=ClientLogin(mechanism, lambda _host: PlainClient(user, password))
    )


def test_a_connection_logs_in_and_again_before_its_session_ends() -> None:
    with SaslNetwork(3_600_000) as network:
        clock = FakeClock()
        port = network.server.port("OUTSIDE")
        with NodeConnection("127.0.0.1", port, clock=clock, security=login("alice", "secret")) as node:
            for _ in range(2):
                assert node.send(HeartbeatRequest(group_id="ok"), 4).error_code == 0
            assert network.principals == ["User:alice"]
            assert network.count(c.SUCCESSFUL_REAUTHENTICATION) == 0
            clock.advance_ms(3_500_000)
            assert node.send(HeartbeatRequest(group_id="ok"), 4).error_code == 0
            assert network.count(c.SUCCESSFUL_REAUTHENTICATION) == 1
            assert network.count(c.SUCCESSFUL_AUTHENTICATION) == 1


@pytest.mark.parametrize(
    ("security", "message"),
    [
        (login("alice", "wrong"), "Authentication failed: Invalid username or password"),
        (login("alice", "secret", "SCRAM-SHA-256"), "does not offer SCRAM-SHA-256, but PLAIN"),
    ],
)
def test_a_login_that_fails_says_why(security: ClientSecurity, message: str) -> None:
    with SaslNetwork() as network:
        node = NodeConnection("127.0.0.1", network.server.port("OUTSIDE"), clock=SystemClock(), security=security)
        for _ in range(2):
            with pytest.raises(NodeLoginError, match=message):
                node.send(HeartbeatRequest(group_id="ok"), 4)
            assert not node.is_connected


def test_a_login_to_a_listener_without_sasl_fails() -> None:
    from tests.support.broker.network import Network

    with Network() as network:
        node = NodeConnection("127.0.0.1", network.server.port("PLAINTEXT"), security=login("alice", "secret"))
        with pytest.raises(NodeConnectionError):
            node.send(HeartbeatRequest(group_id="ok"), 4)
