"""Settings without effect: protective ones are refused, the others reported in one line for each reason."""

from __future__ import annotations

import logging

import pytest

from barnabas.config import Config, ConfigError
from barnabas.config.effect import HARMLESS, NAMES_MAX, PROTECTIVE, protects, reason_without_effect, warnings
from barnabas.config.listeners import is_for_logins
from barnabas.config.properties import from_environment
from barnabas.config.table.keys import BROKER_KEYS, TABLE, Scope

SMALL = {"node.id": "1", "controller.quorum.bootstrap.servers": "h:1"}

SASL = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"}


def start(settings: dict[str, str], role: str = "broker") -> Config:
    return Config.from_properties({**SMALL, **settings}, role)


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"ssl.provider": "P", "ssl.engine.factory.class": "E"}, "ssl.engine.factory.class, ssl.provider are "),
        ({"ssl.keystore.filename": "k"}, "ssl.keystore.filename is not supported: TLS has no such setting"),
        ({"listener.name.plaintext.ssl.provider": "P"}, "listener.name.plaintext.ssl.provider is "),
        ({"listener.name.plaintext.scram-sha-256.sasl.jaas.config": "j"}, "no listener uses SASL"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, "no listener uses SASL, so no client would be authenticated"),
        ({"principal.builder.class": "org.example.P"}, "principal.builder.class"),
        ({"connections.max.reauth.ms": "1000"}, "connections.max.reauth.ms"),
        (
            {**SASL, "listener.name.a.plian.sasl.jaas.config": "j"},
            "plian is no mechanism; those are gssapi, oauthbearer",
        ),
        ({**SASL, "listener.name.a.PLAIN.connections.max.reauth.ms": "9"}, "PLAIN is no mechanism; those are gssapi"),
        ({**SASL, "sasl.jaas.config": "j"}, "sasl.jaas.config has no effect: it must be set for a mechanism of a"),
        ({"sasl.kerberos.service.name": "k"}, "sasl.kerberos.service.name is not supported: no listener uses SASL"),
        ({**SASL, "sasl.login.class": "org.example.L"}, "sasl.login.class is not supported: no such classes can"),
    ],
)
def test_protective_settings_are_refused(settings: dict[str, str], named: str, role: str) -> None:
    with pytest.raises(ConfigError) as caught:
        start(settings, role)
    message = str(caught.value)
    assert named in message
    assert "\n" not in message


def test_no_value_is_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        start({"delegation.token.secret.key": "s3cret", "ssl.provider": "s3cret"})
    assert "s3cret" not in str(caught.value)


def test_environment_variables_are_refused_as_well() -> None:
    with pytest.raises(ConfigError, match=r"sasl\.enabled\.mechanisms is not supported"):
        start(from_environment({"KAFKA_SASL_ENABLED_MECHANISMS": "PLAIN"}))


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.client.auth": "none"},
        {"ssl.keystore.location": ""},
        {"authorizer.class.name": ""},
        {"connections.max.reauth.ms": "0"},
        {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,UNUSED:SSL"},
    ],
)
def test_values_that_request_no_protection_are_accepted(settings: dict[str, str]) -> None:
    start(settings)


