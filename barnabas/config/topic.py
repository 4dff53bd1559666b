"""The config of a topic: its own values over its broker's.

Source: Kafka 4.3, LogConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from barnabas.config.errors import ConfigError
from barnabas.config.keys import TOPIC_KEYS
from barnabas.config.overridable import Overridable


class TopicConfig(Overridable):
    """The config of a topic's logs: every topic key, and what follows from them.

    `compact`, `delete`: the cleanup policies. `segment_bytes` is `internal.segment.bytes` where a test set that.
    `max_segment_ms`: time after which a segment is rolled, no later than `max.compaction.lag.ms` if compacted.
    """

    _KEYS = TOPIC_KEYS

    compact: bool
    delete: bool
    max_segment_ms: int

    def __init__(
        self, defaults: Mapping[str, Any], overrides: Mapping[str, str], internal_segment_bytes: int | None = None
    ) -> None:
        super().__init__(defaults, overrides)
        values = self.values
        self.compact = "compact" in values["cleanup.policy"]
        self.delete = "delete" in values["cleanup.policy"]
        self.max_segment_ms = values["segment.ms"]
        if self.compact and values["max.compaction.lag.ms"] > 0:
            self.max_segment_ms = min(self.max_segment_ms, values["max.compaction.lag.ms"])
        if internal_segment_bytes is not None:
            self.segment_bytes = internal_segment_bytes


class MakesTopicConfigs(Protocol):
    """The part of `Config` that is needed here."""

    def topic_config(self, overrides: Mapping[str, str] | None = None) -> TopicConfig:
        """Return the config of a topic that has these overrides."""


def topic_config(config: MakesTopicConfigs, overrides: Mapping[str, str] | None = None) -> TopicConfig:
    """Return the config of a topic that has these overrides; raise ConfigError for a value that cannot be."""
    return config.topic_config(overrides)


def check_topic(topic: TopicConfig) -> None:
    """Raise ConfigError for values that contradict each other."""
    low, high = topic.values["min.compaction.lag.ms"], topic.values["max.compaction.lag.ms"]
    if low > high:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
    if topic.values["remote.storage.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )
