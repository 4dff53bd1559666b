"""The config of a topic: its own values override its broker's.

Source: Kafka 4.3, LogConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.config.errors import ConfigError
from barnabas.config.resources.overridable import Overridable
from barnabas.config.table.keys import TOPIC_KEYS


class TopicConfig(Overridable):
    """The config of a topic's logs: every topic key, and values derived from them.

    `compact`, `delete`: the cleanup policies. `segment_bytes` is `internal.segment.bytes` where a test sets that.
    `max_segment_ms`: the age at which a segment is rolled, at most `max.compaction.lag.ms` if compacted.
    """

    _KEYS = TOPIC_KEYS

    compact: bool
    delete: bool
    max_segment_ms: int

    def __init__(self, defaults: Mapping[str, Any], overrides: Mapping[str, str]) -> None:
        super().__init__(defaults, overrides)
        values = self.values
        self.compact = "compact" in values["cleanup.policy"]
        self.delete = "delete" in values["cleanup.policy"]
        self.max_segment_ms = values["segment.ms"]
        if self.compact and values["max.compaction.lag.ms"] > 0:
            self.max_segment_ms = min(self.max_segment_ms, values["max.compaction.lag.ms"])
        if values["internal.segment.bytes"] is not None:
            self.segment_bytes = values["internal.segment.bytes"]


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
