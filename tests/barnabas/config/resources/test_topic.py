"""Configs of topics and groups: topic.py, group.py and overridable.py."""

from __future__ import annotations

import re

import pytest

from barnabas.config import Config, ConfigError
from barnabas.config.config import SHARED_MAX

CONFIG = Config.from_properties({"log.segment.bytes": "2000000", "log.cleanup.policy": "compact,delete"})


def test_defaults_come_from_the_broker() -> None:
    topic = CONFIG.topic_config({})
    assert topic.segment_bytes == 2_000_000
    assert topic.cleanup_policy == ("compact", "delete")
    assert topic.compact
    assert topic.delete
    assert topic.retention_ms == 604_800_000
    assert topic.min_insync_replicas == 1
    assert topic.remote_storage_enable is False


def test_overrides_take_precedence() -> None:
    topic = CONFIG.topic_config({"segment.bytes": "1048576", "cleanup.policy": "compact", "max.compaction.lag.ms": "9"})
    assert topic.segment_bytes == 1_048_576
    assert (topic.compact, topic.delete, topic.max_segment_ms) == (True, False, 9)
    assert topic.overrides == {"segment.bytes": "1048576", "cleanup.policy": "compact", "max.compaction.lag.ms": "9"}
    assert topic != CONFIG.topic_config()
    assert CONFIG.topic_config() == CONFIG.topic_config({})


def test_topics_with_the_same_overrides_share_a_config() -> None:
    config = Config.from_properties({})
    assert config.topic_config() is config.topic_config({})
    assert config.topic_config({"segment.ms": "9"}) is config.topic_config({"segment.ms": "9"})
    assert config.topic_config({"segment.ms": "9"}).values != config.topic_config({"segment.ms": "8"}).values
    before = config.topic_config()
    config.replace(config.with_overrides({"log.retention.ms": "7"}))
    assert (before.retention_ms, config.topic_config().retention_ms) == (604_800_000, 7)
    for size in range(SHARED_MAX):
        config.topic_config({"segment.bytes": str(2_000_000 + size)})
    assert config.topic_config({"segment.bytes": "7000000"}) is not config.topic_config({"segment.bytes": "7000000"})


def test_small_segments_for_tests() -> None:
    config = Config.from_properties({"internal.segment.bytes": "500"})
    assert config.topic_config({"segment.bytes": "2000000"}).segment_bytes == 500
    assert config.topic_config({"internal.segment.bytes": "16384"}).segment_bytes == 16384
    assert CONFIG.validate_topic({"internal.segment.bytes": "1"}).segment_bytes == 1


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.sm": "1"}, "Unknown topic config name: retention.sm"),
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        (
            {"retention.ms": None, "segment.ms": None},
            "Null value not supported for topic configs: retention.ms,segment.ms",
        ),
        ({"cleanup.policy": "shred"}, "String must be one of: compact, delete"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "conflict topic config setting"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled in the broker."),
        ({"leader.replication.throttled.replicas": "0-1"}, "must be the literal"),
    ],
)
def test_errors(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CONFIG.validate_topic(overrides)
    assert message in str(caught.value)


@pytest.mark.parametrize("value", ["", "*", "0:1", "0:1,1:2", "0:1,", ",0:1", " 0:1 , 1:2 "])
def test_throttled_replicas(value: str) -> None:
    assert CONFIG.validate_topic({"leader.replication.throttled.replicas": value})


@pytest.mark.parametrize("value", ["none", "0", "*,*", "*,0:1", "0:*", "-1:1", "0:1:2"])
def test_replicas_that_are_none(value: str) -> None:
    shown = ", ".join(value.split(","))
    with pytest.raises(ConfigError, match=re.escape(f"Invalid value [{shown}] for configuration leader.replication.")):
        CONFIG.validate_topic({"leader.replication.throttled.replicas": value})


def test_groups() -> None:
    group = CONFIG.validate_group({"consumer.session.timeout.ms": "50000"})
    assert group.consumer_session_timeout_ms == 50_000
    assert group.consumer_heartbeat_interval_ms == 5000
    for overrides, message in (
        ({"consumer.session.timeout.ms": "1"}, "consumer.session.timeout.ms must be greater than or equal to "),
        ({"consumer.heartbeat.interval.ms": "99999"}, "must be less than or equal to group.consumer.max.heartbeat"),
        ({"streams.num.standby.replicas": "3"}, "must be less than or equal to group.streams.max.standby.replicas"),
        ({"share.auto.offset.reset": "sometime"}, "Invalid value sometime"),
        ({"nonsense": "1"}, "Unknown group config name: nonsense"),
    ):
        with pytest.raises(ConfigError, match=message):
            CONFIG.validate_group(overrides)


@pytest.mark.parametrize("duration", ["PT1H", "PT1H-2M", "P+1D", "PT+1S", "PT1,5S", "-P-1D", "pt0s"])
def test_share_groups_begin_at_a_duration_before(duration: str) -> None:
    assert CONFIG.validate_group({"share.auto.offset.reset": f"by_duration:{duration}"})


@pytest.mark.parametrize("value", ["BY_DURATION:PT1S", "by_duration:PT-1S", "by_duration:", "by_duration", "Latest"])
def test_share_groups_begin_at_no_other_place(value: str) -> None:
    text = r"must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn\.nS>'"
    with pytest.raises(ConfigError, match=text):
        CONFIG.validate_group({"share.auto.offset.reset": value})
