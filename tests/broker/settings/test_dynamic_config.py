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


def test_a_change_is_checked_together_with_the_other_configs(dynamic: DynamicConfig) -> None:
    dynamic.check_broker_change("", {"log.cleaner.max.compaction.lag.ms": "8", "of.a.plugin": "x"})
    dynamic.apply_records([record(BROKER, "1", "log.cleaner.min.compaction.lag.ms", "9")], is_full=False)
    with pytest.raises(ConfigError, match="conflict"):
        dynamic.check_broker_change("", {"log.cleaner.max.compaction.lag.ms": "8"})
    with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
        dynamic.check_broker_change("1", {"listener.name.x.ssl.provider": "x"})


@pytest.mark.parametrize("name", ["ssl.provider", "super.users", "listener.name.x.scram-sha-256.sasl.jaas.config"])
def test_a_protecting_config_without_effect_is_refused(dynamic: DynamicConfig, name: str) -> None:
    with pytest.raises(ConfigError, match="Cannot update these configs dynamically"):
        dynamic.check_broker_change("1", {name: "x"})


def test_a_config_without_effect_is_logged_when_it_is_set(
    dynamic: DynamicConfig, caplog: pytest.LogCaptureFixture
) -> None:
    records = [
        record(TOPIC, "a", "local.retention.ms", "1"),
        record(TOPIC, "b", "local.retention.ms", "1"),
        record(TOPIC, "b", "retention.ms", "1"),
        record(GROUP, "g", "share.isolation.level", "read_committed"),
        record(BROKER, "1", "num.io.thread", "4"),
        record(BROKER, "2", "num.io.treads", "4"),
    ]
    for is_full in (True, False, True):
        dynamic.apply_records(records, is_full=is_full)
    dynamic.apply_records([record(TOPIC, "a", "local.retention.ms", None)], is_full=False)
    assert [record.getMessage() for record in caplog.records] == [
        "topic config: local.retention.ms has no effect: there is no tiered storage",
        "group config: share.isolation.level has no effect: there are no share groups",
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
