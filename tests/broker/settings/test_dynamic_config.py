"""DynamicConfig: pushed configs take effect in the right order, and bad values do no harm."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.settings.dynamic_config import DynamicConfig, Resource, ResourceType, keep_logs_configured
from barnabas.common.topic_partition import TopicPartition
from barnabas.config import Config, ConfigError, TopicConfig
from barnabas.protocol.metadata_records import ConfigRecord

BROKER, TOPIC, GROUP = ResourceType.BROKER, ResourceType.TOPIC, ResourceType.GROUP


def record(type_: int, resource: str, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=type_, resource_name=resource, name=name, value=value)


@pytest.fixture
def dynamic() -> DynamicConfig:
    settings = {"node.id": "1", "controller.quorum.bootstrap.servers": "h:1", "min.insync.replicas": "3"}
    return DynamicConfig(Config.from_properties(settings, "broker"))


def test_this_brokers_value_overrides_all_brokers_and_both_override_the_file(dynamic: DynamicConfig) -> None:
    config = dynamic.config
    for type_name, value, expected in (("", "4", 4), ("1", "5", 5), ("2", "6", 5), ("", None, 5), ("1", None, 3)):
        dynamic.apply_records([record(BROKER, type_name, "min.insync.replicas", value)], is_full=False)
        assert config.min_insync_replicas == expected
        assert dynamic.topic_config("t").min_insync_replicas == expected


@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext."])
@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_no_limit_locks_everyone_out_at_run_time(
    dynamic: DynamicConfig, name: str, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    for broker in ("", "1"):
        with pytest.raises(ConfigError, match=f"^Invalid {name} 0$"):
            dynamic.check_broker_change(broker, {prefix + name: "0"})
        dynamic.check_broker_change(broker, {prefix + name: "1"})
    dynamic.apply_records([record(BROKER, "1", prefix + name, "0")], is_full=False)
    assert caplog.messages == [f"dynamic config {prefix}{name} of broker 1 is ignored: Invalid {name} 0"]
    assert prefix + name not in dynamic.config.current
    dynamic.check_broker_change("", {"num.io.threads": "9"})


def test_min_isr_of_the_file_is_not_replaced_in_silence(
    dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        for value in ("3", "1"):
            dynamic.apply_records([record(BROKER, "", "min.insync.replicas", value)], is_full=False)
        dynamic.apply_records([record(BROKER, "", "min.insync.replicas", "1")], is_full=True)
    line = (
        "broker config: min.insync.replicas=3 of the file has no effect: all brokers have 1, by kafka-configs or since "
        "the cluster was created"
    )
    assert caplog.messages == [line] * 2, "one for each change"


def test_a_full_push_removes_configs_that_it_does_not_name(dynamic: DynamicConfig) -> None:
    changed: list[Resource] = []
    dynamic.on_change(changed.append)
    first = [record(TOPIC, "a", "retention.ms", "1"), record(TOPIC, "b", "retention.ms", "2")]
    dynamic.apply_records(first, is_full=True)
    dynamic.apply_records([*first[1:], record(GROUP, "g", "consumer.session.timeout.ms", "46000")], is_full=True)
    assert changed == [(TOPIC, "a"), (TOPIC, "b"), (TOPIC, "a"), (GROUP, "g")]
    assert dynamic.topic_config("a").retention_ms == 604_800_000
    assert dynamic.names(TOPIC) == ["b"]
    assert dynamic.group_config("g").consumer_session_timeout_ms == 46_000


def test_listeners_are_not_called_without_a_change(dynamic: DynamicConfig) -> None:
    changed: list[Resource] = []
    dynamic.on_change(changed.append)
    for value in ("1", "1", None, None):
        dynamic.apply_records([record(TOPIC, "a", "retention.ms", value)], is_full=False)
    assert changed == [(TOPIC, "a")] * 2


def test_a_listener_that_fails_keeps_the_change_from_no_other(
    dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    changed: list[Resource] = []

    def fail(_resource: Resource) -> None:
        raise RuntimeError("unforeseen")

    dynamic.on_change(fail)
    dynamic.on_change(changed.append)
    dynamic.apply_records([record(TOPIC, name, "retention.ms", "1") for name in ("a", "b")], is_full=False)
    assert changed == [(TOPIC, "a"), (TOPIC, "b")]
    assert [line.message.partition("(")[0] for line in caplog.records] == [
        "a part of the broker cannot apply the changed config of Resource"
    ] * 2


def test_unusable_values_are_ignored(dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture) -> None:
    dynamic.apply_records(
        [
            record(BROKER, "", "min.insync.replicas", "0"),
            record(BROKER, "", "log.segment.bytes", "2000000"),
            record(BROKER, "", "num.partitions", "99"),
            record(TOPIC, "a", "retention.ms", "soon"),
            record(TOPIC, "a", "segment.bytes", "3000000"),
        ],
        is_full=False,
    )
    assert (dynamic.config.min_insync_replicas, dynamic.config.log_segment_bytes) == (3, 2_000_000)
    assert dynamic.config.num_partitions == 1
    topic = dynamic.topic_config("a")
    assert (topic.retention_ms, topic.segment_bytes) == (604_800_000, 3_000_000)
    assert caplog.text.count("is ignored") == 2
    dynamic.apply_records([record(BROKER, "", "log.cleaner.min.compaction.lag.ms", "9")], is_full=False)
    dynamic.apply_records([record(BROKER, "", "log.cleaner.max.compaction.lag.ms", "8")], is_full=False)
    assert dynamic.config.log_cleaner_min_compaction_lag_ms == 9
    assert "conflict" in caplog.text


def test_a_stored_value_that_contradicts_another_blocks_no_other_change(dynamic: DynamicConfig) -> None:
    stored = {"log.cleaner.min.compaction.lag.ms": "9"}
    dynamic.apply_records([record(BROKER, "", name, text) for name, text in stored.items()], is_full=False)
    stored["log.cleaner.max.compaction.lag.ms"] = "8"  # a controller of an older release accepted it
    dynamic.apply_records([record(BROKER, "", name, text) for name, text in stored.items()], is_full=False)
    dynamic.check_broker_change("", {**stored, "num.io.threads": "9"})
    dynamic.check_broker_change("1", {"num.io.threads": "9"})
    for contradiction in ("7", "6"):
        with pytest.raises(ConfigError, match="conflict"):
            dynamic.check_broker_change("", {**stored, "log.cleaner.max.compaction.lag.ms": contradiction})


@pytest.mark.parametrize("is_full", [True, False])
def test_only_what_cannot_be_used_is_without_effect(
    dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture, is_full: bool
) -> None:
    records = [
        record(BROKER, "", "log.cleaner.max.compaction.lag.ms", "8"),
        record(BROKER, "", "num.io.threads", "nine"),
        record(BROKER, "1", "log.cleaner.min.compaction.lag.ms", "9"),
        record(BROKER, "1", "max.connections", "5"),
        record(BROKER, "1", "listener.name.plaintext.max.connections", "x"),
        record(BROKER, "1", "listener.name.plaintext.num.network.threads", "2"),
    ]
    for _ in range(2):
        dynamic.apply_records(records, is_full=is_full)
        dynamic.apply_records([record(BROKER, "", "min.insync.replicas", "4")], is_full=False)
        config = dynamic.config
        assert (config.max_connections, config.min_insync_replicas) == (5, 4)
        assert (config.log_cleaner_max_compaction_lag_ms, config.log_cleaner_min_compaction_lag_ms) == (8, 0)
        assert config.current["listener.name.plaintext.num.network.threads"] == "2"
        assert "listener.name.plaintext.max.connections" not in config.current
    lines = [entry.getMessage() for entry in caplog.records]
    for name in ("num.io.threads", "log.cleaner.min.compaction.lag.ms", "listener.name.plaintext.max.connections"):
        assert len([line for line in lines if "is ignored" in line and name in line]) == 1, name
    dynamic.apply_records([record(BROKER, "", "log.cleaner.max.compaction.lag.ms", "10")], is_full=False)
    assert dynamic.config.log_cleaner_min_compaction_lag_ms == 9, "it fits now"


def test_what_needs_another_setting_is_used_with_it(caplog: pytest.LogCaptureFixture) -> None:
    low, high = "log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"
    settings = {"node.id": "1", "controller.quorum.bootstrap.servers": "h:1", low: "9", high: "20"}
    dynamic = DynamicConfig(Config.from_properties(settings, "broker"))
    wanted = {"cordoned.log.dirs": "/nowhere", high: "5", low: "1", "max.connections.per.ip": "0"}
    dynamic.apply_records([record(BROKER, "", name, text) for name, text in wanted.items()], is_full=True)
    config = dynamic.config
    assert (config.log_cleaner_min_compaction_lag_ms, config.log_cleaner_max_compaction_lag_ms) == (1, 5)
    assert (config.cordoned_log_dirs, config.max_connections_per_ip) == ((), 2**31 - 1)
    assert caplog.text.count("is ignored") == 2


def test_a_change_is_checked_together_with_the_other_configs(dynamic: DynamicConfig) -> None:
    dynamic.check_broker_change("", {"log.cleaner.max.compaction.lag.ms": "8", "of.a.plugin": "x"})
    dynamic.apply_records([record(BROKER, "1", "log.cleaner.min.compaction.lag.ms", "9")], is_full=False)
    with pytest.raises(ConfigError, match="conflict"):
        dynamic.check_broker_change("", {"log.cleaner.max.compaction.lag.ms": "8"})
    with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
        dynamic.check_broker_change("1", {"listener.name.x.ssl.provider": "x"})


@pytest.mark.parametrize("name", ["ssl.provider", "super.users", "listener.name.x.ssl.provider"])
def test_a_protecting_config_without_effect_is_refused(dynamic: DynamicConfig, name: str) -> None:
    with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
        dynamic.check_broker_change("1", {name: "x"})


LOGINS = {
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "h:1",
    "listeners": "PLAINTEXT://:1,OUTSIDE://:2",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUTSIDE:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
}
JAAS = "listener.name.outside.plain.sasl.jaas.config"
MECHANISMS = "listener.name.outside.sasl.enabled.mechanisms"


def test_settings_of_logins_are_in_force_at_once_and_the_file_stays() -> None:
    dynamic = DynamicConfig(Config.from_properties({**LOGINS, JAAS: "a"}, "broker"))
    config = dynamic.config
    dynamic.check_broker_change("1", {JAAS: "b", MECHANISMS: "PLAIN", "sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    records = [record(BROKER, "1", JAAS, "b"), record(BROKER, "1", "sasl.enabled.mechanisms", "SCRAM-SHA-256")]
    dynamic.apply_records(records, is_full=False)
    assert (config.current[JAAS], config.originals[JAAS], dynamic.static()[JAAS]) == ("b", "a", "a")
    assert config.sasl_enabled_mechanisms == ("SCRAM-SHA-256",)
    dynamic.apply_records([], is_full=True)
    assert config.current[JAAS] == "a"
    assert config.sasl_enabled_mechanisms == ("PLAIN",)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("connections.max.reauth.ms", "1", "Cannot update these configs dynamically"),
        ("ssl.keystore.location", "/x", "can be dynamically updated only per-listener using the listener prefix"),
        ("sasl.jaas.config", "x", "Cannot update these configs dynamically"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN", "Cannot update these configs dynamically"),
        ("listener.name.outside.plain.sasl.server.callback.handler.class", "os:system", "Cannot update these configs"),
        ("listener.name.outside.plain.sasl.login.callback.handler.class", "os:system", "Cannot update these configs"),
        ("listener.name.outside.oauthbearer.sasl.oauthbearer.jwks.endpoint.url", "file:/a", "Cannot update these conf"),
        ("listener.name.outside.plain.log.retention.ms", "1", "Cannot update these configs dynamically"),
        ("listener.name.outside.connections.max.reauth.ms", "soon", "Invalid value soon"),
        ("listener.name.plaintext.plain.sasl.jaas.config", "x", "no listener that it is for uses SASL"),
        ("listener.name.nowhere.plain.sasl.jaas.config", "x", "no listener that it is for uses SASL"),
    ],
)
def test_settings_of_logins_that_cannot_change(name: str, text: str, message: str) -> None:
    dynamic = DynamicConfig(Config.from_properties(LOGINS, "broker"))
    with pytest.raises(ConfigError, match=message):
        dynamic.check_broker_change("1", {name: text})


@pytest.mark.parametrize("name", [JAAS, MECHANISMS, "listener.name.outside.connections.max.reauth.ms"])
def test_logins_are_set_for_one_broker(name: str) -> None:
    dynamic = DynamicConfig(Config.from_properties(LOGINS, "broker"))
    dynamic.check_broker_change("1", {name: "1"})
    with pytest.raises(ConfigError, match="at default cluster level, broker id must be specified"):
        dynamic.check_broker_change("", {name: "1"})


def test_an_unknown_setting_of_a_listener_is_for_one_broker(dynamic: DynamicConfig) -> None:
    dynamic.check_broker_change("", {"my.plugin": "1"})
    dynamic.check_broker_change("1", {"listener.name.plaintext.my.plugin": "1"})
    with pytest.raises(ConfigError, match=r"at default cluster level, .*: \[listener\.name\.plaintext\.my\.plugin\]"):
        dynamic.check_broker_change("", {"listener.name.plaintext.my.plugin": "1"})


def test_a_listener_that_is_gone_or_lost_its_logins_breaks_no_other_setting(
    dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {JAAS: "b", "sasl.enabled.mechanisms": "PLAIN", "listener.name.gone.max.connections": "1"}
    records = [record(BROKER, "1", name, text) for name, text in texts.items()]
    dynamic.apply_records([*records, record(BROKER, "1", "min.insync.replicas", "2")], is_full=False)
    assert dynamic.config.min_insync_replicas == 2
    assert [found.getMessage() for found in caplog.records] == [
        f"broker config: listener.name.gone.max.connections, {JAAS} have no effect: there is no such listener"
    ]
    with pytest.raises(ConfigError, match="no listener that it is for uses SASL"):
        dynamic.check_broker_change("1", {"sasl.enabled.mechanisms": "PLAIN"})


def test_when_a_node_renews_its_login_may_be_set_without_sasl_as_in_kafka(
    dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    texts = {"sasl.kerberos.min.time.before.relogin": "58000", "sasl.login.refresh.buffer.seconds": "9"}
    dynamic.check_broker_change("1", texts)
    dynamic.apply_records([record(BROKER, "1", name, text) for name, text in texts.items()], is_full=False)
    assert [found.getMessage() for found in caplog.records] == [
        "broker config: sasl.kerberos.min.time.before.relogin, sasl.login.refresh.buffer.seconds have no effect: no "
        "listener uses SASL"
    ]


def test_a_config_without_effect_is_logged_when_it_is_set(
    dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    records = [
        record(TOPIC, "a", "local.retention.ms", "1"),
        record(TOPIC, "b", "local.retention.ms", "1"),
        record(TOPIC, "b", "retention.ms", "1"),
        record(BROKER, "1", "num.io.thread", "4"),
        record(BROKER, "2", "num.io.treads", "4"),
    ]
    for is_full in (True, False, True):
        dynamic.apply_records(records, is_full=is_full)
    dynamic.apply_records([record(TOPIC, "a", "local.retention.ms", None)], is_full=False)
    assert [record.getMessage() for record in caplog.records] == [
        "topic config: local.retention.ms has no effect: there is no tiered storage",
        "broker config: unknown config key is ignored: num.io.thread (did you mean num.io.threads?)",
    ]


def test_logs_follow_their_configs(dynamic: DynamicConfig) -> None:
    taken: list[tuple[TopicPartition, TopicConfig]] = []

    def log(topic: str, partition: int) -> Any:
        tp = TopicPartition(topic, partition)
        producers = SimpleNamespace(producer_id_expiration_ms=0, verifies=False)
        return SimpleNamespace(
            topic_partition=tp, update_config=lambda config: taken.append((tp, config)), producer_state=producers
        )

    logs = [log("a", 0), log("a", 1), log("b", 0)]
    keep_logs_configured(dynamic, SimpleNamespace(all_logs=lambda: logs))
    dynamic.apply_records([record(TOPIC, "a", "retention.ms", "7")], is_full=False)
    assert [(tp.topic, tp.partition, config.retention_ms) for tp, config in taken] == [("a", 0, 7), ("a", 1, 7)]
    assert taken[0][1] is taken[1][1]
    taken.clear()
    dynamic.apply_records([record(BROKER, "", "log.retention.ms", "9")], is_full=False)
    assert [(tp.topic, config.retention_ms) for tp, config in taken] == [("a", 7), ("a", 7), ("b", 9)]
    dynamic.apply_records([record(BROKER, "", "producer.id.expiration.ms", "77")], is_full=False)
    assert [log.producer_state.producer_id_expiration_ms for log in logs] == [77, 77, 77]
    assert all(log.producer_state.verifies for log in logs)
    switched_off = record(BROKER, "", "transaction.partition.verification.enable", "false")
    dynamic.apply_records([switched_off], is_full=False)
    assert not any(log.producer_state.verifies for log in logs)
    taken.clear()
    dynamic.apply_records([record(GROUP, "g", "consumer.session.timeout.ms", "46000")], is_full=False)
    assert taken == []


def test_a_check_may_refuse_a_change(dynamic: DynamicConfig) -> None:
    def refuse(new: Config) -> None:
        if new.log_cleaner_threads > 2:
            raise ConfigError("too many")

    dynamic.before_change(refuse)
    dynamic.check_broker_change("", {"log.cleaner.threads": "2"})
    with pytest.raises(ConfigError, match="too many"):
        dynamic.check_broker_change("", {"log.cleaner.threads": "3"})
    assert dynamic.config.log_cleaner_threads == 1


def test_values_of_a_group_are_kept_within_the_bounds_of_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    # As a file with other bounds, after a restart. Kafka: GroupConfig.evaluate.
    settings = {
        "node.id": "1",
        "controller.quorum.bootstrap.servers": "h:1",
        "group.consumer.max.session.timeout.ms": "50000",
        "group.share.min.record.lock.duration.ms": "20000",
        "group.streams.max.standby.replicas": "1",
    }
    dynamic = DynamicConfig(Config.from_properties(settings, "broker"))
    texts = {
        "consumer.session.timeout.ms": "55000",
        "share.record.lock.duration.ms": "15000",
        "streams.num.standby.replicas": "2",
        "share.delivery.count.limit": "4",
    }
    dynamic.apply_records([record(GROUP, "g", name, text) for name, text in texts.items()], is_full=False)
    assert dynamic.group_config("g").consumer_session_timeout_ms == 55_000  # as it is described
    effective = dynamic.effective_group_config("g")
    assert effective.consumer_session_timeout_ms == 50_000
    assert effective.share_record_lock_duration_ms == 20_000
    assert effective.streams_num_standby_replicas == 1
    assert effective.share_delivery_count_limit == 4
    assert effective.consumer_heartbeat_interval_ms == 5_000
    assert dynamic.effective_group_config("other") == dynamic.group_config("other")
    assert [each.getMessage() for each in caplog.records] == [
        "group config: consumer.session.timeout.ms of group 'g' is 55000, above this broker's maximum: 50000 is used",
        "group config: share.record.lock.duration.ms of group 'g' is 15000, below this broker's minimum: 20000 is used",
        "group config: streams.num.standby.replicas of group 'g' is 2, above this broker's maximum: 1 is used",
    ]