def test_a_file_read_without_a_role_is_not_refused() -> None:
    """`barnabas doctor` reads the settings of any broker."""
    Config.from_properties({"ssl.keystore.location": "/k"})


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"num.io.thread": "4"}, ["unknown config key is ignored: num.io.thread (did you mean num.io.threads?)"]),
        ({"zz": "1", "my.key": "2"}, ["unknown config keys are ignored: my.key, zz"]),
        (
            {"share.coordinator.threads": "2", "share.coordinator.append.linger.ms": "6", "metric.reporters": "M"},
            [
                "share.coordinator.append.linger.ms, share.coordinator.threads have no effect: coordinators "
                "append at once, on the thread of the request, and keep no buffers",
                "metric.reporters has no effect: metrics are read from the /metrics page",
            ],
        ),
        (
            {"group.coordinator.threads": "1", "share.coordinator.threads": "2"},
            [
                "group.coordinator.threads, share.coordinator.threads have no effect: coordinators append at once, on "
                "the thread of the request, and keep no buffers"
            ],
        ),
        ({"ssl.client.auth": "required"}, ["ssl.client.auth has no effect: no listener uses TLS"]),
        (
            {"sasl.login.refresh.buffer.seconds": "9"},
            ["sasl.login.refresh.buffer.seconds has no effect: no listener uses SASL"],
        ),
        ({**SASL, "sasl.login.refresh.buffer.seconds": "9"}, []),
        (
            {"ssl.client.auth": "required", "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"},
            [],
        ),
        (
            {"ssl.secure.random.implementation": "SHA1PRNG"},
            ["ssl.secure.random.implementation has no effect: OpenSSL makes this choice"],
        ),
        (
            {"sasl.kerberos.kinit.cmd": "/usr/local/bin/kinit"},
            ["sasl.kerberos.kinit.cmd has no effect: no program renews tickets: libkrb5 gets new ones with a keytab"],
        ),
        (
            {"listener.name.plaintxt.max.connections": "9"},
            ["listener.name.plaintxt.max.connections has no effect: there is no such listener"],
        ),
        (
            {"listener.name.plaintext.num.io.threads": "9"},
            [
                "listener.name.plaintext.num.io.threads has no effect: only max.connections, "
                "max.connection.creation.rate, num.network.threads and settings of TLS and SASL can be set for one "
                "listener"
            ],
        ),
        ({"listener.name.plaintext.max.connections": "9", "listener.name.controller.num.network.threads": "1"}, []),
        (
            {"transaction.two.phase.commit.enable": "true"},
            [
                "transaction.two.phase.commit.enable has no effect: InitProducerId v6 is unstable, and needs "
                "unstable.api.versions.enable=true"
            ],
        ),
        (
            {"create.topic.policy.class.name": "policies:Names"},
            ["create.topic.policy.class.name has no effect on a broker: controllers ask policies"],
        ),
        ({"transaction.two.phase.commit.enable": "true", "unstable.api.versions.enable": "true"}, []),
        ({"log.retention.hours": "9", "barnabas.metrics.port": "0"}, []),
    ],
)
def test_other_settings_without_effect_are_reported_by_reason(
    settings: dict[str, str], expected: list[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.config.config._warned", set())
    with caplog.at_level(logging.WARNING, "barnabas.config"):
        for _ in range(2):
            start(settings)
    assert [record.getMessage() for record in caplog.records] == expected


def test_a_controller_connects_to_listeners_of_brokers(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.config.config._warned", set())
    settings = {
        "process.roles": "controller",
        "listeners": "CONTROLLER://h:1",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INTERNAL:SSL",
        "listener.name.internal.ssl.keystore.type": "PEM",
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.internal.num.network.threads": "1",
        "listener.name.other.ssl.keystore.type": "PEM",
    }
    with caplog.at_level(logging.WARNING, "barnabas.config"):
        start(settings, "controller")
    assert [record.getMessage() for record in caplog.records] == [
        "listener.name.internal.num.network.threads, listener.name.internal.ssl.client.auth, "
        "listener.name.other.ssl.keystore.type have no effect: there is no such listener"
    ]


def test_a_value_for_one_listener_is_checked() -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.plaintext\.max\.connections"):
        start({"listener.name.plaintext.max.connections": "many"})


def test_topics_and_groups() -> None:
    assert list(warnings(Scope.TOPIC, ["retention.ms", "local.retention.ms"])) == [
        "local.retention.ms has no effect: there is no tiered storage"
    ]
    assert list(warnings(Scope.GROUP, ["share.isolation.level", "streams.session.timeout.ms"])) == []


def test_names_from_clients_do_not_fill_the_log() -> None:
    (line,) = warnings(Scope.BROKER, ["a\nERROR b", "c" * 30_000, *(f"k{n:03}" for n in range(500))])
    assert "\n" not in line
    assert f"and {502 - NAMES_MAX} more" in line
    assert len(line) < 1000


@pytest.mark.parametrize("key", TABLE, ids=lambda key: f"{key.scope.value}:{key.name}")
def test_only_keys_without_effect_are_warned_of(key) -> None:  # type: ignore[no-untyped-def]
    assert bool(list(warnings(key.scope, [key.name]))) != key.honoured


@pytest.mark.parametrize("key", TABLE, ids=lambda key: f"{key.scope.value}:{key.name}")
def test_a_key_without_effect_has_a_reason(key) -> None:  # type: ignore[no-untyped-def]
    reason = reason_without_effect(key)
    assert bool(reason) != key.honoured
    if not key.honoured:
        (line,) = warnings(key.scope, [key.name])
        assert line == f"{key.name} has no effect: {reason}"


def test_each_row_names_a_key() -> None:
    """A row without a key would be a typo."""
    for missing in (*PROTECTIVE, *HARMLESS):
        for name in missing.keys:
            known = [key.name for key in TABLE if missing.has(key.name)]
            assert any(key == name or (name.endswith(".") and key.startswith(name)) for key in known), name


def test_internal_keys_of_kafka_are_known() -> None:
    name = "share.coordinator.state.topic.prune.interval.ms"
    assert list(warnings(Scope.BROKER, [name])) == [f"{name} has no effect: the times of this task are fixed"]


def test_no_protective_key_can_be_set_at_run_time() -> None:
    """Those of logins have an effect where a listener has logins, and are refused elsewhere (DynamicConfig)."""
    live = [key.name for key in BROKER_KEYS.values() if key.live and not is_for_logins(key.name)]
    assert [name for name in live if protects(name)] == []


def test_config_providers_cannot_be_set_at_run_time() -> None:
    assert protects("config.providers") is not None
    assert protects("config.providers.file.class") is not None
    assert list(warnings(Scope.BROKER, ["config.providers", "config.providers.file.class"])) == []
